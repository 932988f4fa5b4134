//! Power cuts, without one: a child process runs with a preloaded library that
//! keeps what is durable (`forget.c`), is killed, and what a real disk could have
//! kept is put together as a new folder.
//!
//! Two ways in which names become durable: only by the fsync of their folder
//! (the least that is promised), or by any fsync (what file systems with an
//! ordered journal do; then names may outlive contents). Unsynced pages are
//! forgotten, or some of them are kept, in any order.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use tempfile::TempDir;

const PAGE: usize = 4096;
/// Pages that are compared at a time.
const READ: usize = 256 * PAGE;

/// The library, compiled once for all tests of a binary.
fn library() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("forget.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power/forget.c");
        let status = Command::new("cc")
            .args(["-O2", "-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .args([&path, &source])
            .args(["-ldl", "-lpthread"])
            .status()
            .expect("a C compiler");
        assert!(status.success(), "the library does not compile");
        (folder, path)
    });
    path
}

/// How names become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// By the fsync of their folder.
    Strict,
    /// By any fsync.
    Ordered,
}

/// A folder on a disk that forgets.
pub(crate) struct Disk {
    /// Everything below, on one file system.
    _home: TempDir,
    pub root: PathBuf,
    shadow: PathBuf,
    control: PathBuf,
    names: Names,
}

impl Disk {
    pub(crate) fn new(names: Names) -> Disk {
        let home = tempfile::tempdir().unwrap();
        let [root, shadow, control] =
            ["data", "shadow", "control"].map(|name| home.path().join(name));
        for folder in [&root, &shadow, &control] {
            fs::create_dir(folder).unwrap();
        }
        Disk {
            _home: home,
            root,
            shadow,
            control,
            names,
        }
    }

    /// Adds the library to a child that is to work in `root`.
    pub(crate) fn preload(&self, child: &mut Command) {
        child
            .env("LD_PRELOAD", library())
            .env("FORGET_ROOT", &self.root)
            .env("FORGET_SHADOW", &self.shadow)
            .env("FORGET_FIRED", self.fired_file());
        if self.names == Names::Ordered {
            child.env("FORGET_ORDERED", "1");
        }
    }

    /// Ends the child at the `count`th event; see `forget.c`.
    pub(crate) fn crash(&self, child: &mut Command, event: &str, part: &str, count: u64) {
        child.env("FORGET_CRASH", format!("{event}:{part}:{count}"));
    }

    /// Lets calls fail from the `count`th on, once the child made [`Disk::arm_file`].
    pub(crate) fn fail(
        &self,
        child: &mut Command,
        event: &str,
        part: &str,
        count: u64,
        error: &str,
    ) {
        child
            .env("FORGET_FAIL", format!("{event}:{part}:{count}:{error}"))
            .env("FORGET_ARM", self.arm_file());
    }

    /// Records the order of events.
    pub(crate) fn record(&self, child: &mut Command) {
        child.env("FORGET_LOG", self.log_file());
    }

    pub(crate) fn arm_file(&self) -> PathBuf {
        self.control.join("arm")
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.control.join("log")
    }

    fn fired_file(&self) -> PathBuf {
        self.control.join("fired")
    }

    /// Whether the crash or the failure happened.
    pub(crate) fn fired(&self) -> bool {
        self.fired_file().exists()
    }

    /// The disk as the power cut left it, with the child dead. `tear` chooses
    /// which unsynced pages came to the disk; without it, none.
    pub(crate) fn after_power_cut(&self, tear: Option<Dice>) -> Disk {
        match tear {
            None => self.after_power_cut_with(&mut |_, _| false),
            Some(mut dice) => {
                let mut odds = 0;
                self.after_power_cut_with(&mut |place, _| {
                    if place == 0 {
                        odds = dice.below(4);
                    }
                    dice.below(4) < odds
                })
            }
        }
    }

