//! The format version of a data folder, in the file `format`.
//!
//! That file is the first one written into a new folder and the first one read from
//! an existing folder. A folder with a newer format, or with files that are not
//! Gapless's, is refused unchanged. An older format is migrated by one named step
//! per version. The file is plain text, so that an operator can read it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::durable;
use crate::lock::LOCK_FILE;

/// The format that this program writes.
pub const CURRENT: u32 = 4;

/// The name of the file in the data folder.
pub(crate) const FORMAT_FILE: &str = "format";

const MAGIC: &str = "gapless store";
/// A file larger than this is damaged; a whole one is far smaller.
const FILE_BYTES: u64 = 4096;

/// The content of the file `format`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    pub version: u32,
    /// The version of Gapless that wrote the folder in this format.
    pub written_by: String,
}

/// Why the format of a folder was refused.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error(
        "{} has store format {found}, written by gapless {written_by}; this is gapless {}, which reads formats up to {CURRENT}. Use a gapless at least as new as the one that wrote it; nothing was changed",
        folder.display(),
        env!("CARGO_PKG_VERSION")
    )]
    Newer {
        folder: PathBuf,
        found: u32,
        written_by: String,
    },
    #[error(
        "{} is not a gapless data folder and is not empty (it has '{example}'). Choose an empty folder, or one that gapless made; nothing was changed",
        folder.display()
    )]
    NotOurs { folder: PathBuf, example: String },
    #[error(
        "{} has no file '{FORMAT_FILE}': it is not a gapless data folder, or its first start was interrupted",
        folder.display()
    )]
    Missing { folder: PathBuf },
    #[error(
        "{} cannot be parsed; it must contain '{MAGIC}' and a version. Restore the file from a copy, or, if no other version of gapless ever ran here, write these two lines into it: '{MAGIC}', 'version {CURRENT}'",
        file.display()
    )]
    Damaged { file: PathBuf },
    #[error("the migration '{step}' from store format {from} failed in {}: {source}; the next start tries again", folder.display())]
    Migration {
        folder: PathBuf,
        step: &'static str,
        from: u32,
        source: io::Error,
    },
    #[error("cannot read or write the format of {}: {source}", folder.display())]
    Io { folder: PathBuf, source: io::Error },
}

/// A migration from one format version to the next. It may be interrupted and run
/// again, so it must be idempotent.
pub struct Migration {
    pub from: u32,
    pub name: &'static str,
    pub run: fn(&Path) -> io::Result<()>,
}

/// All migrations, oldest first; one for each version before [`CURRENT`].
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        from: 1,
        name: "keys and wishes",
        // Rows got new versions (the signing key, why an upstream is followed, what
        // is tracked). Old rows are still read, but an older program must no longer
        // open the folder.
        run: |_| Ok(()),
    },
    Migration {
        from: 2,
        name: "hearsay and limits",
        // Rows got new versions again, for deletions that only a relay reports and for
        // repositories over the size limit.
        run: |_| Ok(()),
    },
    Migration {
        from: 3,
        name: "the log for consumers",
        // Rows got new versions: log numbers in records, lineages and stamps in the log, and
        // identities of log and store, which the first start writes. Old rows are rewritten
        // when they change.
        run: |_| Ok(()),
    },
];

/// Reads the format of a folder, or writes the current one into a new folder. Call
/// it under the folder's lock, after [`check`].
pub fn check_or_write(folder: &Path) -> Result<Format, FormatError> {
    if let Some(format) = check(folder)? {
        return Ok(format);
    }
    let format = Format {
        version: CURRENT,
        written_by: env!("CARGO_PKG_VERSION").to_owned(),
    };
    write(folder, &format).map_err(|source| FormatError::Io {
        folder: folder.to_owned(),
        source,
    })?;
    Ok(format)
}

/// Reads the format of a data folder; returns `None` for a new one, and changes
/// nothing. Call it before the lock is taken too, because the lock creates a file.
pub fn check(folder: &Path) -> Result<Option<Format>, FormatError> {
    match read(folder) {
        Err(FormatError::Missing { .. }) => {}
        done => return done.map(Some),
    }
    let io = |source| FormatError::Io {
        folder: folder.to_owned(),
        source,
    };
    for entry in fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        // An interrupted first start leaves only these.
        if name != LOCK_FILE && name != "format.new" {
            return Err(FormatError::NotOurs {
                folder: folder.to_owned(),
                example: name.to_string_lossy().into_owned(),
            });
        }
    }
    Ok(None)
}

/// Reads the format of a folder, which must be a data folder, and changes nothing.
pub fn read(folder: &Path) -> Result<Format, FormatError> {
    let file = folder.join(FORMAT_FILE);
    let io = |source| FormatError::Io {
        folder: folder.to_owned(),
        source,
    };
    let bytes = match fs::metadata(&file) {
        Ok(data) if data.len() > FILE_BYTES => return Err(FormatError::Damaged { file }),
        Ok(_) => fs::read(&file).map_err(io)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(FormatError::Missing {
                folder: folder.to_owned(),
            });
        }
        Err(error) => return Err(io(error)),
    };
    let Some(format) = parse(&bytes) else {
        return Err(FormatError::Damaged { file });
    };
    if format.version > CURRENT {
        return Err(FormatError::Newer {
            folder: folder.to_owned(),
            found: format.version,
            written_by: format.written_by,
        });
    }
    Ok(format)
}

