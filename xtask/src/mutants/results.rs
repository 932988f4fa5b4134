//! The results of earlier runs: a file in the target folder, one line for each verdict.
//!
//! A line holds a fingerprint, the verdict, the seconds and the name, with a tab between
//! two of them. The fingerprint is that of the mutant and of the file that it edits, so
//! a change of either makes the line say nothing. A change of the tests or of other code
//! does not: a run that must not rely on older results starts without the file. A line
//! that cannot be read, such as one that was cut off, is passed over.

use super::list::Mutant;
use super::scratch::Folders;
use super::trial::Judged;
use crate::process::Failure;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

pub(super) struct Results {
    path: PathBuf,
    project: PathBuf,
    /// The copy of the project, which holds the tested files even if the project has changed since.
    tree: PathBuf,
}

impl Results {
    pub(super) fn of(folders: &Folders) -> Results {
        Results {
            path: folders.home().join("results.tsv"),
            project: folders.project.clone(),
            tree: folders.tree(),
        }
    }

    /// Selects the mutants that no earlier run has caught in their present form.
    pub(super) fn not_caught(&self, mutants: Vec<Mutant>) -> Result<Vec<Mutant>, Failure> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            Err(e) => return Err(self.fault(&e)),
        };
        let caught = caught(&text);
        let mut rest = Vec::new();
        for mutant in mutants {
            if !caught.contains(fingerprint(&self.project, &mutant)?.as_str()) {
                rest.push(mutant);
            }
        }
        Ok(rest)
    }

    /// Appends the verdict on a mutant whose edit has been undone.
    pub(super) fn append(&self, mutant: &Mutant, judged: &Judged) -> Result<(), Failure> {
        let line = format!(
            "{}\t{}\t{:.1}\t{}\n",
            fingerprint(&self.tree, mutant)?,
            judged.verdict.name(),
            judged.seconds,
            mutant.name
        );
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).open(&self.path);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|e| self.fault(&e))
    }

    fn fault(&self, error: &std::io::Error) -> Failure {
        Failure::check(format!("{}: {error}", self.path.display()))
    }
}

/// The fingerprints of the caught mutants. A later verdict replaces an earlier one.
fn caught(text: &str) -> BTreeSet<&str> {
    let mut caught = BTreeSet::new();
    for line in text.lines() {
        let mut fields = line.split('\t');
        match (fields.next(), fields.next(), fields.nth(1)) {
            (Some(print), Some("caught"), Some(_)) => caught.insert(print),
            (Some(print), Some(_), Some(_)) => caught.remove(print),
            _ => continue,
        };
    }
    caught
}

/// Hashes a mutant's edit, its layers and the text of its file. If a toolchain has another hash
/// function, mutants only run again.
fn fingerprint(tree: &Path, mutant: &Mutant) -> Result<String, Failure> {
    let text = fs::read_to_string(tree.join(&mutant.file))
        .map_err(|e| Failure::check(format!("{}: {e}", mutant.file)))?;
    let mut hasher = DefaultHasher::new();
    let parts = (&mutant.name, &mutant.file, &mutant.edit, &mutant.layers);
    (parts, text).hash(&mut hasher);
    Ok(format!("{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::super::list::parse;
    use super::super::trial::Verdict;
    use super::*;

    const LIST: &str = "mutant a\nwhy w\nfile a.rs\ntest -p a --lib\n-a\n+b\n";

    fn mutant(list: &str) -> Mutant {
        parse("mutants/a.txt", list).unwrap().remove(0)
    }

    #[test]
    fn what_was_caught_is_skipped_until_the_mutant_or_its_file_changes() {
        let name = format!("mutants-{}-results", std::process::id());
        let home = std::env::temp_dir().join(name);
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("a.rs"), "a\n").unwrap();
        let results = Results {
            path: home.join("results.tsv"),
            project: home.clone(),
            tree: home.clone(),
        };
        let skipped = |list: &str| {
            let rest = results.not_caught(vec![mutant(list)]).unwrap();
            rest.is_empty()
        };
        let append = |verdict| {
            let judged = Judged {
                verdict,
                seconds: 1.0,
            };
            results.append(&mutant(LIST), &judged).unwrap();
        };
        let by = || Verdict::Caught {
            by: mutant(LIST).layers.remove(0),
            how: super::super::layer::Outcome::Hung,
        };
        assert!(!skipped(LIST), "no run yet");
        append(Verdict::Survived);
        assert!(!skipped(LIST), "it survived");
        append(by());
        assert!(skipped(LIST));
        for (from, to) in [
            ("+b", "+c"),
            ("--lib", "--test b"),
            ("mutant a", "mutant b"),
        ] {
            assert!(!skipped(&LIST.replace(from, to)), "{to}");
        }
        assert!(skipped(&LIST.replace("why w", "why x")));
        fs::write(home.join("a.rs"), "a\na2\n").unwrap();
        assert!(!skipped(LIST), "the file has changed");
        fs::write(home.join("a.rs"), "a\n").unwrap();
        append(Verdict::Survived);
        assert!(!skipped(LIST), "the last verdict counts");
        fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn lines_that_cannot_be_read_are_passed_over() {
        let text = "a\tcaught\t1.0\ta\n\nb\tcaught\nc\nd\tcaught\t1.0\td";
        assert_eq!(caught(text), BTreeSet::from(["a", "d"]));
        assert_eq!(caught(&format!("{text}\nd\tsurvived\t1.0\td")).len(), 1);
    }
}
