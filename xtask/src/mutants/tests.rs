//! Tests whole runs of `cargo xtask mutants` over a tiny project of one crate, compiled for
//! real.

use super::list::parse;
use super::scratch::Folders;
use super::trial::{Judged, Verdict};
use super::*;
use crate::process::root;

const LIBRARY: &str = "\
//! Numbers.

pub fn small(n: u32) -> bool {
    n < 10
}

pub fn count_down(mut n: u32) -> u32 {
    while n > 0 {
        n -= 1;
    }
    n
}

pub fn untested() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    #[test]
    fn ten_is_not_small() {
        assert!(!super::small(10));
    }
}
";

const TESTS: &str = "\
//! From outside.
#[test]
fn nine_is_small() {
    assert!(numbers::small(9));
}
#[test]
fn down_to_nothing() {
    assert_eq!(numbers::count_down(3), 0);
}
";

/// A project in a temporary folder, gone at the end.
struct Project {
    home: PathBuf,
}

impl Project {
    fn new(name: &str) -> Project {
        let home = std::env::temp_dir().join(format!("mutants-{}-{name}", std::process::id()));
        let project = Project { home };
        let root = "[workspace]\nresolver = \"3\"\nmembers = [\"numbers\"]\n\n\
                    [workspace.package]\nversion = \"1.0.0\"\n";
        let member =
            "[package]\nname = \"numbers\"\nversion.workspace = true\nedition = \"2024\"\n";
        project.write("Cargo.toml", root);
        project.write("numbers/Cargo.toml", member);
        project.write("numbers/src/lib.rs", LIBRARY);
        project.write("numbers/tests/outside.rs", TESTS);
        project
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.home.join("project").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = ["Cargo.toml", "numbers/Cargo.toml"]
            .map(str::to_string)
            .to_vec();
        paths.extend(["numbers/src/lib.rs", "numbers/tests/outside.rs"].map(str::to_string));
        paths.push("mutants/numbers.txt".to_string());
        paths
    }

    fn folders(&self) -> Folders {
        Folders {
            project: self.home.join("project"),
            target: self.home.join("target"),
            build: self.home.join("target"),
        }
    }

