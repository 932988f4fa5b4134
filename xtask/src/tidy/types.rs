//! Checks types: a bounded size, and one name for one type.
//!
//! The size of a type is the number of lines of its `impl` blocks in one crate, in however many
//! files. A name counts as used twice if two places of [`ONE_NAME_CRATES`] define it, unless the
//! second definition has a `cfg` of its own. Test code is not counted. Like [`super::rust`], this
//! module counts brackets and does not parse.

use super::production::shipped;
use super::rust::{body_end, is_word};
use super::{File, Report};
use std::collections::{BTreeMap, BTreeSet};

const IMPL_LINES: usize = 900;

/// The crates whose types are checked. The other crates are independent of them and have names of
/// their own.
const ONE_NAME_CRATES: [&str; 5] = [
    "crates/store/",
    "crates/core/",
    "crates/net/",
    "crates/mirror/",
    "crates/gapless/",
];
/// Names that several types may have: private data behind a lock, and types that are
/// always written with their module.
const SHARED_NAMES: [&str; 3] = ["Inner", "Error", "Settings"];
const DEFINITIONS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

pub(super) fn check(files: &[File], report: &mut Report) {
    let shipped = shipped(files);
    check_sizes(&shipped, report);
    check_names(&shipped, report);
}

/// The `impl` blocks of one type.
struct Size<'a> {
    first: (&'a File, usize),
    lines: usize,
    files: BTreeSet<&'a str>,
}

fn check_sizes(shipped: &[&File], report: &mut Report) {
    let mut sizes: BTreeMap<(&str, &str), Size> = BTreeMap::new();
    for file in shipped {
        if !ONE_NAME_CRATES.contains(&crate_of(&file.path)) {
            continue;
        }
        for block in impls(file.production_code()) {
            // Types with a shared name are private to their file.
            let scope = if SHARED_NAMES.contains(&block.name) {
                &file.path
            } else {
                crate_of(&file.path)
            };
            let size = sizes.entry((scope, block.name)).or_insert(Size {
                first: (file, block.line),
                lines: 0,
                files: BTreeSet::new(),
            });
            size.lines += block.lines;
            size.files.insert(&file.path);
        }
    }
    for ((_, name), size) in sizes {
        if size.lines > IMPL_LINES {
            let (lines, files) = (size.lines, size.files.len());
            let wrong = format!(
                "`{name}` has {lines} lines of impl in {files} files, more than {IMPL_LINES}"
            );
            let (file, line) = size.first;
            report.fail(file, line, wrong, "split the type by topic");
        }
    }
}

fn check_names(shipped: &[&File], report: &mut Report) {
    let mut first: BTreeMap<&str, (&File, usize)> = BTreeMap::new();
    let mut noted = BTreeSet::new();
    for file in shipped {
        let folder = crate_of(&file.path);
        if !ONE_NAME_CRATES.contains(&folder) {
            continue;
        }
        for (line, name) in definitions(file.production_code()) {
            if SHARED_NAMES.contains(&name) {
                continue;
            }
            let (earlier, at) = *first.entry(name).or_insert((file, line));
            let elsewhere = (&earlier.path, at) != (&file.path, line);
            if elsewhere && !is_conditional(file, line) && noted.insert((name, folder)) {
                let wrong = format!("`{name}` is also a type of {}:{at}", earlier.path);
                report.fail(file, line, wrong, "rename one of the two");
            }
        }
    }
}

/// Whether the line before a definition is a `cfg`: the other definition is for another case.
fn is_conditional(file: &File, line: usize) -> bool {
    let before = line.checked_sub(2);
    let before = before.and_then(|before| file.code().lines().nth(before));
    before.is_some_and(|before| before.trim_start().starts_with("#[cfg("))
}

/// The folder of the crate that holds a path: everything before `src/`.
fn crate_of(path: &str) -> &str {
    path.find("src/").map_or("", |at| &path[..at])
}

#[derive(Debug, PartialEq, Eq)]
struct Impl<'a> {
    name: &'a str,
    line: usize,
    lines: usize,
}

/// Every `impl` block and its type. `code` must be output of [`super::rust::code_only`].
fn impls(code: &str) -> Vec<Impl<'_>> {
    let lines_between = |from: usize, to: usize| code[from..to].matches('\n').count();
    words(code, "impl")
        .filter(|start| starts_item(&code[..*start]))
        .filter_map(|start| {
            let end = body_end(code.as_bytes(), start)?;
            let head = code[start + "impl".len()..end].split('{').next()?;
            Some(Impl {
                name: implementor(head)?,
                line: lines_between(0, start) + 1,
                lines: lines_between(start, end) + 1,
            })
        })
        .collect()
}

/// Whether an item may start after this code. If not, `impl` is part of a type.
fn starts_item(before: &str) -> bool {
    let before = before.trim_end();
    let before = before.strip_suffix("unsafe").unwrap_or(before).trim_end();
    before.is_empty() || before.ends_with(['{', '}', ';', ']'])
}

/// The name of the type in the head of an `impl`, which starts after that word.
fn implementor(head: &str) -> Option<&str> {
    let head = if head.starts_with('<') {
        &head[angles_end(head)..]
    } else {
        head
    };
    let head = words(head, "where").next().map_or(head, |at| &head[..at]);
    // Lifetimes of `for<'a>` are not followed by a blank.
    let head = head.rsplit_once(" for ").map_or(head, |(_, name)| name);
    let generics = head.find('<').unwrap_or(head.len());
    head[..generics]
        .rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .find(|word| !word.is_empty())
}

