//! Checks that the lists of mutants fit the code, as far as a check without a build can tell:
//! each list can be parsed, each name is unique, each edit fits exactly one place, and each layer
//! is an existing test target that has tests with such names.
//!
//! In a library, the name must be part of a test's path. A test target may define tests by a
//! macro and share files with other targets, so there the modules and the function, or parts of
//! their names, must exist; only a run shows whether they belong together.

use super::rust::{functions, is_word};
use super::{File, Report};
use crate::mutants::{Flaw, Layer, Target, doubles, is_list, parse};

const REMEDY: &str = "mutants/README.md says how a mutant is written";

pub(super) fn check(files: &[File], report: &mut Report) {
    let mut mutants = Vec::new();
    let mut flaws = Vec::new();
    for list in files.iter().filter(|file| is_list(&file.path)) {
        match parse(&list.path, &list.text) {
            Ok(found) => mutants.extend(found),
            Err(flaw) => flaws.push(flaw),
        }
    }
    flaws.extend(doubles(&mutants));
    for mutant in &mutants {
        let mutated = files.iter().find(|file| file.path == mutant.file);
        flaws.extend(mutant.misfit(mutated.map(|file| file.text.as_str())));
        for layer in &mutant.layers {
            let Some(sources) = sources(files, layer) else {
                flaws.push(mutant.flaw(format!("{}: there is no `{layer}`", mutant.name)));
                continue;
            };
            let has_test = match layer.target {
                Target::Library => in_library,
                Target::Named(_) => has_test,
            };
            for filter in layer.filters.iter().filter(|f| !has_test(&sources, f)) {
                let wrong = format!("{}: `{layer}` has no test `{filter}`", mutant.name);
                flaws.push(mutant.flaw(wrong));
            }
        }
    }
    for Flaw { list, line, wrong } in flaws {
        if let Some(file) = files.iter().find(|file| file.path == list) {
            report.fail(file, line, wrong, REMEDY);
        }
    }
}

/// The files that may have the tests of a layer: the sources of a library, or the whole folder
/// `tests` of the package, because test targets may share files. `None` if there is no such
/// target.
fn sources<'a>(files: &'a [File], layer: &Layer) -> Option<Vec<&'a File>> {
    let name = format!("name = \"{}\"", layer.package);
    let package = files.iter().find_map(|file| {
        let folder = file.path.strip_suffix("/Cargo.toml")?;
        file.text.lines().any(|line| line == name).then_some(folder)
    })?;
    let (candidates, folder) = match &layer.target {
        Target::Library => (
            vec![format!("{package}/src/lib.rs")],
            format!("{package}/src/"),
        ),
        Target::Named(name) => (
            vec![
                format!("{package}/tests/{name}.rs"),
                format!("{package}/tests/{name}/main.rs"),
            ],
            format!("{package}/tests/"),
        ),
    };
    let exists = files.iter().any(|file| candidates.contains(&file.path));
    let sources = files.iter();
    let sources = sources.filter(|f| f.path.starts_with(&folder) && f.has_extension(&["rs"]));
    exists.then(|| sources.collect())
}

/// Whether a unit test has a filter in its path.
fn in_library(sources: &[&File], filter: &str) -> bool {
    sources.iter().any(|file| {
        let (_, path) = file.path.rsplit_once("src/").unwrap_or(("", &file.path));
        let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let module = match module {
            "lib" => String::new(),
            module => format!("{}::", module.replace('/', "::")),
        };
        let code = file.code();
        let tests: Vec<_> = functions(code).into_iter().filter(|f| f.is_test).collect();
        let mut inline = declared(code).chain([""]);
        inline.any(|inline| {
            let separator = if inline.is_empty() { "" } else { "::" };
            let prefix = format!("{module}{inline}{separator}");
            let mut paths = tests.iter().map(|test| format!("{prefix}{}", test.name));
            paths.any(|path| path.contains(filter))
        })
    })
}

/// Whether a test of a test target may have a filter in its path. The filter may begin and end
/// anywhere in a name.
fn has_test(sources: &[&File], filter: &str) -> bool {
    let (path, last) = filter.rsplit_once("::").unwrap_or(("", filter));
    let mut modules = path.split("::").filter(|module| !module.is_empty());
    let first = modules.next();
    let is_module = |fits: &dyn Fn(&str) -> bool| sources.iter().any(|f| has_module(f, fits));
    let is_function = || {
        let mut functions = sources.iter().flat_map(|file| functions(file.code()));
        functions.any(|function| function.name.contains(last))
    };
    first.is_none_or(|first| is_module(&|module| module.ends_with(first)))
        && modules.all(|wanted| is_module(&|module| module == wanted))
        && (is_function() || is_module(&|module| module.contains(last)))
}