    fn run(&self, list: &str) -> Result<Vec<(Mutant, Judged)>, Failure> {
        self.write("mutants/numbers.txt", list);
        let folders = self.folders();
        let mutants = load(&folders.project, &self.paths())?;
        run_all(&folders, &self.paths(), mutants, |_, _| Ok(()))
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn mutant(name: &str, tests: &[&str], edit: &str) -> String {
    let tests: String = tests.iter().map(|t| format!("test {t}\n")).collect();
    format!("mutant {name}\nwhy it must be noticed\nfile numbers/src/lib.rs\n{tests}{edit}\n")
}

const LIB: &str = "-p numbers --lib";
const OUTSIDE: &str = "-p numbers --test outside";
const AT_MOST_TEN: &str = "-    n < 10\n+    n <= 10\n";

#[test]
fn each_mutant_gets_its_verdict() {
    let project = Project::new("verdicts");
    let list = [
        mutant("inclusive", &[LIB], AT_MOST_TEN),
        mutant("second-layer", &[OUTSIDE, LIB], AT_MOST_TEN),
        mutant("wrong-layer", &[OUTSIDE], AT_MOST_TEN),
        mutant("untested", &[LIB, OUTSIDE], "-    1\n+    2\n"),
        mutant("no-rust", &[LIB], "-    n < 10\n+    n < ten\n"),
        mutant("abort", &[LIB], "-    n < 10\n+    std::process::abort()\n"),
    ]
    .concat();
    let results = project.run(&list).unwrap();
    let verdict = |name: &str| {
        let result = results.iter().find(|(mutant, _)| mutant.name == name);
        &result.unwrap().1.verdict
    };
    let caught = |how: layer::Outcome| Verdict::Caught {
        by: Layer::parse(LIB).unwrap(),
        how,
    };
    let by_name = || {
        caught(layer::Outcome::Failed(vec![
            "tests::ten_is_not_small".to_string(),
        ]))
    };
    assert_eq!(*verdict("inclusive"), by_name());
    assert_eq!(*verdict("second-layer"), by_name());
    assert_eq!(*verdict("wrong-layer"), Verdict::Survived);
    assert_eq!(*verdict("untested"), Verdict::Survived);
    let Verdict::Unbuildable(output) = verdict("no-rust") else {
        panic!("{:?}", verdict("no-rust"))
    };
    assert!(output.contains("cannot find value `ten`"), "{output}");
    assert!(
        matches!(
            verdict("abort"),
            Verdict::Caught {
                how: layer::Outcome::Crashed(_),
                ..
            }
        ),
        "{:?}",
        verdict("abort")
    );
    let complaint = report::complaint(&results).unwrap();
    assert!(complaint.contains("2 of 6 mutants survived, 1 do not compile"));
    let tree = project.folders().target.join("mutants/tree");
    let left = fs::read_to_string(tree.join("numbers/src/lib.rs")).unwrap();
    assert_eq!(left, LIBRARY, "the last mutant is taken back");
}

#[test]
fn a_mutant_that_hangs_is_caught_at_the_deadline() {
    let project = Project::new("hang");
    let list = mutant(
        "endless",
        &[OUTSIDE],
        "-        n -= 1;\n+        n += 0;\n",
    );
    project.write("mutants/numbers.txt", &list);
    let folders = project.folders();
    let mutants = load(&folders.project, &project.paths()).unwrap();
    let scratch = Scratch::of(&folders, &project.paths()).unwrap();
    unmutated(&scratch, &mutants[0].layers, |_, _| {}).unwrap();
    let deadline = std::time::Duration::from_secs(2);
    let judged = trial::judge_within(&scratch, &mutants[0], |_| deadline).unwrap();
    assert_eq!(
        judged.verdict,
        Verdict::Caught {
            by: Layer::parse(OUTSIDE).unwrap(),
            how: layer::Outcome::Hung
        }
    );
}

#[test]
fn a_layer_that_fails_without_a_mutant_proves_nothing() {
    let project = Project::new("red");
    project.write("numbers/src/lib.rs", &LIBRARY.replace("n < 10", "n < 9"));
    let list = mutant("x", &[OUTSIDE], "-    n < 9\n+    n < 8\n");
    let why = project.run(&list).err().unwrap().message;
    assert!(
        why.contains("`-p numbers --test outside` fails without any mutant"),
        "{why}"
    );
    assert!(why.contains("nine_is_small"), "{why}");
}

#[test]
fn a_layer_that_tests_nothing_is_refused() {
    let project = Project::new("nothing");
    for (test, expected) in [
        ("-p numbers --lib no_such_test", "runs no test at all"),
        ("-p numbers --test inside", "no test target named `inside`"),
        ("-p letters --lib", "there is no package `letters`"),
    ] {
        let why = project
            .run(&mutant("x", &[test], AT_MOST_TEN))
            .err()
            .unwrap();
        assert!(why.message.contains(expected), "{}", why.message);
    }
}

#[test]
fn a_list_out_of_step_is_refused_before_anything_is_built() {
    let project = Project::new("step");
    let edit = "-}\n+} // closed\n";
    let list = [
        mutant("twice", &[LIB], edit),
        mutant("gone", &[LIB], "-    n < 11\n"),
    ]
    .concat();
    let why = project.run(&list).err().unwrap();
    assert_eq!(why.code, 1);
    let lines: Vec<&str> = why.message.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("mutants/numbers.txt:1: twice: numbers/src/lib.rs:"),
        "{lines:?}"
    );
    assert!(lines[0].contains("4 times"), "{lines:?}");
    assert!(
        lines[1].contains("gone: numbers/src/lib.rs: its old line `n < 11` is no longer there")
    );
    assert!(!project.folders().target.exists());
}

#[test]
fn the_copy_follows_the_project_and_keeps_the_times_of_what_is_the_same() {
    let project = Project::new("copy");
    let copy = || Scratch::of(&project.folders(), &project.paths()).unwrap();
    let tree = copy().tree.clone();
    let time = |path: &str| fs::metadata(tree.join(path)).unwrap().modified().unwrap();
    let (library, tests) = ("numbers/src/lib.rs", "numbers/tests/outside.rs");
    let before = (time(library), time(tests));
    project.write(library, "//! Other numbers.\n");
    fs::write(tree.join("numbers/left-behind.txt"), "x").unwrap();
    drop(copy());
    assert!(time(library) > before.0);
    assert_eq!(time(tests), before.1);
    assert!(!tree.join("numbers/left-behind.txt").exists());
    let text = fs::read_to_string(tree.join(library)).unwrap();
    assert_eq!(text, "//! Other numbers.\n");
    let held = copy();
    let second = Scratch::of(&project.folders(), &project.paths())
        .err()
        .unwrap();
    assert!(second.message.contains("another run"), "{}", second.message);
    drop(held);
}

#[test]
fn changes_since_a_commit_include_what_is_not_committed() {
    let project = Project::new("since");
    let home = project.folders().project;
    let git = |arguments: &[&str]| {
        let mut git = program("git");
        // A hook sets these, and git would then write to the project itself.
        for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            git.env_remove(variable);
        }
        git.current_dir(&home)
            .args(["-c", "user.name=a", "-c", "user.email=a@example.com"])
            .args(["-c", "commit.gpgsign=false"])
            .args(arguments);
        output_of(&mut git).unwrap()
    };
    let since = |revision: &str| {
        let listing = changes_since(&home, revision).unwrap();
        let paths = listing.split_terminator('\0').map(str::to_string);
        paths.collect::<Vec<String>>()
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "--message", "first"]);
    let first = git(&["rev-parse", "HEAD"]);
    assert_eq!(since(first.trim()), Vec::<String>::new());
    project.write("numbers/src/lib.rs", "//! Other numbers.\n");
    git(&["mv", "numbers/tests/outside.rs", "numbers/tests/moved.rs"]);
    git(&["commit", "--quiet", "--all", "--message", "second"]);
    let committed = [
        "numbers/src/lib.rs",
        "numbers/tests/moved.rs",
        "numbers/tests/outside.rs",
    ];
    assert_eq!(since(first.trim()), committed);
    assert_eq!(since("HEAD"), Vec::<String>::new());
    project.write("Cargo.toml", "[workspace]\n");
    project.write("numbers/new file.rs", "//! New.\n");
    assert_eq!(since("HEAD"), ["Cargo.toml", "numbers/new file.rs"]);
    for wrong in ["no-such-commit", "--output=x", ""] {
        let why = changes_since(&home, wrong).unwrap_err();
        assert_eq!(why.code, 2, "{wrong}");
        assert!(why.message.contains("there is no commit"), "{wrong}");
    }
}

#[test]
fn the_projects_own_lists_can_be_read() {
    let listing = project_listing().unwrap();
    let lists: Vec<&str> = listing.split('\0').filter(|path| is_list(path)).collect();
    assert!(!lists.is_empty());
    for path in lists {
        let text = fs::read_to_string(root().join(path)).unwrap();
        assert!(!parse(path, &text).unwrap().is_empty(), "{path}");
    }
}
