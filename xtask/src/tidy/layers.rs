//! Checks that the modules of a crate form layers, so that imports go one way.
//!
//! `xtask/layers.txt` lists the top-level modules of each checked crate in order; a
//! module may use only modules that are listed before it. Test code is not counted.
//! The list also names the edges that still go the wrong way. An edge that is not
//! named fails, and so does a named edge that no longer occurs: the exceptions only
//! become fewer. The list must name every module, and no other.
//!
//! `lib` in a list stands for the names that the root file itself defines. Names that the root
//! file re-exports by `pub use` count as names of their module.

use super::imports::{Import, References, Target, read};
use super::production::shipped;
use super::{File, Report};
use std::collections::{BTreeMap, BTreeSet};

const LIST: &str = "xtask/layers.txt";
/// The name that stands in a list for the names that the root file defines.
const ROOT: &str = "lib";
const ROOT_FILES: [&str; 2] = ["lib.rs", "main.rs"];
const FORMAT: &str = "the head of xtask/layers.txt describes the format";
const CUT: &str = "move what both need into a lower module, or pass it in as an argument";

pub(super) fn check(files: &[File], report: &mut Report) {
    let Some(list) = files.iter().find(|file| file.path == LIST) else {
        return;
    };
    let parsed = match parse(&list.text) {
        Ok(parsed) => parsed,
        Err((line, wrong)) => return report.fail(list, line, wrong, FORMAT),
    };
    let shipped = shipped(files);
    for layers in &parsed {
        check_crate(&shipped, list, layers, report);
    }
}

/// The layers of one crate, as the list has them.
#[derive(Debug, PartialEq, Eq)]
struct Layers {
    folder: String,
    line: usize,
    /// The modules in order, each with its line in the list.
    modules: Vec<(String, usize)>,
    exceptions: Vec<Exception>,
}

#[derive(Debug, PartialEq, Eq)]
struct Exception {
    from: String,
    to: String,
    line: usize,
}

impl Layers {
    /// The position of a module in the order.
    fn rank(&self, module: &str) -> Option<usize> {
        self.modules.iter().position(|(name, _)| name == module)
    }
}

/// Parses the list. An error has the number of its line.
fn parse(text: &str) -> Result<Vec<Layers>, (usize, String)> {
    let mut crates: Vec<Layers> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let wrong = |what: String| Err((number, what));
        match words[..] {
            [] => {}
            ["crate", folder] => {
                if crates.iter().any(|layers| layers.folder == folder) {
                    return wrong(format!("the crate `{folder}` is listed twice"));
                }
                crates.push(Layers {
                    folder: folder.to_string(),
                    line: number,
                    modules: Vec::new(),
                    exceptions: Vec::new(),
                });
            }
            _ => {
                let Some(layers) = crates.last_mut() else {
                    return wrong("a list starts with `crate FOLDER`".to_string());
                };
                read_line(layers, number, &words).map_err(|what| (number, what))?;
            }
        }
    }
    Ok(crates)
}

fn read_line(layers: &mut Layers, line: usize, words: &[&str]) -> Result<(), String> {
    match words {
        ["except", from, "->", to] => {
            let known = |module: &str| match layers.rank(module) {
                Some(rank) => Ok(rank),
                None => Err(format!("the exception names `{module}`, no module above")),
            };
            if known(to)? <= known(from)? {
                return Err(format!(
                    "`{from} -> {to}` needs no exception: `{to}` is listed before `{from}`"
                ));
            }
            let named = layers.exceptions.iter();
            if named.into_iter().any(|e| e.from == *from && e.to == *to) {
                return Err(format!("the exception `{from} -> {to}` is there twice"));
            }
            layers.exceptions.push(Exception {
                from: from.to_string(),
                to: to.to_string(),
                line,
            });
        }
        ["except" | "crate", ..] => return Err(format!("`{}` is not understood", words.join(" "))),
        modules => {
            for module in modules {
                if layers.rank(module).is_some() {
                    return Err(format!("the module `{module}` is listed twice"));
                }
                layers.modules.push((module.to_string(), line));
            }
        }
    }
    Ok(())
}

/// One use of a module by another one.
struct Edge<'a> {
    from: String,
    to: String,
    file: &'a File,
    line: usize,
}

