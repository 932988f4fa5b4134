//! Diagnoses a data folder before its engine is opened: may the engine be opened, and what
//! has to be done first?
//!
//! The diagnosis reads and changes nothing. The store opens a sound folder; a repair starts from
//! the diagnosis of an unsound one.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::durable;
use crate::engine::KEYSPACES_FOLDER;
use crate::head::{AcknowledgedHead, HEAD_FILE, HeadError, HeadFile};
use crate::journal::{self, DAMAGED_FOLDER, Hole, Journal, JournalLoss, JournalVerdict};
use crate::table::Table;

/// The engine's folder in the data folder.
pub const ENGINE_FOLDER: &str = "engine";
/// The engine writes this file last when it creates its files; without it they are incomplete.
const ENGINE_MARK: &str = "version";
/// The engine writes this file last when it creates a table.
const TABLE_MARK: &str = "current";
/// Exists while a repair runs, or after one was interrupted.
const REPAIR_FILE: &str = "repairing";

/// Why the store must not open the engine as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// A repair was started and not finished.
    Repairing,
    /// The file with the acknowledged head is missing.
    HeadMissing,
    /// The file with the acknowledged head is damaged.
    HeadDamaged,
    /// Batches were acknowledged, but the engine's files are missing.
    EngineMissing,
    /// The engine has fewer tables than it created. It would create empty ones and
    /// skip what its journals hold for the missing ones.
    TablesMissing { found: usize, expected: usize },
    /// The engine's journals have lost batches or files.
    Journals(JournalLoss),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Repairing => f.write_str("a repair was started and not finished"),
            Problem::HeadMissing => write!(
                f,
                "the file '{HEAD_FILE}' is missing, so Gapless cannot tell whether everything acknowledged is there"
            ),
            Problem::HeadDamaged => write!(
                f,
                "the file '{HEAD_FILE}' is damaged, so Gapless cannot tell whether everything acknowledged is there"
            ),
            Problem::EngineMissing => write!(f, "the folder '{ENGINE_FOLDER}' is missing or empty"),
            Problem::TablesMissing { found, expected } => write!(
                f,
                "only {found} of {expected} tables are in '{ENGINE_FOLDER}'"
            ),
            Problem::Journals(lost) => lost.fmt(f),
        }
    }
}

/// The state of a data folder.
#[derive(Debug, Clone)]
pub struct Diagnosis {
    folder: PathBuf,
    pub acknowledged: Option<AcknowledgedHead>,
    /// Whether the engine has created its files.
    pub engine_made: bool,
    pub journals: Vec<Journal>,
    pub problem: Option<Problem>,
    /// The end of the last journal, if it was torn before it was acknowledged.
    torn: Option<Hole>,
}

impl Diagnosis {
    /// Inspects a data folder of a store format that this process has locked.
    pub fn inspect(folder: &Path, format: u32) -> io::Result<Diagnosis> {
        let engine = folder.join(ENGINE_FOLDER);
        let mut diagnosis = Diagnosis {
            folder: folder.to_owned(),
            acknowledged: None,
            engine_made: engine.join(ENGINE_MARK).try_exists()?,
            journals: Vec::new(),
            problem: None,
            torn: None,
        };
        diagnosis.read_head()?;
        if diagnosis.engine_made {
            diagnosis.journals = journal::scan(&engine)?;
            diagnosis.count_tables(&engine.join(KEYSPACES_FOLDER), format)?;
            match journal::judge(&diagnosis.journals, diagnosis.acknowledged) {
                JournalVerdict::Whole => {}
                JournalVerdict::Torn(end) => diagnosis.torn = Some(end),
                JournalVerdict::Lost(lost) => diagnosis.set_problem(Problem::Journals(lost)),
            }
        } else if diagnosis.acknowledged.is_some() {
            diagnosis.set_problem(Problem::EngineMissing);
        }
        if let Some(noted) = read_repair_mark(folder)? {
            diagnosis.problem = Some(Problem::Repairing);
            diagnosis.acknowledged = diagnosis.acknowledged.max(noted);
        }
        Ok(diagnosis)
    }

