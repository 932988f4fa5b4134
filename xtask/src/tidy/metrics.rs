//! Checks that `docs/metrics.md` describes every metric, and no other.

use super::{File, Report};
use std::collections::BTreeSet;

const DESCRIBED: &str = "docs/metrics.md";
const CODE: [&str; 2] = ["crates/gapless/src/", "crates/mirror/src/"];
const PREFIX: &str = "gapless_";

pub(super) fn check(files: &[File], report: &mut Report) {
    let Some(described) = files.iter().find(|file| file.path == DESCRIBED) else {
        return;
    };
    let code = files.iter().filter(|file| {
        CODE.iter().any(|code| file.path.starts_with(code)) && file.has_extension(&["rs"])
    });
    let mut known = BTreeSet::new();
    for file in code {
        for (line, name) in names(&file.text, '"') {
            let found = names(&described.text, '`').any(|(_, other)| other == name);
            if !found {
                report.fail(
                    file,
                    line,
                    format!("the metric `{name}` is not described"),
                    "add it to docs/metrics.md",
                );
            }
            known.insert(name);
        }
    }
    for (line, name) in names(&described.text, '`') {
        if !known.contains(name) {
            report.fail(
                described,
                line,
                format!("`{name}` is no metric of the program"),
                "take it out, or name the one that is",
            );
        }
    }
}

/// Names of metrics between two quotes, with their lines.
fn names(text: &str, quote: char) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().flat_map(move |(number, line)| {
        let parts = line.split(quote).skip(1).step_by(2);
        let names = parts.filter(|part| {
            part.starts_with(PREFIX)
                && part.len() > PREFIX.len()
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        });
        names.map(move |name| (number + 1, name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File::new(path, text.to_owned())
    }

    #[test]
    fn both_sides_must_agree() {
        let code = file(
            "crates/mirror/src/metrics.rs",
            "a: \"gapless_frames_total\",\n",
        );
        let right = file(DESCRIBED, "| `gapless_frames_total` | counter |\n");
        let wrong = file(DESCRIBED, "| `gapless_dreams_total` | counter |\n");
        let mut report = Report::default();
        check(&[code, right], &mut report);
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        let code = file(
            "crates/mirror/src/metrics.rs",
            "a: \"gapless_frames_total\",\n",
        );
        check(&[code, wrong], &mut report);
        assert_eq!(report.findings.len(), 2);
    }
}