fn check_crate(shipped: &[&File], list: &File, layers: &Layers, report: &mut Report) {
    let source = Source::of(shipped, &layers.folder);
    if source.files.is_empty() {
        let wrong = format!("there is no crate `{}`", layers.folder);
        return report.fail(list, layers.line, wrong, "correct its folder");
    }
    let modules = source.modules();
    for module in &modules {
        if layers.rank(module).is_none() {
            let wrong = format!(
                "{} has a module `{module}`, which is not listed",
                layers.folder
            );
            let remedy = "list it after every module that it uses";
            report.fail(list, layers.line, wrong, remedy);
        }
    }
    for (module, line) in &layers.modules {
        if module != ROOT && !modules.contains(module.as_str()) {
            let wrong = format!("{} has no module `{module}`", layers.folder);
            report.fail(list, *line, wrong, "take it out of the list");
        }
    }
    let edges = source.edges(&modules, report);
    for edge in &edges {
        check_edge(layers, edge, report);
    }
    for exception in &layers.exceptions {
        let Exception { from, to, line } = exception;
        let occurs = edges
            .iter()
            .any(|edge| edge.from == *from && edge.to == *to);
        if !occurs {
            let wrong = format!("`{from} -> {to}` no longer occurs in {}", layers.folder);
            report.fail(list, *line, wrong, "take the exception out of the list");
        }
    }
}

fn check_edge(layers: &Layers, edge: &Edge<'_>, report: &mut Report) {
    let Edge { from, to, .. } = edge;
    if to == ROOT && layers.rank(ROOT).is_none() {
        let wrong = format!(
            "`{from}` uses what the root file of {} defines",
            layers.folder
        );
        let remedy = "move it into a module, or list `lib` in xtask/layers.txt";
        return report.fail(edge.file, edge.line, wrong, remedy);
    }
    // Another check reports a module that is not listed.
    let (Some(lower), Some(upper)) = (layers.rank(to), layers.rank(from)) else {
        return;
    };
    let named = layers.exceptions.iter();
    let is_exception = named.into_iter().any(|e| e.from == *from && e.to == *to);
    if lower > upper && !is_exception {
        let wrong = format!("`{from} -> {to}`: {LIST} has `{to}` above `{from}`");
        report.fail(edge.file, edge.line, wrong, CUT);
    }
}

/// The shipped files of one crate.
struct Source<'a> {
    /// The files, each with the parts of its path below `src`, without extension.
    files: Vec<(&'a File, Vec<&'a str>)>,
    root: Option<&'a File>,
}

impl<'a> Source<'a> {
    fn of(shipped: &[&'a File], folder: &str) -> Source<'a> {
        let src = format!("{folder}/src/");
        let root = ROOT_FILES.iter().find_map(|name| {
            let path = format!("{src}{name}");
            shipped.iter().copied().find(|file| file.path == path)
        });
        let files = shipped.iter().filter_map(|file| {
            let path = file.path.strip_prefix(&src)?;
            if ROOT_FILES.contains(&path) || path.starts_with("bin/") {
                return None;
            }
            let mut parts: Vec<&str> = path.strip_suffix(".rs")?.split('/').collect();
            if parts.len() > 1 && parts.last() == Some(&"mod") {
                parts.pop();
            }
            Some((*file, parts))
        });
        Source {
            files: files.collect(),
            root,
        }
    }

    /// The references of the root file, which may use the bare names of `modules`.
    fn root_references(&self, modules: &[&str]) -> References<'a> {
        self.root
            .map(|root| read(root.production_code(), 0, modules))
            .unwrap_or_default()
    }

    /// The top-level modules.
    fn modules(&self) -> BTreeSet<&'a str> {
        let files = self.files.iter().filter_map(|(_, parts)| parts.first());
        let inline = self.root_references(&[]).inline_modules;
        files.copied().chain(inline).collect()
    }

