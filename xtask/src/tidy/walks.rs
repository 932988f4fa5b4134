//! Checks the walks of `ARCHITECTURE.md`: the functions that a commit, a repair and a request
//! for a repository pass through, in order.
//!
//! The format: a section `## Walks` with a subsection for each of [`WALKS`], and in it a
//! numbered list. Each step names at least one function, as `path/file.rs::function` in
//! backticks, the path relative to the project's root. Each file must exist and its production
//! code must define the function. The number of distinct files and of hops of a walk is limited;
//! a hop is a function in another file than the function before it.

use super::rust::is_word;
use super::{File, Report};
use std::collections::BTreeSet;

const DOCUMENT: &str = "ARCHITECTURE.md";
const SECTION: &str = "## Walks";

/// A walk that the document must have, and its limits.
struct Limits {
    /// A text that the title of the subsection contains, in lower case.
    title: &'static str,
    files: usize,
    hops: usize,
}

const WALKS: [Limits; 3] = [
    Limits {
        title: "live record",
        files: 25,
        hops: 30,
    },
    Limits {
        title: "repair",
        files: 24,
        hops: 40,
    },
    Limits {
        title: "getrepo",
        files: 18,
        hops: 28,
    },
];

pub(super) fn check(files: &[File], report: &mut Report) {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else {
        return;
    };
    let lines = || document.text.lines().enumerate();
    let Some((start, _)) = lines().find(|(_, line)| line.trim_end() == SECTION) else {
        let wrong = format!("no section `{SECTION}`");
        report.fail(document, 1, wrong, "write the walks of the main paths");
        return;
    };
    let section = lines().skip(start + 1);
    let section = section.take_while(|(_, line)| !line.starts_with("## "));
    let mut walks: Vec<Walk> = Vec::new();
    for (index, text) in section {
        if let Some(title) = text.strip_prefix("### ") {
            walks.push(Walk::new(title, index + 1));
        } else if let Some(walk) = walks.last_mut() {
            walk.read(index + 1, text);
        }
    }
    for Limits { title, .. } in WALKS {
        if !walks.iter().any(|walk| walk.title.contains(title)) {
            let wrong = format!("no walk of the {title}");
            let remedy = "write it as a numbered list below a heading of its own";
            report.fail(document, start + 1, wrong, remedy);
        }
    }
    for walk in &walks {
        walk.check(files, document, report);
    }
}

struct Walk<'a> {
    /// The title of the subsection, in lower case.
    title: String,
    line: usize,
    steps: Vec<Step<'a>>,
}

/// One item of the list, with the names in it.
struct Step<'a> {
    line: usize,
    names: Vec<(usize, &'a str)>,
}

impl<'a> Walk<'a> {
    fn new(title: &str, line: usize) -> Walk<'a> {
        Walk {
            title: title.to_lowercase(),
            line,
            steps: Vec::new(),
        }
    }

    fn read(&mut self, line: usize, text: &'a str) {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && text[digits..].starts_with(". ") {
            self.steps.push(Step {
                line,
                names: Vec::new(),
            });
        }
        if let Some(step) = self.steps.last_mut() {
            let quoted = text.split('`').skip(1).step_by(2);
            let names = quoted.filter(|name| name.contains(".rs::"));
            step.names.extend(names.map(|name| (line, name)));
        }
    }

    fn check(&self, files: &[File], document: &File, report: &mut Report) {
        let mut walked: Vec<&str> = Vec::new();
        for step in &self.steps {
            if step.names.is_empty() {
                let wrong = "a step that names no function".to_string();
                let remedy = "name it as `path/file.rs::function`";
                report.fail(document, step.line, wrong, remedy);
            }
            for (line, name) in &step.names {
                if let Some(wrong) = missing(files, name) {
                    report.fail(document, *line, wrong, "name the function that does this");
                }
                walked.extend(name.split("::").next());
            }
        }
        let Some(limits) = WALKS.iter().find(|walk| self.title.contains(walk.title)) else {
            return;
        };
        let hops = walked.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let files = walked.iter().collect::<BTreeSet<_>>().len();
        for (what, count, limit) in [("files", files, limits.files), ("hops", hops, limits.hops)] {
            if count > limit {
                let wrong = format!("{count} {what}, more than {limit}");
                let remedy = "let the data pass through fewer files";
                report.fail(document, self.line, wrong, remedy);
            }
        }
    }
}

