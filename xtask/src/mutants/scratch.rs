//! The scratch copy of the project, in which mutants are made and tested.
//!
//! The working tree is only read. The copy stays between runs, and unchanged files are not
//! written again, so cargo compiles only what changed. The next run restores a file that a run
//! left mutated and removes a file that a test left behind. A second run at the same time is
//! refused.

use super::manifests;
use crate::process::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to retry a held lock. A child that is being started holds a copy of the lock until
/// it executes its program.
const LOCK_GRACE: Duration = Duration::from_secs(2);
const LOCK_POLL: Duration = Duration::from_millis(20);

pub(super) struct Scratch {
    pub tree: PathBuf,
    /// The folder of programs whose names have no hash, apart from the project's own programs.
    pub target: PathBuf,
    /// The build folder, which the copy shares with the project.
    pub build: PathBuf,
    /// The folder of each package of the workspace.
    packages: BTreeMap<String, PathBuf>,
    /// The lock against a second run.
    _lock: File,
}

/// The folder of the project, and cargo's target and build folders.
pub(super) struct Folders {
    pub project: PathBuf,
    pub target: PathBuf,
    pub build: PathBuf,
}

impl Folders {
    /// The folder of everything that is kept between runs.
    pub(super) fn home(&self) -> PathBuf {
        self.target.join("mutants")
    }

    /// The copy of the project.
    pub(super) fn tree(&self) -> PathBuf {
        self.home().join("tree")
    }
}

impl Scratch {
    /// Makes the copy equal to the files of the project at `paths`, and removes all other files.
    pub(super) fn of(folders: &Folders, paths: &[String]) -> Result<Scratch, Failure> {
        let home = folders.home();
        let mut scratch = Scratch {
            tree: folders.tree(),
            target: home.join("target"),
            build: folders.build.clone(),
            packages: BTreeMap::new(),
            _lock: lock(&home)?,
        };
        let manifests = scratch.manifests(folders, paths)?;
        let mut expected = BTreeSet::new();
        for path in paths {
            let from = folders.project.join(path);
            // Deleted but not yet staged, or a link to a folder.
            if !from.is_file() {
                continue;
            }
            let to = scratch.tree.join(path);
            match manifests.get(path.as_str()) {
                Some(text) => put(&to, text.as_bytes()),
                None => fs::read(&from).and_then(|bytes| put(&to, &bytes)),
            }
            .and_then(|()| fs::set_permissions(&to, fs::metadata(&from)?.permissions()))
            .map_err(|e| Failure::check(format!("{path} could not be copied: {e}")))?;
            expected.insert(to);
        }
        remove_others(&scratch.tree, &expected)
            .map_err(|e| Failure::check(format!("{}: {e}", scratch.tree.display())))?;
        Ok(scratch)
    }

    pub(super) fn package(&self, name: &str) -> Result<&Path, String> {
        self.packages
            .get(name)
            .map(PathBuf::as_path)
            .ok_or_else(|| format!("there is no package `{name}` in the workspace"))
    }

    /// Writes a file of the copy. The file gets a new time even when it gets its old text back,
    /// because cargo would otherwise keep the build of the mutant.
    pub(super) fn write(&self, path: &str, text: &str) -> Result<(), Failure> {
        fs::write(self.tree.join(path), text)
            .map_err(|e| Failure::check(format!("the copy of {path} could not be written: {e}")))
    }

    /// The manifests of the workspace as the copy has them, by path.
    fn manifests(
        &mut self,
        folders: &Folders,
        paths: &[String],
    ) -> Result<BTreeMap<String, String>, Failure> {
        let read = |path: &str| {
            fs::read_to_string(folders.project.join(path))
                .map_err(|e| Failure::check(format!("{path}: {e}")))
        };
        let fault = |path: &str, why: String| Failure::check(format!("{path}: {why}"));
        let root = "Cargo.toml";
        let text = read(root)?;
        let mut manifests = BTreeMap::new();
        for folder in manifests::members(&text).map_err(|why| fault(root, why))? {
            let path = format!("{folder}/Cargo.toml");
            let has_library = paths.contains(&format!("{folder}/src/lib.rs"));
            let (name, text) =
                manifests::member(&read(&path)?, has_library).map_err(|why| fault(&path, why))?;
            self.packages.insert(name, self.tree.join(&folder));
            manifests.insert(path, text);
        }
        let text = manifests::marked(&text).map_err(|why| fault(root, why))?;
        manifests.insert(root.to_string(), text);
        Ok(manifests)
    }
}

fn lock(home: &Path) -> Result<File, Failure> {
    let path = home.join("lock");
    let fault = |e: &dyn std::fmt::Display| Failure::check(format!("{}: {e}", path.display()));
    fs::create_dir_all(home).map_err(|e| fault(&e))?;
    let file = File::create(&path).map_err(|e| fault(&e))?;
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if start.elapsed() < LOCK_GRACE => {
                std::thread::sleep(LOCK_POLL);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::usage(format!(
                    "another run works in {}; wait for it",
                    home.display()
                )));
            }
            Err(TryLockError::Error(e)) => return Err(fault(&e)),
        }
    }
}

/// Writes a file if its content differs; an equal file keeps its time.
fn put(to: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if fs::read(to).is_ok_and(|held| held == bytes) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(to, bytes)
}

fn remove_others(folder: &Path, expected: &BTreeSet<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(&path, expected)?;
            // Fails for a folder that is not empty and therefore stays.
            let _ = fs::remove_dir(&path);
        } else if !expected.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