    /// Every use of a top-level module by another one. An import of everything at the root hides
    /// the names that are used, so such an import is a finding.
    fn edges(&self, modules: &BTreeSet<&str>, report: &mut Report) -> Vec<Edge<'a>> {
        let names: Vec<&str> = modules.iter().copied().collect();
        let root = self.root_references(&names);
        let mut handed_on: BTreeMap<&str, &str> = BTreeMap::new();
        for reexport in &root.reexports {
            if let Some(file) = self.root.filter(|_| reexport.name == "*") {
                let wrong = format!("all names of `{}` are handed on", reexport.module);
                report.fail(file, 1, wrong, "name what is handed on");
            }
            handed_on.insert(reexport.name, reexport.module);
        }
        let mut edges = Vec::new();
        let mut add = |file: &'a File, from: &str, import: &Import<'_>| match import.target {
            Target::Everything => {
                let wrong = format!("`{from}` imports everything at the root of the crate");
                report.fail(file, import.line, wrong, "import by name");
            }
            Target::Name(name) => {
                let to = if modules.contains(name) {
                    name
                } else {
                    handed_on.get(name).copied().unwrap_or(ROOT)
                };
                if from != to {
                    edges.push(Edge {
                        from: from.to_string(),
                        to: to.to_string(),
                        file,
                        line: import.line,
                    });
                }
            }
        };
        if let Some(file) = self.root {
            for import in &root.imports {
                add(file, import.inside.unwrap_or(ROOT), import);
            }
        }
        for (file, parts) in &self.files {
            let references = read(file.production_code(), parts.len(), &[]);
            for import in &references.imports {
                add(file, parts[0], import);
            }
        }
        edges
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    const LIST_TEXT: &str = "# Layers.\ncrate crates/a\n    base  # the lowest\n    middle top\n\
                             except base -> top\n";
    const LIB: &str = "//! A.\nmod base;\nmod middle;\nmod top;\n";

    /// Findings of a crate of three modules with this code, and the list.
    fn found(list: &str, base: &str, middle: &str, top: &str) -> Vec<String> {
        let header = |code: &str| format!("//! A.\n{code}\n");
        findings(&[
            (LIST, list),
            ("crates/a/src/lib.rs", LIB),
            ("crates/a/src/base.rs", &header(base)),
            ("crates/a/src/middle/mod.rs", &header("mod inner;")),
            ("crates/a/src/middle/inner.rs", &header(middle)),
            ("crates/a/src/top.rs", &header(top)),
        ])
    }

    const UP: &str = "use crate::top::Up;";

    #[test]
    fn imports_that_go_down_pass() {
        let down = "use crate::{base::B, middle};\nfn f() { super::base::g() }";
        let inner = "use super::super::base;\nuse super::other;\nuse crate::middle::x;";
        assert_eq!(found(LIST_TEXT, UP, inner, down), Vec::<String>::new());
    }

    #[test]
    fn an_import_that_goes_up_fails_with_its_line_and_edge() {
        for code in [
            "use crate::top::T;",
            "use crate::{base, top::{T, u::{V}}};",
            "use super::super::top::T;",
            "fn f() { crate::top::g() }",
            "mod own { use super::super::super::top; }",
        ] {
            let found = found(LIST_TEXT, UP, code, "");
            assert_eq!(found.len(), 1, "{code}: {found:?}");
            assert!(
                found[0].starts_with("crates/a/src/middle/inner.rs:2: `middle -> top`"),
                "{found:?}"
            );
            assert!(found[0].contains("; move what both need"), "{found:?}");
        }
    }

    #[test]
    fn tests_may_import_anything() {
        let tests = "#[cfg(test)]\nmod tests {\n    use crate::top::T;\n}";
        assert_eq!(found(LIST_TEXT, UP, tests, ""), Vec::<String>::new());
        let header = "//! A.\nuse crate::b;\n";
        let list = "crate c\na b\n";
        let files = [
            (LIST, list),
            ("c/src/lib.rs", "//! A.\nmod a;\nmod b;\n"),
            (
                "c/src/a/mod.rs",
                "//! A.\n#[cfg(test)]\nmod made;\n#[cfg(test)]\nmod tests;\n",
            ),
            ("c/src/a/made.rs", header),
            ("c/src/a/tests.rs", header),
            ("c/src/a/tests/more.rs", header),
            ("c/src/b.rs", "//! B.\n"),
        ];
        assert_eq!(findings(&files), Vec::<String>::new());
    }

    #[test]
    fn an_exception_that_no_longer_occurs_fails() {
        let found = found(LIST_TEXT, "", "", "");
        assert_eq!(
            found,
            [
                "xtask/layers.txt:5: `base -> top` no longer occurs in crates/a; \
              take the exception out of the list"
            ]
        );
    }

