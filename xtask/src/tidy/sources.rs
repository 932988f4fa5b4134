//! Checks Rust files: a header, a bounded size, functions of bounded length, no leftovers.

use super::rust::functions;
use super::{File, Report};
use std::collections::BTreeSet;

const HEADER_WITHIN_LINES: usize = 3;
const FILE_LINES_NOTED: usize = 500;
const FILE_LINES: usize = 800;
const FUNCTION_LINES_NOTED: usize = 80;
const FUNCTION_LINES: usize = 110;
/// A test may be longer, because a list of cases is easy to read.
const TEST_LINES: usize = 150;

/// Code that marks unfinished work or disables a test.
const LEFTOVER_CODE: &[&str] = &["todo!(", "unimplemented!(", "dbg!(", "#[ignore"];
/// Words that mark unfinished work in a comment. Each is spelled in two parts, so that the check
/// does not report this file.
const LEFTOVER_WORDS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];
const WORDS_SEARCHED_IN: &[&str] = &["rs", "toml", "sh", "js", "mjs", "ts", "py", "yml", "yaml"];

pub(super) fn check(file: &File, report: &mut Report) {
    if file.has_extension(WORDS_SEARCHED_IN) {
        leftover_words(file, report);
    }
    if file.has_extension(&["rs"]) {
        let code = file.code();
        header(file, report);
        size(file, report);
        function_sizes(file, code, report);
        leftover_code(file, code, report);
    }
}

fn header(file: &File, report: &mut Report) {
    let found = file
        .text
        .lines()
        .take(HEADER_WITHIN_LINES)
        .any(|line| line.starts_with("//!"));
    if !found {
        report.fail(
            file,
            1,
            "no header".to_string(),
            "open the file with `//!`: what the module promises, its limits, how it fails",
        );
    }
}

fn size(file: &File, report: &mut Report) {
    let lines = file.text.lines().count();
    let remedy = "split it by topic";
    if lines > FILE_LINES {
        report.fail(
            file,
            lines,
            format!("{lines} lines, more than {FILE_LINES}"),
            remedy,
        );
    } else if lines > FILE_LINES_NOTED {
        report.note(file, lines, format!("{lines} lines"), remedy);
    }
}

fn function_sizes(file: &File, code: &str, report: &mut Report) {
    let shipped: BTreeSet<usize> = functions(file.production_code())
        .iter()
        .map(|function| function.line)
        .collect();
    for function in functions(code) {
        let limit = if file.path.contains("/tests") || !shipped.contains(&function.line) {
            TEST_LINES
        } else {
            FUNCTION_LINES
        };
        let wrong = format!("fn {} has {} lines", function.name, function.lines);
        let remedy = "a function fits on a screen; split it by step";
        if function.lines > limit {
            let wrong = format!("{wrong}, more than {limit}");
            report.fail(file, function.line, wrong, remedy);
        } else if function.lines > FUNCTION_LINES_NOTED {
            report.note(file, function.line, wrong, remedy);
        }
    }
}

fn leftover_code(file: &File, code: &str, report: &mut Report) {
    for (index, line) in code.lines().enumerate() {
        for mark in LEFTOVER_CODE {
            if line.contains(mark) {
                let wrong = format!("`{mark}`");
                report.fail(file, index + 1, wrong, "finish it, or take it out");
            }
        }
    }
}

fn leftover_words(file: &File, report: &mut Report) {
    for (index, line) in file.text.lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric());
        if let Some(word) = words.find(|word| LEFTOVER_WORDS.contains(word)) {
            let wrong = format!("a {word} mark");
            report.fail(
                file,
                index + 1,
                wrong,
                "do it now, or open an issue and say there",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check as check_all, findings, tree};
    use super::*;

    fn one(text: &str) -> Vec<String> {
        findings(&[("src/a.rs", text)])
    }

    #[test]
    fn a_file_without_header_fails() {
        assert!(one("use std::fs;\n\n\n//! Too late.\n")[0].contains("no header"));
        assert_eq!(
            one("#![no_main]\n//! A fuzz target.\n"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_long_file_is_noted_and_a_longer_one_fails() {
        let lines = |count: usize| format!("//! A.\n{}", "\n".repeat(count - 1));
        let noted = check_all(&tree(&[("a.rs", &lines(800))]));
        assert_eq!((noted.findings.len(), noted.notes.len()), (0, 1));
        let failed = check_all(&tree(&[("a.rs", &lines(801))]));
        assert_eq!((failed.findings.len(), failed.notes.len()), (1, 0));
        let short = check_all(&tree(&[("a.rs", &lines(500))]));
        assert_eq!((short.findings.len(), short.notes.len()), (0, 0));
    }

    #[test]
    fn a_long_function_is_noted_and_a_longer_one_fails() {
        let function = |lines: usize| format!("fn long() {{{}}}\n", "\n".repeat(lines - 1));
        let shipped = |lines| format!("//! A.\n{}", function(lines));
        let test = |lines| format!("//! A.\n#[cfg(test)]\n{}", function(lines));
        for (text, noted, failed) in [
            (shipped(80), 0, 0),
            (shipped(81), 1, 0),
            (shipped(110), 1, 0),
            (shipped(111), 0, 1),
            (test(150), 1, 0),
            (test(151), 0, 1),
        ] {
            let report = check_all(&tree(&[("src/a.rs", &text)]));
            let found = (report.notes.len(), report.findings.len());
            assert_eq!(found, (noted, failed), "{text:?}");
        }
        let failed = check_all(&tree(&[("src/a.rs", &shipped(111))]));
        assert_eq!(
            failed.findings[0].to_string().split(';').next(),
            Some("src/a.rs:2: fn long has 111 lines, more than 110")
        );
        let in_tests = check_all(&tree(&[("c/tests/a.rs", &shipped(150))]));
        assert_eq!(in_tests.findings, []);
    }

    #[test]
    fn leftovers_in_code_fail_but_not_in_strings() {
        for mark in LEFTOVER_CODE {
            let found = one(&format!("//! A.\nfn a() {{ {mark}) }}\n"));
            assert_eq!(found.len(), 1, "{mark}");
            assert!(found[0].starts_with("src/a.rs:2: "), "{found:?}");
            assert_eq!(
                one(&format!("//! A.\nconst A: &str = \"{mark}\";\n")).len(),
                0,
                "{mark}"
            );
        }
    }

    #[test]
    fn leftover_words_fail_in_code_and_scripts() {
        for word in LEFTOVER_WORDS {
            assert_eq!(
                one(&format!("//! A.\n// {word}: later\n")).len(),
                1,
                "{word}"
            );
            assert_eq!(
                findings(&[("run.sh", &format!("# {word}(me) x\n"))]).len(),
                1,
                "{word}"
            );
            assert_eq!(one(&format!("//! A.\n// {word}S\n")).len(), 0, "{word}");
        }
    }
}
