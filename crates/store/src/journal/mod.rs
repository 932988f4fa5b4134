//! Looks through the engine's journals before the engine does.
//!
//! What the engine makes of a damaged journal (fjall 3.1, read and tried):
//!
//! - A broken tag or length ends the replay of that file, silently, and the file
//!   is cut there: every later batch in it is lost, and so is the evidence. It
//!   cannot be told from a torn end, which is handled the same way (its issue
//!   311). A broken value is noticed by its checksum, and then nothing opens.
//! - Journals are replayed one after the other. Damage in one that is not the
//!   last loses the rest of that one only: the last row of `meta`, and with it
//!   the engine's idea of its own head, comes whole from the journal after it.
//!   Comparing heads does not show such a loss.
//! - Each keyspace skips what its own tables have. After damage, those that were
//!   flushed lately have everything and the others do not: records may be newer
//!   than the row of their repository, an index may name what is not there. No
//!   batch is whole any more in that case.
//! - A power cut may keep the last pages of the last batch and lose the first
//!   ones. Such a torn end is no damage, nobody was told of it, but its checksum
//!   stops the engine.
//!
//! So every batch is read here first, with its checksum and the number that every
//! batch of ours carries. A torn end that nobody was told of is cut. Everything
//! else that is missing is a [`JournalLoss`]: it is reported, and the files stay as they are
//! for `gapless store repair`.
//!
//! Limits: it reads up to the size of the journals once more at each start. It
//! sees the journals, not the tables: those have checksums that show when they
//! are read. After a failed fsync it reads what the operating system still has in
//! memory, which may be more than the disk has; a later start tells.

mod batch;
mod cut;
mod scan;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use cut::{DAMAGED_FOLDER, cut_torn_end, excise};
pub use scan::{Journal, JournalGap, Tail, scan};

use crate::head::AcknowledgedHead;

/// Damage: what stood here was whole once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    pub file: PathBuf,
    pub at: u64,
    pub until: u64,
}

/// What the journals have lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalLoss {
    pub holes: Vec<Hole>,
    /// The first and the last batch that are missing, where that is known.
    pub batches: Option<(u64, u64)>,
    /// Files that are not there: the first and the last number.
    pub files: Option<(u64, u64)>,
}

impl JournalLoss {
    fn add_batches(&mut self, first: u64, last: u64) {
        self.batches = Some(widen(self.batches, first, last));
    }

    fn add_files(&mut self, first: u64, last: u64) {
        self.files = Some(widen(self.files, first, last));
    }

    fn is_empty(&self) -> bool {
        *self == JournalLoss::default()
    }
}

/// The range, widened so that it holds another one.
fn widen(range: Option<(u64, u64)>, first: u64, last: u64) -> (u64, u64) {
    range.map_or((first, last), |(low, high)| {
        (low.min(first), high.max(last))
    })
}

impl fmt::Display for JournalLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |one: &str, many: &str, (first, last): (u64, u64)| {
            if first == last {
                format!("{one} {first} is missing")
            } else {
                format!("{many} {first} to {last} are missing")
            }
        };
        let mut parts = Vec::new();
        parts.extend(self.batches.map(|range| span("batch", "batches", range)));
        parts.extend(self.files.map(|range| span("journal", "journals", range)));
        for hole in &self.holes {
            parts.push(format!(
                "{} is damaged from byte {} to {}",
                hole.file.display(),
                hole.at,
                hole.until
            ));
        }
        f.write_str(&parts.join("; "))
    }
}

/// Whether the engine may open its journals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalVerdict {
    /// The engine may open them.
    Whole,
    /// Whole but for an end that nobody was told of: cut it first.
    Torn(Hole),
    Lost(JournalLoss),
}

/// Reads all journals of an engine's folder and judges them by what was
/// acknowledged.
pub fn inspect(
    engine: &Path,
    acknowledged: Option<AcknowledgedHead>,
) -> io::Result<JournalVerdict> {
    Ok(judge(&scan(engine)?, acknowledged))
}

/// The judgement alone.
pub fn judge(journals: &[Journal], acknowledged: Option<AcknowledgedHead>) -> JournalVerdict {
    let mut lost = JournalLoss::default();
    let (mut newest, mut torn, mut before) = (None, None, None::<u64>);
    for (place, journal) in journals.iter().enumerate() {
        if let Some(id) = before
            && journal.id > id + 1
        {
            lost.add_files(id + 1, journal.id - 1);
        }
        before = Some(journal.id);
        newest = journal.newest.or(newest);
        let hole = |at, until| Hole {
            file: journal.path.clone(),
            at,
            until,
        };
        if let Some(gap) = journal.gap {
            lost.holes.push(hole(gap.at, gap.until));
            if let (Some(before), Some(after)) = (gap.before, gap.after)
                && after > before + 1
            {
                lost.add_batches(before + 1, after - 1);
            }
        }
        match journal.tail {
            Tail::Clean => {}
            // Only the last one was still being written.
            Tail::Broken { at, until } if place + 1 == journals.len() => {
                torn = Some(hole(at, until));
            }
            Tail::Broken { at, until } => lost.holes.push(hole(at, until)),
        }
    }
    match (acknowledged, newest) {
        (Some(acknowledged), Some(newest)) if newest < acknowledged.batch => {
            lost.add_batches(newest + 1, acknowledged.batch);
        }
        // The engine never lets go of its last journal.
        (Some(_), None) if journals.is_empty() => lost.add_files(0, 0),
        _ => {}
    }
    if lost.is_empty() {
        return torn.map_or(JournalVerdict::Whole, JournalVerdict::Torn);
    }
    lost.holes.extend(torn);
    JournalVerdict::Lost(lost)
}