fn missing(files: &[File], name: &str) -> Option<String> {
    let (path, function) = name.split_once("::")?;
    let Some(file) = files.iter().find(|file| file.path == path) else {
        return Some(format!("`{name}`: there is no file {path}"));
    };
    let code = file.production_code();
    let defined = code
        .match_indices(&format!("fn {function}"))
        .any(|(at, found)| {
            let after = code.as_bytes().get(at + found.len());
            !after.is_some_and(|byte| is_word(*byte))
        });
    (!defined).then(|| format!("`{name}`: {path} has no function `{function}`"))
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    const CODE: &str = "//! A.\n/// Does it.\nfn accept() {}\n#[cfg(test)]\nfn pretend() {}\n";

    fn walks(live: &str) -> String {
        let step = "1. It comes: `src/a.rs::accept`.\n";
        format!(
            "# A\n\n## Walks\n\n### A live record\n\n{live}\n### A repair\n\n{step}\n\
             ### getRepo\n\n{step}\n## Else\n\n### Live record\n\n1. `src/b.rs::lost`\n"
        )
    }

    fn check_with(document: &str) -> Vec<String> {
        findings(&[("ARCHITECTURE.md", document), ("src/a.rs", CODE)])
    }

    #[test]
    fn a_document_without_the_section_fails() {
        let found = check_with("# A\n\n## Ways\n\n1. `src/b.rs::lost`\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(":1: no section"), "{found:?}");
        assert_eq!(findings(&[("src/a.rs", CODE)]), Vec::<String>::new());
    }

    #[test]
    fn steps_that_name_functions_pass() {
        let live = "In order:\n\n1. It comes\n   (`src/a.rs::accept`), not `x`.\n\
                    2. `src/a.rs::accept`, `src/a.rs::accept`\n";
        assert_eq!(check_with(&walks(live)), Vec::<String>::new());
    }

    #[test]
    fn a_function_that_is_not_there_fails() {
        for (step, why) in [
            ("`src/b.rs::accept`", "there is no file src/b.rs"),
            ("`src/a.rs::accep`", "has no function `accep`"),
            ("`src/a.rs::pretend`", "has no function `pretend`"),
            ("`src/a.rs`", "a step that names no function"),
        ] {
            let found = check_with(&walks(&format!("1. {step}\n")));
            assert_eq!(found.len(), 1, "{step}: {found:?}");
            assert!(found[0].starts_with("ARCHITECTURE.md:7: "), "{found:?}");
            assert!(found[0].contains(why), "{found:?}");
        }
    }

    #[test]
    fn every_walk_is_there() {
        let found = check_with(&walks("").replacen("A repair", "A swim", 1));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(":3: no walk of the repair"), "{found:?}");
    }

    #[test]
    fn a_walk_through_too_many_files_fails() {
        let limits = WALKS.map(|walk| (walk.title, walk.files));
        for (title, limit) in limits {
            for (count, expected) in [(limit, 0), (limit + 1, 1)] {
                let paths: Vec<String> = (0..count).map(|i| format!("src/f{i}.rs")).collect();
                let steps: String = paths
                    .iter()
                    .map(|path| format!("1. `{path}::accept` and `{path}::accept`\n"))
                    .collect();
                let mut document = "## Walks\n".to_string();
                for other in WALKS {
                    let steps = if other.title == title { &steps } else { "" };
                    document.push_str(&format!("\n### The {}\n\n{steps}", other.title));
                }
                let mut files = vec![("ARCHITECTURE.md", document.as_str())];
                files.extend(paths.iter().map(|path| (path.as_str(), CODE)));
                let found = findings(&files);
                assert_eq!(found.len(), expected, "{title}: {found:?}");
                let wrong = format!("{count} files, more than {limit}");
                assert!(found.iter().all(|f| f.contains(&wrong)), "{found:?}");
            }
        }
    }

    #[test]
    fn a_walk_with_too_many_hops_fails() {
        for Limits { title, hops, .. } in WALKS {
            for (count, expected) in [(hops, 0), (hops + 1, 1)] {
                // Two functions of one file in a row are no hop.
                let steps: String = (0..=count)
                    .map(|i| format!("1. `src/{0}.rs::accept`, `src/{0}.rs::accept`\n", i % 2))
                    .collect();
                let mut document = "## Walks\n".to_string();
                for other in WALKS {
                    let steps = if other.title == title { &steps } else { "" };
                    document.push_str(&format!("\n### The {}\n\n{steps}", other.title));
                }
                let files = [
                    ("ARCHITECTURE.md", document.as_str()),
                    ("src/0.rs", CODE),
                    ("src/1.rs", CODE),
                ];
                let found = findings(&files);
                assert_eq!(found.len(), expected, "{title}: {found:?}");
                let wrong = format!("{count} hops, more than {hops}");
                assert!(found.iter().all(|f| f.contains(&wrong)), "{found:?}");
            }
        }
    }
}
