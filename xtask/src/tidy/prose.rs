//! Checks texts that must make sense when read alone: doc comments, and the HELP texts of
//! metrics.
//!
//! Rustdoc and Prometheus show each text without its neighbours, so a text must not begin with a
//! word that refers to the text before it.

use super::rust::strings;
use super::{File, Report};

const DOC_OPENINGS: &[&str] = &["Likewise", "The same", "Of these"];
const HELP_OPENINGS: &[&str] = &["Of these", "Their", "Such"];

const METRIC_PREFIX: &str = "gapless_";
/// A kind may be written between the name of a metric and its HELP text.
const METRIC_KINDS: &[&str] = &["counter", "gauge", "histogram"];

pub(super) fn check(file: &File, report: &mut Report) {
    if !file.has_extension(&["rs"]) {
        return;
    }
    for (line, text) in doc_comments(&file.text) {
        if let Some(opening) = opening(text, DOC_OPENINGS) {
            let wrong = format!("a doc comment begins with `{opening}`");
            let remedy = "write it so that it makes sense alone, as rustdoc shows it";
            report.fail(file, line, wrong, remedy);
        }
    }
    for (line, text) in help_texts(&file.text) {
        if let Some(opening) = opening(text, HELP_OPENINGS) {
            let wrong = format!("a HELP text begins with `{opening}`");
            let remedy = "write a full noun phrase that names what is counted";
            report.fail(file, line, wrong, remedy);
        }
    }
}

/// The opening with which a text begins, as whole words.
fn opening<'a>(text: &str, openings: &[&'a str]) -> Option<&'a str> {
    openings.iter().copied().find(|opening| {
        text.strip_prefix(opening)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    })
}

/// The first line of every doc comment, with its number.
fn doc_comments(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_comment = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        // Four slashes are no doc comment.
        let comment = line
            .strip_prefix("///")
            .filter(|rest| !rest.starts_with('/'))
            .or_else(|| line.strip_prefix("//!"));
        if let Some(comment) = comment
            && !in_comment
        {
            found.push((index + 1, comment.trim()));
        }
        in_comment = comment.is_some();
    }
    found
}

/// The HELP text of every metric, with its line: the string after the metric's name.
fn help_texts(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut after_name = false;
    for (line, string) in strings(text) {
        if is_metric(string) {
            after_name = true;
        } else if after_name && !METRIC_KINDS.contains(&string) {
            found.push((line, string));
            after_name = false;
        }
    }
    found
}

fn is_metric(string: &str) -> bool {
    let name = string.strip_prefix(METRIC_PREFIX);
    name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
}

#[cfg(test)]
mod tests {
    use super::super::findings;

    fn found(text: &str) -> Vec<String> {
        let found = findings(&[("src/a.rs", text)]);
        let found = found.iter().map(|finding| finding.split(';').next());
        found.map(|finding| finding.unwrap().to_string()).collect()
    }

    #[test]
    fn a_doc_comment_that_continues_another_fails() {
        let text = "//! A.\n\n/// Likewise, for hosts.\nfn a() {}\n\n    /// The same as [`a`].\n\
                    fn b() {}\n";
        assert_eq!(
            found(text),
            [
                "src/a.rs:3: a doc comment begins with `Likewise`",
                "src/a.rs:6: a doc comment begins with `The same`",
            ]
        );
        for opening in ["The same", "Of these"] {
            assert_eq!(found(&format!("//! {opening}.\n")).len(), 1);
        }
    }

    #[test]
    fn only_the_beginning_of_a_doc_comment_counts() {
        let text = "//! A.\n\n/// Reads hosts.\n/// The same holds for names.\nfn a() {}\n\
                    /// Likewisely.\nfn b() {}\n// The same.\nfn c() {}\n//// Likewise\nfn d() {}\n\
                    const A: &str = \"/// The same\";\n";
        assert_eq!(found(text), Vec::<String>::new());
    }

    #[test]
    fn a_help_text_without_its_noun_fails() {
        let text = "//! A.\nconst A: [&str; 2] = [\"gapless_frames_total\", \"Frames.\"];\n\
                    counters! {\n    a: \"gapless_a_total\", \"Of these: complete.\";\n}\n\
                    const B: [&str; 3] = [\n    \"gapless_b\",\n    \"gauge\",\n    \"Their bytes, \\\n\
                    \x20    all of them.\",\n];\nconst C: [&str; 2] = [\"gapless_c\", \"Such listings.\"];\n";
        assert_eq!(
            found(text),
            [
                "src/a.rs:4: a HELP text begins with `Of these`",
                "src/a.rs:9: a HELP text begins with `Their`",
                "src/a.rs:12: a HELP text begins with `Such`",
            ]
        );
    }

    #[test]
    fn other_strings_and_longer_words_are_no_concern() {
        let text = "//! A.\nconst A: &str = \"Their bytes.\";\n\
                    const B: [&str; 3] = [\"gapless_b\", \"Theirs\", \"Such\"];\n";
        assert_eq!(found(text), Vec::<String>::new());
    }
}