    fn read_head(&mut self) -> io::Result<()> {
        // The head file is created before the engine, in its full length.
        let problem = match fs::metadata(self.folder.join(HEAD_FILE)) {
            Ok(file) if file.len() == 0 => Some(Problem::HeadDamaged),
            Ok(_) => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Problem::HeadMissing),
            Err(error) => return Err(error),
        };
        if let Some(problem) = problem {
            if self.engine_made {
                self.set_problem(problem);
            }
            return Ok(());
        }
        match HeadFile::open(&self.folder) {
            Ok(head) => self.acknowledged = head.last(),
            Err(HeadError::Damaged { .. }) => self.set_problem(Problem::HeadDamaged),
            Err(HeadError::Io { source, .. }) => return Err(source),
        }
        Ok(())
    }

    /// Checks that every table of the format is there. A later format's tables are created when the
    /// engine opens.
    fn count_tables(&mut self, folder: &Path, format: u32) -> io::Result<()> {
        let written = self.journals.iter().any(|journal| journal.newest.is_some());
        if self.acknowledged.is_none() && !written {
            // The engine's first start may have ended before it had created all tables.
            return Ok(());
        }
        let mut found = 0;
        match fs::read_dir(folder) {
            Ok(entries) => {
                for entry in entries {
                    found += usize::from(entry?.path().join(TABLE_MARK).try_exists()?);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let tables = Table::ALL.into_iter();
        // One folder more: the engine has one for itself.
        let expected = 1 + tables
            .filter(|table| table.since_format() <= format)
            .count();
        if found < expected {
            self.set_problem(Problem::TablesMissing { found, expected });
        }
        Ok(())
    }

    /// Replaces the problem: a loss in the journals says more than an unknown head.
    fn set_problem(&mut self, problem: Problem) {
        self.problem = Some(problem);
    }

    /// Makes the changes that the engine needs before it opens its files: cuts a torn end of the
    /// journal, and moves or deletes what an interrupted first start left.
    pub fn prepare(&self) -> io::Result<()> {
        let engine = self.folder.join(ENGINE_FOLDER);
        if let Some(torn) = &self.torn {
            journal::cut_torn_end(torn)?;
        }
        if !self.engine_made && engine.try_exists()? {
            // The engine's first start was interrupted. The engine would take its
            // incomplete files for another program's and never open again.
            match self.problem {
                None => fs::remove_dir_all(&engine)?,
                Some(_) => self.put_aside(&engine)?,
            }
            durable::sync_folder(&self.folder)?;
        }
        durable::create_folder(&engine)
    }

    /// Moves the engine's files into the folder for damaged ones.
    fn put_aside(&self, engine: &Path) -> io::Result<()> {
        let keep = self.folder.join(DAMAGED_FOLDER);
        durable::create_folder(&keep)?;
        let mut names = (1..).map(|number: u32| keep.join(format!("{ENGINE_FOLDER}-{number}")));
        match names.find(|name| !name.exists()) {
            Some(name) => fs::rename(engine, name).and_then(|()| durable::sync_folder(&keep)),
            None => Ok(()),
        }
    }
}

/// Marks the folder so that only a repair opens it.
pub(crate) fn begin_repair(
    folder: &Path,
    acknowledged: Option<AcknowledgedHead>,
) -> io::Result<()> {
    let text = match acknowledged {
        Some(AcknowledgedHead { batch, next_seq }) => format!("{batch} {next_seq}\n"),
        None => "unknown\n".to_owned(),
    };
    durable::write_whole(&folder.join(REPAIR_FILE), text.as_bytes())
}

pub(crate) fn end_repair(folder: &Path) -> io::Result<()> {
    fs::remove_file(folder.join(REPAIR_FILE))?;
    durable::sync_folder(folder)
}

/// The acknowledged head when the repair began, if one did.
fn read_repair_mark(folder: &Path) -> io::Result<Option<Option<AcknowledgedHead>>> {
    let text = match fs::read_to_string(folder.join(REPAIR_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut parts = text.split_whitespace().map(str::parse);
    Ok(Some(match (parts.next(), parts.next()) {
        (Some(Ok(batch)), Some(Ok(next_seq))) => Some(AcknowledgedHead { batch, next_seq }),
        _ => None,
    }))
}
