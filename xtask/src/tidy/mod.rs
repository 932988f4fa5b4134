//! `cargo xtask tidy`: runs checks that no compiler makes, over every file that git tracks or
//! would track.
//!
//! The checks are quick and work offline. Each finding names the file, the line, what is wrong
//! and what to do; with a finding, the exit code is 1. Notes do not fail: they name files and
//! functions that are long but not too long, and breaches of rules that the tree does not keep
//! everywhere yet.

mod errors;
mod glossary;
mod imports;
mod layers;
mod links;
mod metrics;
mod mutants;
mod production;
mod promises;
mod prose;
mod rust;
mod sockets;
mod sources;
mod text;
mod types;
mod walks;

use crate::process::{Failure, project_listing, root};
use std::cell::OnceCell;
use std::fmt;
use std::fs;

/// One file of the project; `text` is empty for what is not UTF-8 text.
pub(crate) struct File {
    pub path: String,
    pub text: String,
    code: OnceCell<String>,
    production_code: OnceCell<String>,
}

impl File {
    fn new(path: &str, text: String) -> File {
        File {
            path: path.to_string(),
            text,
            code: OnceCell::new(),
            production_code: OnceCell::new(),
        }
    }

    /// The text without comments and strings. Line breaks and positions stay.
    fn code(&self) -> &str {
        self.code.get_or_init(|| rust::code_only(&self.text))
    }

    /// The code without comments, strings and items that only tests compile.
    fn production_code(&self) -> &str {
        self.production_code
            .get_or_init(|| production::without_tests(self.code()))
    }

    fn has_extension(&self, extensions: &[&str]) -> bool {
        self.path
            .rsplit_once('.')
            .is_some_and(|(_, extension)| extensions.contains(&extension))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    wrong: String,
    remedy: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            path,
            line,
            wrong,
            remedy,
        } = self;
        write!(f, "{path}:{line}: {wrong}; {remedy}")
    }
}

/// The results of the checks: findings, which fail, and notes, which do not.
#[derive(Debug, Default)]
pub(crate) struct Report {
    findings: Vec<Finding>,
    notes: Vec<Finding>,
}

impl Report {
    fn fail(&mut self, file: &File, line: usize, wrong: String, remedy: &'static str) {
        self.findings.push(Finding {
            path: file.path.clone(),
            line,
            wrong,
            remedy,
        });
    }

    fn note(&mut self, file: &File, line: usize, wrong: String, remedy: &'static str) {
        self.notes.push(Finding {
            path: file.path.clone(),
            line,
            wrong,
            remedy,
        });
    }
}

pub(crate) fn run(_arguments: &[String]) -> Result<(), Failure> {
    let files = read_files(&project_listing()?)?;
    let report = check(&files);
    for note in &report.notes {
        println!("note: {note}");
    }
    if report.findings.is_empty() {
        println!("{} files are tidy", files.len());
        return Ok(());
    }
    let lines: Vec<String> = report.findings.iter().map(Finding::to_string).collect();
    Err(Failure::check(format!(
        "{}\n{} findings",
        lines.join("\n"),
        lines.len()
    )))
}

fn check(files: &[File]) -> Report {
    let mut report = Report::default();
    for file in files {
        sockets::check(file, &mut report);
        sources::check(file, &mut report);
        text::check(file, &mut report);
        prose::check(file, &mut report);
    }
    layers::check(files, &mut report);
    links::check(files, &mut report);
    promises::check(files, &mut report);
    glossary::check(files, &mut report);
    walks::check(files, &mut report);
    mutants::check(files, &mut report);
    metrics::check(files, &mut report);
    errors::check(files, &mut report);
    types::check(files, &mut report);
    report
}

/// The files of a listing whose paths end in a zero byte each.
fn read_files(listing: &str) -> Result<Vec<File>, Failure> {
    let mut files = Vec::new();
    for path in listing.split('\0').filter(|path| !path.is_empty()) {
        let full = root().join(path);
        // A deleted file that is still in the index, or a link to a folder, has no text.
        if !full.is_file() {
            continue;
        }
        let bytes = fs::read(&full).map_err(|e| Failure::check(format!("{path}: {e}")))?;
        let text = match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => text,
            _ => String::new(),
        };
        files.push(File::new(path, text));
    }
    Ok(files)
}

/// A tree of files for the tests of the checks.
#[cfg(test)]
pub(crate) fn tree(files: &[(&str, &str)]) -> Vec<File> {
    files
        .iter()
        .map(|(path, text)| File::new(path, text.to_string()))
        .collect()
}

/// The findings of all checks over such a tree, as a person would read them.
#[cfg(test)]
pub(crate) fn findings(files: &[(&str, &str)]) -> Vec<String> {
    check(&tree(files))
        .findings
        .iter()
        .map(Finding::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_files_are_read_and_deleted_ones_passed_over() {
        let files = read_files("xtask/src/tidy/mod.rs\0xtask/src/gone.rs\0").unwrap();
        assert_eq!(files.len(), 1);
        assert!(files[0].text.starts_with("//! `cargo xtask tidy`"));
    }

    #[test]
    fn a_finding_says_where_what_and_what_to_do() {
        let found = findings(&[("src/a.rs", "fn a() {}\n")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("src/a.rs:1: "), "{}", found[0]);
        assert!(found[0].contains("; "), "{}", found[0]);
    }

    #[test]
    fn a_clean_tree_has_no_findings() {
        let clean = [
            ("src/a.rs", "//! A.\n\n/// Does it.\nfn a() {}\n"),
            ("README.md", "# A\n\nSee [the code](src/a.rs).\n"),
            ("picture.png", ""),
        ];
        assert_eq!(findings(&clean), Vec::<String>::new());
    }
}
