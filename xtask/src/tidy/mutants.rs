//! The lists of mutants keep step with the code, as far as that shows without a
//! build: each can be read, each name is given once, each edit fits exactly one
//! place, and each layer is a test target that exists.

use super::{File, Report};
use crate::mutants::{Flaw, Layer, Target, doubles, is_list, parse};

const REMEDY: &str = "mutants/README.md says how a mutant is written";

pub fn check(files: &[File], report: &mut Report) {
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
            if !has_target(files, layer) {
                flaws.push(mutant.flaw(format!("{}: there is no `{layer}`", mutant.name)));
            }
        }
    }
    for Flaw { list, line, wrong } in flaws {
        if let Some(file) = files.iter().find(|file| file.path == list) {
            report.fail(file, line, wrong, REMEDY);
        }
    }
}

fn has_target(files: &[File], layer: &Layer) -> bool {
    let name = format!("name = \"{}\"", layer.package);
    let package = files.iter().find_map(|file| {
        let folder = file.path.strip_suffix("/Cargo.toml")?;
        file.text.lines().any(|line| line == name).then_some(folder)
    });
    let Some(folder) = package else { return false };
    let candidates = match &layer.target {
        Target::Library => vec![format!("{folder}/src/lib.rs")],
        Target::Named(name) => vec![
            format!("{folder}/tests/{name}.rs"),
            format!("{folder}/tests/{name}/main.rs"),
        ],
    };
    files.iter().any(|file| candidates.contains(&file.path))
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
}
