//! What a data folder is like before its engine is opened: may it be, and what
//! has to be done first?
//!
//! Looks and changes nothing. The store opens what is sound; a repair starts from
//! what is not.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::durable;
use crate::engine::KEYSPACES_FOLDER;
use crate::head::{Acknowledged, HEAD_FILE, HeadError, HeadFile};
use crate::journal::{self, DAMAGED_FOLDER, Hole, Journal, Lost, Verdict};
use crate::table::Table;

/// The engine's folder in the data folder.
pub const ENGINE_FOLDER: &str = "engine";
/// Written last when the engine makes its files: without it they are not whole.
const ENGINE_MARK: &str = "version";
/// One folder for each table, and one for the engine's own. A format with more
/// tables makes them in its migration.
const TABLE_FOLDERS: usize = Table::ALL.len() + 1;
/// Written last when the engine makes a table.
const TABLE_MARK: &str = "current";
/// There while a repair is under way, or was cut short.
const REPAIR_FILE: &str = "repairing";

/// Why the engine must not be opened as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// A repair was begun and not finished.
    Repairing,
    /// The file with the acknowledged head is not there.
    HeadMissing,
    /// It cannot be read.
    HeadDamaged,
    /// Something was acknowledged, and there is no engine.
    EngineMissing,
    /// It has fewer tables than it made. It would make new, empty ones for them
    /// and pass over what its journals have for the old.
    TablesMissing { found: usize },
    /// Its journals lost something.
    Journals(Lost),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Repairing => f.write_str("a repair was begun and not finished"),
            Trouble::HeadMissing => write!(
                f,
                "the file '{HEAD_FILE}' is missing, so it cannot be told whether everything is there"
            ),
            Trouble::HeadDamaged => write!(
                f,
                "the file '{HEAD_FILE}' is damaged, so it cannot be told whether everything is there"
            ),
            Trouble::EngineMissing => write!(f, "the folder '{ENGINE_FOLDER}' is missing or empty"),
            Trouble::TablesMissing { found } => write!(
                f,
                "only {found} of {TABLE_FOLDERS} tables are in '{ENGINE_FOLDER}'"
            ),
            Trouble::Journals(lost) => lost.fmt(f),
        }
    }
}

/// A data folder as it was found.
#[derive(Debug, Clone)]
pub struct Condition {
    folder: PathBuf,
    pub acknowledged: Option<Acknowledged>,
    /// The engine has made its files.
    pub engine_made: bool,
    pub journals: Vec<Journal>,
    pub trouble: Option<Trouble>,
    /// An end of the journal that nobody was told of.
    torn: Option<Hole>,
}

impl Condition {
    /// Looks at a folder that is ours and locked.
    pub fn of(folder: &Path) -> io::Result<Condition> {
        let engine = folder.join(ENGINE_FOLDER);
        let mut condition = Condition {
            folder: folder.to_owned(),
            acknowledged: None,
            engine_made: engine.join(ENGINE_MARK).try_exists()?,
            journals: Vec::new(),
            trouble: None,
            torn: None,
        };
        condition.read_head()?;
        if condition.engine_made {
            condition.journals = journal::scan(&engine)?;
            condition.count_tables(&engine.join(KEYSPACES_FOLDER))?;
            match journal::judge(&condition.journals, condition.acknowledged) {
                Verdict::Whole => {}
                Verdict::Torn(end) => condition.torn = Some(end),
                Verdict::Lost(lost) => condition.worse(Trouble::Journals(lost)),
            }
        } else if condition.acknowledged.is_some() {
            condition.worse(Trouble::EngineMissing);
        }
        if let Some(noted) = read_mark(folder)? {
            condition.trouble = Some(Trouble::Repairing);
            condition.acknowledged = condition.acknowledged.max(noted);
        }
        Ok(condition)
    }

    fn read_head(&mut self) -> io::Result<()> {
        // It is made before the engine, in its full length.
        let trouble = match fs::metadata(self.folder.join(HEAD_FILE)) {
            Ok(file) if file.len() == 0 => Some(Trouble::HeadDamaged),
            Ok(_) => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Trouble::HeadMissing),
            Err(error) => return Err(error),
        };
        if let Some(trouble) = trouble {
            if self.engine_made {
                self.worse(trouble);
            }
            return Ok(());
        }
        match HeadFile::open(&self.folder) {
            Ok(head) => self.acknowledged = head.last(),
            Err(HeadError::Damaged { .. }) => self.worse(Trouble::HeadDamaged),
            Err(HeadError::Io { source, .. }) => return Err(source),
        }
        Ok(())
    }

    fn count_tables(&mut self, folder: &Path) -> io::Result<()> {
        let written = self.journals.iter().any(|journal| journal.newest.is_some());
        if self.acknowledged.is_none() && !written {
            // Its first start may have been cut short before it had made all.
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
        if found < TABLE_FOLDERS {
            self.worse(Trouble::TablesMissing { found });
        }
        Ok(())
    }

    /// What the journals lost says more than that the head is unknown.
    fn worse(&mut self, trouble: Trouble) {
        self.trouble = Some(trouble);
    }

    /// Does what is harmless and needed before the engine may open its files.
    pub fn prepare(&self) -> io::Result<()> {
        let engine = self.folder.join(ENGINE_FOLDER);
        if let Some(torn) = &self.torn {
            journal::cut_torn_end(torn)?;
        }
        if !self.engine_made && engine.try_exists()? {
            // Its first start was cut short. The engine takes the files of that
            // for those of somebody else and would never open again.
            match self.trouble {
                None => fs::remove_dir_all(&engine)?,
                Some(_) => self.put_aside(&engine)?,
            }
            durable::sync_folder(&self.folder)?;
        }
        durable::create_folder(&engine)
    }

    /// Keeps what may be worth a look.
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

/// From now on nobody but a repair opens the folder.
pub fn begin_repair(folder: &Path, acknowledged: Option<Acknowledged>) -> io::Result<()> {
    let text = match acknowledged {
        Some(Acknowledged { batch, next_seq }) => format!("{batch} {next_seq}\n"),
        None => "unknown\n".to_owned(),
    };
    durable::write_whole(&folder.join(REPAIR_FILE), text.as_bytes())
}

pub fn end_repair(folder: &Path) -> io::Result<()> {
    fs::remove_file(folder.join(REPAIR_FILE))?;
    durable::sync_folder(folder)
}

/// What was acknowledged when the repair began, if one did.
fn read_mark(folder: &Path) -> io::Result<Option<Option<Acknowledged>>> {
    let text = match fs::read_to_string(folder.join(REPAIR_FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut parts = text.split_whitespace().map(str::parse);
    Ok(Some(match (parts.next(), parts.next()) {
        (Some(Ok(batch)), Some(Ok(next_seq))) => Some(Acknowledged { batch, next_seq }),
        _ => None,
    }))
}
