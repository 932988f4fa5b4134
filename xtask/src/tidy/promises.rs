//! Every promise of `docs/promises.md` names tests that exist.
//!
//! The format: tables whose last column is headed `tests` and holds one or more
//! names in backticks, each `path/to/file.rs::test_name`, the path as seen from
//! the project's root. The file must be there and must hold a function of that
//! name with a test attribute, or one that the suite beside it makes a test of
//! for each implementation: a macro in `main.rs` that writes `#[test] fn $…`, and
//! is called with `module::test_name`. A row without a name fails too: a promise
//! without a test is not kept.

use super::rust::functions;
use super::{File, Report};

const PROMISES: &str = "docs/promises.md";

pub fn check(files: &[File], report: &mut Report) {
    let Some(promises) = files.iter().find(|file| file.path == PROMISES) else {
        return;
    };
    let mut in_table = false;
    for (index, line) in promises.text.lines().enumerate() {
        let Some(last) = last_cell(line) else {
            in_table = false;
            continue;
        };
        if !in_table {
            in_table = last == "tests";
            if !in_table && !is_rule(last) {
                let wrong = format!("the last column is `{last}`, not `tests`");
                report.fail(
                    promises,
                    index + 1,
                    wrong,
                    "end each table with the column `tests`",
                );
                in_table = true;
            }
            continue;
        }
        if is_rule(last) {
            continue;
        }
        check_row(files, promises, index + 1, last, report);
    }
}

fn check_row(files: &[File], promises: &File, line: usize, cell: &str, report: &mut Report) {
    let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
    if names.is_empty() {
        let wrong = "a promise without a test".to_string();
        report.fail(
            promises,
            line,
            wrong,
            "name its test, or take the promise back",
        );
    }
    for name in names {
        if let Some(why) = missing(files, name) {
            report.fail(
                promises,
                line,
                why,
                "write the test, or name the one that shows it",
            );
        }
    }
}

fn missing(files: &[File], name: &str) -> Option<String> {
    let Some((path, test)) = name.split_once("::") else {
        return Some(format!(
            "`{name}` is not of the form `path/to/file.rs::test_name`"
        ));
    };
    let Some(file) = files.iter().find(|file| file.path == path) else {
        return Some(format!("`{name}`: there is no file {path}"));
    };
    let found = functions(file.code())
        .iter()
        .any(|f| f.name == test && (f.is_test || in_suite(files, path, test)));
    (!found).then(|| format!("`{name}`: {path} has no test `{test}`"))
}

/// Whether the suite of a file's folder makes a test of one of its functions.
fn in_suite(files: &[File], path: &str, test: &str) -> bool {
    let Some((folder, file)) = path.rsplit_once('/') else {
        return false;
    };
    let main = format!("{folder}/main.rs");
    let Some(main) = files.iter().find(|file| file.path == main) else {
        return false;
    };
    let code = main.code();
    let called = format!("{}::{test},", file.trim_end_matches(".rs"));
    code.contains("#[test] fn $") && code.lines().any(|line| line.trim() == called)
}

/// The last cell of a table's row; none for a line that is not one.
fn last_cell(line: &str) -> Option<&str> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.rsplit('|').next().unwrap_or(inner).trim())
}

fn is_rule(cell: &str) -> bool {
    !cell.is_empty() && cell.chars().all(|c| "-: ".contains(c))
}

#[cfg(test)]
mod tests {
    use super::super::findings;

    const TESTS: &str =
        "//! Tests.\n#[test]\nfn kept() {}\nfn only_a_helper() {}\n// #[test] fn gone() {}\n";

    fn with_row(cell: &str) -> Vec<String> {
        let table = format!("# Promises\n\n| promise | tests |\n|---|---|\n| A. | {cell} |\n");
        findings(&[("docs/promises.md", &table), ("crates/a/tests/a.rs", TESTS)])
    }

    #[test]
    fn a_promise_with_its_test_passes() {
        assert_eq!(
            with_row("`crates/a/tests/a.rs::kept`"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_test_that_does_not_exist_fails() {
        for (cell, why) in [
            ("`crates/a/tests/a.rs::lost`", "has no test `lost`"),
            ("`crates/a/tests/a.rs::gone`", "has no test `gone`"),
            (
                "`crates/a/tests/a.rs::only_a_helper`",
                "has no test `only_a_helper`",
            ),
            ("`crates/a/tests/b.rs::kept`", "no file crates/a/tests/b.rs"),
            ("`kept`", "is not of the form"),
            (
                "`crates/a/tests/a.rs::kept`, `crates/a/tests/a.rs::lost`",
                "has no test `lost`",
            ),
            ("later", "a promise without a test"),
            ("", "a promise without a test"),
        ] {
            let found = with_row(cell);
            assert_eq!(found.len(), 1, "{cell}: {found:?}");
            assert!(found[0].starts_with("docs/promises.md:5: "), "{found:?}");
            assert!(found[0].contains(why), "{found:?}");
        }
    }

    #[test]
    fn a_function_that_a_suite_makes_a_test_of_counts() {
        let suite = "//! A suite.\nmacro_rules! each { ($m:ident) => { #[test] fn $m() {} } }\n\
                     each!(\n    rows::shared,\n    // rows::dropped,\n);\n";
        let rows = "//! Rows.\npub fn shared() {}\npub fn dropped() {}\n";
        let promise = |test: &str| {
            let table = format!(
                "| promise | tests |\n|---|---|\n| A. | `crates/a/tests/c/rows.rs::{test}` |\n"
            );
            findings(&[
                ("docs/promises.md", &table),
                ("crates/a/tests/c/main.rs", suite),
                ("crates/a/tests/c/rows.rs", rows),
            ])
            .len()
        };
        assert_eq!(promise("shared"), 0);
        assert_eq!(promise("dropped"), 1);
    }

    #[test]
    fn a_table_without_the_column_fails() {
        let table = "| promise | proof |\n|---|---|\n";
        let found = findings(&[("docs/promises.md", table)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("not `tests`"), "{found:?}");
    }
}