/// Whether a file is a module whose name `fits`, is inside one, or declares one.
fn has_module(file: &File, fits: &dyn Fn(&str) -> bool) -> bool {
    let mut parts = file.path.trim_end_matches(".rs").split('/');
    parts.any(fits) || declared(file.code()).any(fits)
}

/// The names of the modules that the code declares.
fn declared(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices("mod ").map(|(at, found)| {
        let rest = &code[at + found.len()..];
        let length = rest.bytes().take_while(|byte| is_word(*byte)).count();
        &rest[..length]
    })
}

#[cfg(test)]
mod tests {
    use super::super::findings;

    const LIST: &str =
        "mutant a\nwhy w\nfile crates/a/src/lib.rs\ntest -p a --test t\n-fn a() {}\n+fn b() {}\n";

    fn with(list: &str, code: &str) -> Vec<String> {
        findings(&[
            ("mutants/a.txt", list),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"),
            ("crates/a/src/lib.rs", code),
            ("crates/a/tests/t.rs", "//! T.\n"),
        ])
    }

    #[test]
    fn a_mutant_in_step_passes() {
        assert_eq!(with(LIST, "//! A.\nfn a() {}\n"), Vec::<String>::new());
    }

    #[test]
    fn a_mutant_out_of_step_fails() {
        let code = "//! A.\nfn a() {}\n";
        for (list, code, why) in [
            (LIST.to_string(), "//! A.\n", "no longer there"),
            (
                LIST.to_string(),
                "//! A.\nfn a() {}\nfn a() {}\n",
                "2 times",
            ),
            (
                LIST.replace("src/lib.rs", "src/b.rs"),
                code,
                "no file of the project",
            ),
            (
                LIST.replace("--test t", "--test u"),
                code,
                "there is no `-p a --test u`",
            ),
            (
                LIST.replace("-p a", "-p b"),
                code,
                "there is no `-p b --test t`",
            ),
            (LIST.replace("mutant a", "mutant A"), code, "`A` is no name"),
            (
                LIST.repeat(2),
                code,
                "the name `a` is taken by mutants/a.txt:1",
            ),
        ] {
            let found = with(&list, code);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with("mutants/a.txt:"), "{found:?}");
            assert!(found[0].contains(why), "{found:?}");
        }
    }

    #[test]
    fn a_layer_without_a_test_of_such_a_name_fails() {
        let suite = "//! T.\nmod rows;\nmod power { #[test]\nfn cut_off() {} }\n";
        let has = |layer: &str| {
            let found = findings(&[
                ("mutants/a.txt", &LIST.replace("-p a --test t", layer)),
                ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n"),
                (
                    "crates/a/src/lib.rs",
                    "//! A.\nfn a() {}\nmod inner;\n// fn noted() {}\n",
                ),
                (
                    "crates/a/src/inner/deep.rs",
                    "//! D.\nmod tests {\n#[test]\nfn deep() {}\n}\nfn helper() {}\n",
                ),
                ("crates/a/tests/t/main.rs", suite),
                ("crates/a/tests/t/rows.rs", "//! R.\nfn each_row() {}\n"),
                ("crates/a/tests/shared/ends.rs", "//! E.\n"),
            ]);
            let expected = format!("a: `{layer}` has no test `");
            assert!(found.iter().all(|f| f.contains(&expected)), "{found:?}");
            found.is_empty()
        };
        for layer in [
            "-p a --test t rows::each_",
            "-p a --test t rows::",
            "-p a --test t ws::each_row",
            "-p a --test t rows",
            "-p a --test t power::cut",
            "-p a --test t ends::cut",
            "-p a --lib inner::",
            "-p a --lib inner::deep::tests::deep",
            "-p a --lib deep",
            "-p a --test t -- rows cut",
        ] {
            assert!(has(layer), "{layer}");
        }
        for layer in [
            "-p a --test t row::each_row",
            "-p a --test t rows::all_rows",
            "-p a --test t rows::ends_with::cut",
            "-p a --lib rows::",
            "-p a --lib noted",
            "-p a --lib helper",
            "-p a --lib inner::tests",
            "-p a --lib inner::helper",
            "-p a --test t -- rows lost",
        ] {
            assert!(!has(layer), "{layer}");
        }
    }
}
