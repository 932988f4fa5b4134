//! Finds the code that ships: Rust source without the items that only tests compile.
//!
//! Test code is an item below `#[cfg(test)]`, a file `tests.rs`, everything in a
//! folder `tests`, and a file that is declared by `#[cfg(test)] mod name;`. An item
//! below `#[cfg(any(test, …))]` also exists without tests and counts as shipped.
//! Like [`super::rust`], this counts brackets instead of parsing.

use super::File;
use super::rust::is_word;
use std::collections::BTreeSet;

const TEST_FILE: &str = "#![cfg(test)]";
const TEST_ITEMS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test,"];

/// The Rust files that ship, in the order of `files`.
pub(super) fn shipped(files: &[File]) -> Vec<&File> {
    let sources = || files.iter().filter(|file| file.has_extension(&["rs"]));
    let declared: BTreeSet<String> = sources().flat_map(test_modules).collect();
    sources()
        .filter(|file| {
            let path = file.path.as_str();
            let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
            let stem = path.strip_suffix(".rs").unwrap_or(path);
            !is_test_path(path)
                && !declared.contains(stem)
                && !folders.into_iter().any(|folder| declared.contains(folder))
        })
        .collect()
}

/// Whether the name of a file or of a folder above it says that it holds tests.
pub(super) fn is_test_path(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// The paths, without extension, of the modules that a file declares for tests only.
fn test_modules(file: &File) -> Vec<String> {
    let code = file.code();
    let home = child_folder(&file.path);
    let ends = TEST_ITEMS
        .iter()
        .flat_map(|mark| code.match_indices(mark))
        .map(|(start, _)| &code[start..item_end(code, start)]);
    ends.filter_map(|item| {
        let declaration = item.strip_suffix(';')?;
        let (before, name) = declaration.rsplit_once(char::is_whitespace)?;
        let is_module = before.trim_end().ends_with("mod") && name.bytes().all(is_word);
        is_module.then(|| format!("{home}/{name}"))
    })
    .collect()
}

/// The folder of the modules that a file declares.
fn child_folder(path: &str) -> &str {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    if ["lib.rs", "main.rs", "mod.rs"].contains(&name) {
        folder
    } else {
        path.trim_end_matches(".rs")
    }
}

/// Replaces the items that only tests compile by blanks. Line breaks and byte positions stay.
/// `code` must be output of [`super::rust::code_only`].
pub(super) fn without_tests(code: &str) -> String {
    let mut kept = code.as_bytes().to_vec();
    if code.contains(TEST_FILE) {
        blank(&mut kept);
    }
    for mark in TEST_ITEMS {
        for (start, _) in code.match_indices(mark) {
            blank(&mut kept[start..item_end(code, start)]);
        }
    }
    // Items begin and end at ASCII bytes, so no character was cut.
    String::from_utf8(kept).unwrap_or_default()
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// The end of the item with attributes at `start`: after its `;`, after its body or, for a field
/// or a variant, after its comma.
fn item_end(code: &str, start: usize) -> usize {
    let bytes = code.as_bytes();
    let start = after_attributes(bytes, start);
    let is_statement = is_statement(&code[start..]);
    let mut depth = 0usize;
    for (at, byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => return at,
            b')' | b']' => depth -= 1,
            b'}' => {
                depth -= 1;
                if depth == 0 && !is_statement {
                    return at + 1;
                }
            }
            b';' if depth == 0 => return at + 1,
            b',' if depth == 0 && is_field(&code[start..at]) => return at + 1,
            _ => {}
        }
    }
    bytes.len()
}

/// The first byte that belongs neither to an attribute nor to the blanks after it.
fn after_attributes(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while bytes[at..].starts_with(b"#[") {
        let mut depth = 0;
        while at < bytes.len() {
            match bytes[at] {
                b'[' => depth += 1,
                b']' => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 && bytes[at - 1] == b']' {
                break;
            }
        }
        while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
    }
    at
}

/// Whether an item ends with a semicolon even if it has braces.
fn is_statement(item: &str) -> bool {
    let mut words = keywords(item);
    match words.next() {
        Some("use" | "static" | "type" | "let") => true,
        Some("const") => !matches!(words.next(), Some("fn" | "unsafe" | "async" | "extern")),
        _ => false,
    }
}

/// Whether the text before a comma is a field or a variant, not a part of generics.
fn is_field(before: &str) -> bool {
    let items = [
        "fn", "impl", "struct", "enum", "union", "trait", "unsafe", "async", "extern", "const",
        "type", "use", "static", "let",
    ];
    !keywords(before)
        .next()
        .is_some_and(|word| items.contains(&word))
}

/// The words of an item after its visibility.
fn keywords(item: &str) -> impl Iterator<Item = &str> {
    let rest = item.strip_prefix("pub").unwrap_or(item).trim_start();
    let rest = match rest.strip_prefix('(') {
        Some(inner) => inner.split_once(')').map_or("", |(_, rest)| rest),
        None => rest,
    };
    rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn words(source: &str) -> Vec<String> {
        without_tests(source)
            .split_whitespace()
            .map(str::to_string)
            .collect()
    }

    #[test]
    fn an_item_for_tests_vanishes_and_the_next_one_stays() {
        for item in [
            "mod tests { use a::b; fn x() { { } } }",
            "mod tests;",
            "pub(crate) mod tests ;",
            "use a::{b, c};",
            "const A: [u8; 2] = { [1, 2] };",
            "const fn a() -> u8 { 1 }",
            "pub fn a<T, U>(x: [T; 2], y: U) -> [u8; { 1 }] { x }",
            "impl<A, B> X<A, B> { fn a() {} }",
            "#[allow(dead_code)]\nstruct A(u8, u8);",
            "let a = B { c };",
            "field: u8,",
            "Variant { a: u8 }",
        ] {
            let source = format!("before\n#[cfg(test)]\n{item}\nafter");
            assert_eq!(words(&source), ["before", "after"], "{item}");
            assert_eq!(without_tests(&source).len(), source.len());
        }
        assert_eq!(
            words("{ #[cfg(test)] last: u8 } after"),
            ["{", "}", "after"]
        );
    }

    #[test]
    fn what_also_ships_stays() {
        let both = "#[cfg(any(test, feature))] mod a;";
        assert_eq!(words(both).last().map(String::as_str), Some("a;"));
        let both = "#[cfg(all(test, feature))] mod a; b";
        assert_eq!(words(both), ["b"]);
        assert_eq!(words("#![cfg(test)]\nuse a;"), Vec::<String>::new());
    }

    #[test]
    fn files_of_tests_are_left_out_whatever_they_are_called() {
        let files = tree(&[
            (
                "c/src/lib.rs",
                "mod a;\n#[cfg(test)]\nmod arbitrary;\n#[cfg(test)]\npub mod made;\n",
            ),
            (
                "c/src/a.rs",
                "#[cfg(test)]\nmod checks;\n#[cfg(test)]\nmod tests;\n",
            ),
            ("c/src/a/checks.rs", ""),
            ("c/src/a/tests.rs", ""),
            ("c/src/a/tests/deep.rs", ""),
            ("c/src/arbitrary.rs", ""),
            ("c/src/made/mod.rs", ""),
            ("c/src/b/arbitrary.rs", ""),
            ("c/tests/outside.rs", ""),
            ("c/notes.md", ""),
        ]);
        let paths: Vec<&str> = shipped(&files).iter().map(|f| f.path.as_str()).collect();
        assert_eq!(
            paths,
            ["c/src/lib.rs", "c/src/a.rs", "c/src/b/arbitrary.rs"]
        );
    }

    #[test]
    fn unfinished_source_ends_quietly() {
        for source in [
            "#[cfg(test)]",
            "#[cfg(test)] mod",
            "#[cfg(test)] fn a() {",
            "#[cfg(all(test,",
        ] {
            without_tests(source);
        }
    }
}