    /// Returns the disk after a power cut. `keep` decides for each unsynced page of a file,
    /// by its index among them and their number.
    pub(crate) fn after_power_cut_with(&self, keep: &mut dyn FnMut(usize, usize) -> bool) -> Disk {
        let after = Disk::new(self.names);
        let mut real = HashMap::new();
        files_by_key(&self.root, &mut real);
        self.put_together(&key(&self.root), &after.root, &real, keep);
        after
    }

    fn put_together(
        &self,
        folder_key: &str,
        to: &Path,
        real: &HashMap<String, PathBuf>,
        keep: &mut dyn FnMut(usize, usize) -> bool,
    ) {
        let names = self.shadow.join("names").join(folder_key);
        // A folder whose name is durable and whose contents never were.
        let names = fs::read_to_string(names).unwrap_or_default();
        for line in names.lines() {
            let mut parts = line.splitn(3, ' ');
            let (kind, key, name) = (
                parts.next().unwrap(),
                parts.next().unwrap(),
                parts.next().unwrap(),
            );
            let path = to.join(name);
            if kind == "d" {
                fs::create_dir(&path).unwrap();
                self.put_together(key, &path, real, keep);
                continue;
            }
            let image = self.shadow.join("files").join(key);
            match copy_sparse(&image, &path) {
                Ok(()) => {}
                // Named, and never synced.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    File::create(&path).unwrap();
                }
                Err(error) => panic!("{}: {error}", image.display()),
            }
            if let Some(real) = real.get(key) {
                tear_into(&path, real, keep);
            }
        }
    }
}

/// Brings some of the pages that differ from the real file.
fn tear_into(path: &Path, real: &Path, keep: &mut dyn FnMut(usize, usize) -> bool) {
    let real = File::open(real).unwrap();
    let kept = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let length = real.metadata().unwrap().len();
    if length < kept.metadata().unwrap().len() {
        return;
    }
    let mut pages = Vec::new();
    let (mut now, mut then) = (vec![0; READ], vec![0; READ]);
    let mut at = 0;
    while at < length {
        let size = READ.min((length - at) as usize);
        real.read_exact_at(&mut now[..size], at).unwrap();
        let known = kept.read_at(&mut then[..size], at).unwrap();
        then[known..].fill(0);
        for start in (0..size).step_by(PAGE) {
            let page = start..(start + PAGE).min(size);
            if now[page.clone()] != then[page.clone()] {
                pages.push((at + start as u64, now[page].to_vec()));
            }
        }
        at += size as u64;
    }
    let count = pages.len();
    for (place, (at, page)) in pages.into_iter().enumerate() {
        if keep(place, count) {
            kept.write_all_at(&page, at).unwrap();
        }
    }
}

/// Copies a folder and everything in it; holes in files stay holes.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &copy)
        } else {
            copy_sparse(&path, &copy).unwrap()
        }
    }
}

fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let source = File::open(from)?;
    let target = File::create(to)?;
    let length = source.metadata()?.len();
    let (mut buffer, mut at) = (vec![0; 1 << 16], 0);
    loop {
        let count = source.read_at(&mut buffer, at)?;
        if count == 0 {
            break;
        }
        if buffer[..count].iter().any(|byte| *byte != 0) {
            target.write_all_at(&buffer[..count], at)?;
        }
        at += count as u64;
    }
    target.set_len(length)
}

/// As `forget.c` names files.
fn key(path: &Path) -> String {
    let data = fs::symlink_metadata(path).unwrap();
    let born = data.created().unwrap().duration_since(UNIX_EPOCH).unwrap();
    let (seconds, nanos) = (born.as_secs(), born.subsec_nanos());
    format!("{}-{seconds}.{nanos:09}", data.ino())
}

fn files_by_key(folder: &Path, found: &mut HashMap<String, PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_by_key(&path, found)
        } else {
            found.insert(key(&path), path);
        }
    }
}

/// Numbers that a seed decides.
#[derive(Debug, Clone)]
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }
}