/// Migrates a folder to the current format, step by step.
pub fn migrate(folder: &Path, format: Format) -> Result<Format, FormatError> {
    migrate_with(folder, format, MIGRATIONS, CURRENT)
}

fn migrate_with(
    folder: &Path,
    mut format: Format,
    steps: &[Migration],
    target: u32,
) -> Result<Format, FormatError> {
    for step in steps {
        if step.from != format.version || format.version >= target {
            continue;
        }
        let failed = |source| FormatError::Migration {
            folder: folder.to_owned(),
            step: step.name,
            from: step.from,
            source,
        };
        (step.run)(folder).map_err(failed)?;
        format = Format {
            version: step.from + 1,
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
        };
        // Only now, so that an interrupted step runs again.
        write(folder, &format).map_err(failed)?;
    }
    Ok(format)
}

fn write(folder: &Path, format: &Format) -> io::Result<()> {
    let text = format!(
        "{MAGIC}\nversion {}\nwritten by {}\n",
        format.version, format.written_by
    );
    durable::write_whole(&folder.join(FORMAT_FILE), text.as_bytes())
}

fn parse(bytes: &[u8]) -> Option<Format> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines();
    if lines.next()? != MAGIC {
        return None;
    }
    let version = lines.next()?.strip_prefix("version ")?.parse().ok()?;
    let written_by = lines
        .next()
        .and_then(|line| line.strip_prefix("written by "))
        .unwrap_or("of an unknown version");
    (version > 0).then(|| Format {
        version,
        written_by: written_by.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_folder_becomes_ours_and_stays_so() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LOCK_FILE), "").unwrap();
        fs::write(folder.path().join("format.new"), "gapless st").unwrap();
        let first = check_or_write(folder.path()).unwrap();
        assert_eq!(first.version, CURRENT);
        fs::write(folder.path().join("engine"), "").unwrap();
        assert_eq!(check_or_write(folder.path()).unwrap(), first);
    }

    #[test]
    fn a_newer_format_is_refused_with_both_versions_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let text = "gapless store\nversion 7\nwritten by 3.2.1\nsomething of the future\n";
        fs::write(folder.path().join(FORMAT_FILE), text).unwrap();
        let refused = check_or_write(folder.path()).unwrap_err().to_string();
        for part in ["format 7", "gapless 3.2.1", "up to 4", "at least as new"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert_eq!(
            fs::read_to_string(folder.path().join(FORMAT_FILE)).unwrap(),
            text
        );
    }

    #[test]
    fn a_folder_of_others_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("thesis.tex"), "").unwrap();
        let refused = check_or_write(folder.path()).unwrap_err();
        assert!(matches!(refused, FormatError::NotOurs { .. }), "{refused}");
        assert!(refused.to_string().contains("thesis.tex"), "{refused}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_understood_is_not_guessed_at() {
        for text in [
            "",
            "gapless store\n",
            "gapless store\nversion 0\n",
            "gapless store\nversion x\n",
            "gapless\nversion 1\n",
            "\u{0}\u{0}\u{0}",
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join(FORMAT_FILE), text).unwrap();
            let refused = check_or_write(folder.path()).unwrap_err();
            assert!(matches!(refused, FormatError::Damaged { .. }), "{text:?}");
        }
    }

    #[test]
    fn every_earlier_version_has_its_step() {
        let steps: Vec<u32> = MIGRATIONS.iter().map(|step| step.from).collect();
        let wanted: Vec<u32> = (1..CURRENT).collect();
        assert_eq!(steps, wanted);
    }

    #[test]
    fn steps_are_taken_in_order_and_a_failed_one_again() {
        let folder = tempfile::tempdir().unwrap();
        check_or_write(folder.path()).unwrap();
        let first = |folder: &Path| fs::write(folder.join("one"), "1");
        let second = |folder: &Path| {
            assert!(folder.join("one").exists(), "in order");
            if folder.join("ready").exists() {
                fs::write(folder.join("two"), "2")
            } else {
                Err(io::Error::other("not yet"))
            }
        };
        let steps = [
            Migration {
                from: 1,
                name: "the first",
                run: first,
            },
            Migration {
                from: 2,
                name: "the second",
                run: second,
            },
        ];
        let format = Format {
            version: 1,
            written_by: String::new(),
        };
        let failed = migrate_with(folder.path(), format, &steps, 3).unwrap_err();
        assert!(failed.to_string().contains("'the second'"), "{failed}");
        let text = fs::read_to_string(folder.path().join(FORMAT_FILE)).unwrap();
        assert!(text.contains("version 2"), "one step was taken: {text}");

        fs::remove_file(folder.path().join("one")).unwrap();
        fs::write(folder.path().join("one"), "kept").unwrap();
        fs::write(folder.path().join("ready"), "").unwrap();
        let format = parse(text.as_bytes()).unwrap();
        let format = migrate_with(folder.path(), format, &steps, 3).unwrap();
        assert_eq!(format.version, 3);
        let one = fs::read_to_string(folder.path().join("one")).unwrap();
        assert_eq!(one, "kept", "a step that was done is not done again");
    }
}
