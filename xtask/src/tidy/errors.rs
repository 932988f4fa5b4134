//! Checks that `docs/api.md` describes every error name that is sent, and no other.
//!
//! An error name is a string of capitalised words (`RepoNotFound`) in the code that answers
//! requests. The document describes a name if it has the name in backticks below the heading
//! `## Errors`. The check stops reading a file at its tests.

use super::{File, Report};
use std::collections::BTreeSet;

const DESCRIBED: &str = "docs/api.md";
const HEADING: &str = "## Errors";
const CODE: [&str; 4] = [
    "crates/mirror/src/api/",
    "crates/mirror/src/log/",
    "crates/gapless/src/serve/",
    "crates/gapless/src/web/",
];
const TESTS: &str = "#[cfg(test)]";
/// Strings that look like error names and are none.
const OTHERS: [&str; 3] = ["Bearer", "Jetstream", "Upgrade"];

pub(super) fn check(files: &[File], report: &mut Report) {
    let Some(described) = files.iter().find(|file| file.path == DESCRIBED) else {
        return;
    };
    let section = section(&described.text);
    let told: BTreeSet<&str> = section.iter().map(|(_, name)| *name).collect();
    let mut sent = BTreeSet::new();
    for file in files.iter().filter(|file| answers(file)) {
        let code = file.text.split(TESTS).next().unwrap_or_default();
        for (line, name) in names(code, '"') {
            if OTHERS.contains(&name) {
                continue;
            }
            if !told.contains(name) {
                let wrong = format!("the error `{name}` is not described");
                report.fail(file, line, wrong, "add it to docs/api.md, below Errors");
            }
            sent.insert(name);
        }
    }
    for (line, name) in section {
        if !sent.contains(name) {
            report.fail(
                described,
                line,
                format!("the error `{name}` is never sent"),
                "take it out, or name the one that is",
            );
        }
    }
}

fn answers(file: &File) -> bool {
    file.has_extension(&["rs"]) && CODE.iter().any(|folder| file.path.starts_with(folder))
}

/// The names below the heading [`HEADING`], up to the next heading.
fn section(text: &str) -> Vec<(usize, &str)> {
    let begin = text.lines().position(|line| line == HEADING);
    let begin = begin.map_or(usize::MAX, |line| line + 1);
    let mut lines = text.lines().enumerate().skip(begin);
    let end = lines.find(|(_, line)| line.starts_with("## "));
    let end = end.map_or(usize::MAX, |(line, _)| line);
    let all = names(text, '`');
    all.filter(|(line, _)| (begin..end).contains(&(line - 1)))
        .collect()
}

/// The error names between two quotes, with their lines.
fn names(text: &str, quote: char) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(move |(number, line)| {
        let parts = line.split(quote).skip(1).step_by(2);
        parts
            .filter(|part| is_name(part))
            .map(move |name| (number + 1, name))
    })
}

/// Whether a text consists of capitalised words, as `RepoNotFound` does. Two capitals in a row
/// do not count.
fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let small_after = |at: usize| bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
    bytes.len() > 2
        && bytes[0].is_ascii_uppercase()
        && bytes.iter().enumerate().all(|(at, byte)| {
            byte.is_ascii_lowercase() || (byte.is_ascii_uppercase() && small_after(at))
        })
}

#[cfg(test)]
mod tests {
    use super::super::findings;

    const CODE: &str = "//! A.\n\n/// It.\nconst A: &str = \"NotFound\";\n\
                        const B: &str = \"Bearer\";\nconst C: &str = \"No such thing\";\n\
                        #[cfg(test)]\nconst D: &str = \"OnlyHere\";\n";

    fn with(document: &str) -> Vec<String> {
        findings(&[
            ("crates/gapless/src/web/a.rs", CODE),
            ("docs/api.md", document),
        ])
    }

    #[test]
    fn both_sides_must_agree() {
        let right = "# A\n\n`Gapless-Evidence`, `SomethingElse`\n\n## Errors\n\n\
                     | 404 | `NotFound` |\n\n## More\n\n`Another`\n";
        assert_eq!(with(right), Vec::<String>::new());
        let found = with(&right.replace("`NotFound`", "`NotThere`"));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found
                .iter()
                .any(|one| one.contains("`NotFound` is not described"))
        );
        assert!(
            found
                .iter()
                .any(|one| one.contains("`NotThere` is never sent"))
        );
        let found = with(&right.replace("## Errors", "## Others"));
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