/// The end of the angle brackets that open at the start of the text.
fn angles_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0usize;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// The names of the types that the code defines, with their lines. Aliases inside an
/// `impl` or a trait are indented and do not count.
fn definitions(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for keyword in DEFINITIONS {
            let alias = keyword == "type";
            let Some(at) = words(line, keyword).next() else {
                continue;
            };
            let rest = line[at + keyword.len()..].trim_start();
            let length = rest.bytes().take_while(|byte| is_word(*byte)).count();
            let capitalised = rest.starts_with(|c: char| c.is_ascii_uppercase());
            if capitalised && !(alias && line.starts_with(' ')) {
                found.push((index + 1, &rest[..length]));
            }
        }
    }
    found
}

/// The positions at which a word occurs in the text as a whole word.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = text.as_bytes();
    let starts = text.match_indices(word).map(|(at, _)| at);
    starts.filter(move |at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let after = bytes.get(at + word.len());
        !before.is_some_and(|byte| is_word(*byte)) && !after.is_some_and(|byte| is_word(*byte))
    })
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    #[test]
    fn an_impl_names_its_type() {
        for (head, name) in [
            ("impl A", "A"),
            ("impl<T> A<T>", "A"),
            ("impl<F: Fn(u8) -> Vec<u8>> A<F>", "A"),
            ("impl fmt::Display for crate::b::A", "A"),
            (
                "impl<'a, T> From<&'a B<T>> for A<'a, T> where T: Into<C>",
                "A",
            ),
            (
                "impl<T> B for &mut A<T>\nwhere\n    T: for<'a> Fn(&'a u8),\n",
                "A",
            ),
            ("unsafe impl Send for A", "A"),
            ("#[cfg(unix)]\nimpl A", "A"),
            ("impl PartialEq<str> for A", "A"),
        ] {
            let code = format!("use b;\n{head} {{\n    fn f() {{}}\n}}\n");
            let found = impls(&code);
            assert_eq!(found.len(), 1, "{head}");
            assert_eq!(found[0].name, name, "{head}");
        }
    }

    #[test]
    fn an_impl_has_a_place_and_a_length() {
        let code = "struct A;\n\nimpl A {\n    fn f(x: impl B) -> impl C {\n        {}\n    }\n}\n\
                    fn g() -> impl B {}\nimpl B for A {}\n";
        let found: Vec<_> = impls(code).iter().map(|i| (i.line, i.lines)).collect();
        assert_eq!(found, [(3, 5), (9, 1)]);
    }

    #[test]
    fn a_large_type_fails_whatever_files_it_is_in() {
        let block = |lines: usize| format!("//! A.\nimpl A {{{}}}\n", "\n".repeat(lines - 1));
        let tests = format!("//! T.\n#[cfg(test)]\nimpl A {{{}}}\n", "\n".repeat(400));
        let files = |second: usize| {
            findings(&[
                ("crates/net/src/a.rs", &block(450)),
                ("crates/net/src/b.rs", &block(second)),
                ("crates/net/src/c.rs", &tests),
                ("crates/net/src/b/tests.rs", &block(450)),
                ("crates/core/src/a.rs", &block(450)),
            ])
        };
        assert_eq!(files(450), Vec::<String>::new());
        assert_eq!(
            files(451),
            [
                "crates/net/src/a.rs:2: `A` has 901 lines of impl in 2 files, more than 900; \
              split the type by topic"
            ]
        );
    }

    #[test]
    fn types_with_a_shared_name_are_measured_file_by_file() {
        let block = format!("//! A.\nimpl Inner {{{}}}\n", "\n".repeat(490));
        let files = [
            ("crates/net/src/a.rs", block.as_str()),
            ("crates/net/src/b.rs", &block),
        ];
        assert_eq!(findings(&files), Vec::<String>::new());
    }

    #[test]
    fn a_name_of_two_types_fails_once_for_each_crate() {
        let files = [
            ("crates/core/src/a.rs", "//! A.\npub struct Told(u8);\n"),
            (
                "crates/gapless/src/a.rs",
                "//! A.\npub(crate) enum Told<T> {\n    A(T),\n}\nmod b {\n    struct Told;\n}\n",
            ),
            ("crates/store/src/a.rs", "//! A.\npub type Told = u8;\n"),
            (
                "crates/net/src/a.rs",
                "//! A.\nstruct Kept;\n#[cfg(unix)]\nstruct Kept;\nmod b {\n    struct Kept;\n}\n",
            ),
        ];
        assert_eq!(
            findings(&files),
            [
                "crates/gapless/src/a.rs:2: `Told` is also a type of crates/core/src/a.rs:2; \
                 rename one of the two",
                "crates/store/src/a.rs:2: `Told` is also a type of crates/core/src/a.rs:2; \
                 rename one of the two",
                "crates/net/src/a.rs:6: `Kept` is also a type of crates/net/src/a.rs:2; \
                 rename one of the two",
            ]
        );
    }

    #[test]
    fn other_repeated_names_are_no_concern() {
        let text = "//! A.\nstruct Inner;\nenum Error {}\ntrait Settings {}\nstruct Own;\n\
                    impl Iterator for Own {\n    type Item = u8;\n}\n#[cfg(test)]\nstruct Made;\n\
                    // struct Word;\n";
        let other = text.replace("Own", "Other");
        let files = [
            ("crates/core/src/a.rs", text),
            ("crates/store/src/a.rs", &other),
            ("crates/testnet/src/a.rs", text),
            ("crates/gapless/tests/a.rs", text),
        ];
        assert_eq!(findings(&files), Vec::<String>::new());
    }

    #[test]
    fn unfinished_source_ends_quietly() {
        for source in [
            "impl",
            "impl A {",
            "impl<A",
            "struct",
            "impl<> {}",
            "impl {}",
        ] {
            impls(source);
            definitions(source);
        }
    }
}