    #[test]
    fn the_list_and_the_modules_must_agree() {
        let short = LIST_TEXT.replace("middle ", "");
        let without = found(&short, UP, "use crate::top;", "");
        assert_eq!(without.len(), 1, "{without:?}");
        assert!(
            without[0].starts_with("xtask/layers.txt:2: "),
            "{without:?}"
        );
        assert!(without[0].contains("`middle`, which is not listed"));
        let long = LIST_TEXT.replace("middle ", "middle gone ");
        let with = found(&long, UP, "", "");
        assert_eq!(with.len(), 1, "{with:?}");
        assert!(with[0].starts_with("xtask/layers.txt:4: crates/a has no module `gone`"));
        let elsewhere = LIST_TEXT.replace("crates/a", "crates/b");
        let none = found(&elsewhere, UP, "", "");
        assert!(none[0].contains("there is no crate `crates/b`"), "{none:?}");
    }

    #[test]
    fn each_crate_has_its_own_order() {
        let files = [
            (LIST, "crate x\na b\ncrate y\nb\na\n"),
            ("x/src/lib.rs", "//! X.\n"),
            ("x/src/a.rs", "//! A.\n"),
            ("x/src/b.rs", "//! B.\nuse crate::a;\n"),
            ("y/src/main.rs", "//! Y.\nmod a;\nmod b;\n"),
            ("y/src/a.rs", "//! A.\n"),
            ("y/src/b.rs", "//! B.\nuse crate::a;\n"),
        ];
        let found = findings(&files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("y/src/b.rs:2: `b -> a`"), "{found:?}");
    }

    #[test]
    fn what_the_root_file_hands_on_belongs_to_its_module() {
        let with = |list: &str, lib: &str, code: &str| {
            findings(&[
                (LIST, list),
                ("x/src/lib.rs", &format!("//! X.\n{lib}\n")),
                ("x/src/a.rs", &format!("//! A.\n{code}\n")),
                ("x/src/b.rs", "//! B.\n"),
            ])
        };
        let list = "crate x\na b\n";
        let found = with(list, "pub use b::Thing as Named;", "use crate::Named;");
        assert!(found[0].contains("`a -> b`"), "{found:?}");
        let found = with(list, "pub struct Own;", "use crate::Own;");
        assert!(found[0].contains("list `lib`"), "{found:?}");
        let found = with("crate x\nlib a b\n", "pub struct Own;", "use crate::Own;");
        assert_eq!(found, Vec::<String>::new());
        let found = with("crate x\nlib a b\n", "fn f() { b::go() }", "");
        assert!(
            found[0].starts_with("x/src/lib.rs:2: `lib -> b`"),
            "{found:?}"
        );
        let found = with(list, "pub use b::*;", "");
        assert!(found[0].contains("all names of `b`"), "{found:?}");
        let found = with(list, "", "use crate::*;");
        assert!(found[0].contains("imports everything"), "{found:?}");
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_line() {
        for (list, expected) in [
            ("a b\n", ":1: a list starts with `crate FOLDER`"),
            ("crate x y\n", ":1: a list starts with"),
            ("crate x\na\na\n", ":3: the module `a` is listed twice"),
            ("crate x\ncrate x\n", ":2: the crate `x` is listed twice"),
            (
                "crate x\na b\nexcept a b\n",
                ":3: `except a b` is not understood",
            ),
            ("crate x\na b\nexcept b -> a\n", "needs no exception"),
            ("crate x\na b\nexcept a -> a\n", "needs no exception"),
            ("crate x\na b\nexcept a -> c\n", "the exception names `c`"),
            (
                "crate x\na b\nexcept a -> b\nexcept a -> b\n",
                ":4: the exception `a -> b` is there twice",
            ),
        ] {
            let found = findings(&[(LIST, list)]);
            assert_eq!(found.len(), 1, "{list}: {found:?}");
            assert!(found[0].contains(expected), "{found:?}");
        }
    }

    #[test]
    fn this_project_has_a_list() {
        let text = std::fs::read_to_string(crate::process::root().join(LIST)).unwrap();
        assert!(!parse(&text).unwrap().is_empty());
    }
}
