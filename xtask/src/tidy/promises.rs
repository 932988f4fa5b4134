//! Checks that every promise of `docs/promises/` names tests that exist.
//!
//! The format: a promise is an item of a list, and its tests are items below it:
//! `path/to/file.rs::test_name` in backticks, the path relative to the project's root. The file
//! must exist and must have a function of that name with a test attribute. A function without
//! one counts if the suite in its folder makes a test of it for each implementation: a macro in
//! `main.rs` that writes `#[test] fn $…` and is called with `module::test_name`. A promise
//! without a test fails. `README.md` describes the folder and is not checked.

use super::rust::functions;
use super::{File, Report};

const FOLDER: &str = "docs/promises/";
const INDEX: &str = "docs/promises/README.md";

pub(super) fn check(files: &[File], report: &mut Report) {
    let pages = files.iter().filter(|file| {
        file.path.starts_with(FOLDER) && file.has_extension(&["md"]) && file.path != INDEX
    });
    for page in pages {
        check_page(files, page, report);
    }
}

fn check_page(files: &[File], page: &File, report: &mut Report) {
    // The line of the last promise, as long as no test of it was read.
    let mut untested = None;
    let mut in_promise = false;
    for (index, text) in page.text.lines().enumerate() {
        let line = index + 1;
        if text.starts_with("- ") {
            fail_untested(page, untested.replace(line), report);
            in_promise = true;
        } else if let Some(item) = text.strip_prefix("  - ") {
            untested = None;
            let wrong = match name_of(item) {
                _ if !in_promise => Some("a test without a promise above it".to_string()),
                Some(name) => missing(files, name),
                None => Some(format!("`{item}` is not one test in backticks")),
            };
            if let Some(wrong) = wrong {
                let remedy = "write the test, or name the one that shows the promise";
                report.fail(page, line, wrong, remedy);
            }
        } else if text.starts_with('|') {
            let remedy = "write each promise as an item of a list, with its tests below it";
            report.fail(page, line, "a table".to_string(), remedy);
        } else if !text.starts_with(' ') {
            fail_untested(page, untested.take(), report);
            in_promise = false;
        }
    }
    fail_untested(page, untested, report);
}

fn fail_untested(page: &File, line: Option<usize>, report: &mut Report) {
    if let Some(line) = line {
        let wrong = "a promise without a test".to_string();
        let remedy = "name its test below it, or take the promise back";
        report.fail(page, line, wrong, remedy);
    }
}

/// The name of a test in an item that consists of one name in backticks.
fn name_of(item: &str) -> Option<&str> {
    let name = item.strip_prefix('`')?.strip_suffix('`')?;
    (!name.contains('`')).then_some(name)
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

#[cfg(test)]
mod tests {
    use super::super::findings;

    const TESTS: &str =
        "//! Tests.\n#[test]\nfn kept() {}\nfn only_a_helper() {}\n// #[test] fn gone() {}\n";

    fn with_items(items: &str) -> Vec<String> {
        let page = format!("# Parts\n\nOf parts.\n\n- It works,\n  always.\n{items}");
        let readme = "# Promises\n\n- [Parts](parts.md): one item without tests\n";
        findings(&[
            ("docs/promises/README.md", readme),
            ("docs/promises/parts.md", &page),
            ("crates/a/tests/a.rs", TESTS),
        ])
    }

    #[test]
    fn a_promise_with_its_test_passes() {
        let kept = "  - `crates/a/tests/a.rs::kept`\n";
        let second = format!("{kept}{kept}- More.\n{kept}\nAn end.\n");
        for items in [kept, &second] {
            assert_eq!(with_items(items), Vec::<String>::new(), "{items}");
        }
    }

    #[test]
    fn a_test_that_does_not_exist_fails() {
        for (item, why) in [
            ("`crates/a/tests/a.rs::lost`", "has no test `lost`"),
            ("`crates/a/tests/a.rs::gone`", "has no test `gone`"),
            (
                "`crates/a/tests/a.rs::only_a_helper`",
                "has no test `only_a_helper`",
            ),
            ("`crates/a/tests/b.rs::kept`", "no file crates/a/tests/b.rs"),
            ("`kept`", "is not of the form"),
            (
                "`crates/a/tests/a.rs::kept`, `crates/a/tests/a.rs::kept`",
                "is not one test in backticks",
            ),
            ("later", "is not one test in backticks"),
        ] {
            let found = with_items(&format!("  - {item}\n"));
            assert_eq!(found.len(), 1, "{item}: {found:?}");
            let place = "docs/promises/parts.md:7: ";
            assert!(found[0].starts_with(place), "{found:?}");
            assert!(found[0].contains(why), "{found:?}");
        }
    }

    #[test]
    fn a_promise_without_a_test_fails() {
        let kept = "  - `crates/a/tests/a.rs::kept`\n";
        for (items, line) in [
            (String::new(), 5),
            ("\nLater.\n".to_string(), 5),
            (format!("- More.\n{kept}"), 5),
            (format!("{kept}- More.\n"), 8),
            (format!("{kept}- More.\n\n## Others\n"), 8),
        ] {
            let found = with_items(&items);
            assert_eq!(found.len(), 1, "{items}: {found:?}");
            let expected = format!("docs/promises/parts.md:{line}: a promise without a test");
            assert!(found[0].starts_with(&expected), "{found:?}");
        }
    }

    #[test]
    fn tables_and_tests_without_a_promise_fail() {
        let kept = "  - `crates/a/tests/a.rs::kept`\n";
        let found = with_items(&format!("{kept}\nOthers:\n{kept}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains(":10: a test without a promise"),
            "{found:?}"
        );
        let found = with_items(&format!("{kept}\n| promise | tests |\n"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(":9: a table"), "{found:?}");
    }

    #[test]
    fn a_function_that_a_suite_makes_a_test_of_counts() {
        let suite = "//! A suite.\nmacro_rules! each { ($m:ident) => { #[test] fn $m() {} } }\n\
                     each!(\n    rows::shared,\n    // rows::dropped,\n);\n";
        let rows = "//! Rows.\npub fn shared() {}\npub fn dropped() {}\n";
        let promise = |test: &str| {
            let page = format!("- A.\n  - `crates/a/tests/c/rows.rs::{test}`\n");
            findings(&[
                ("docs/promises/rows.md", &page),
                ("crates/a/tests/c/main.rs", suite),
                ("crates/a/tests/c/rows.rs", rows),
            ])
            .len()
        };
        assert_eq!(promise("shared"), 0);
        assert_eq!(promise("dropped"), 1);
    }
}
