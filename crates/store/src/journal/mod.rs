//! Verifies the engine's journals before the engine opens them.
//!
//! What the engine does with a damaged journal (fjall 3.1, by its source and by
//! experiment):
//!
//! - A broken tag or length silently ends the replay of that file, and the engine cuts the file
//!   there: every later batch in it is lost, and so is the evidence. The engine cannot tell such
//!   damage from a torn end, which it handles in the same way (fjall issue 311). A broken value
//!   fails its checksum, and then the engine does not open at all.
//! - Journals are replayed one after the other. Damage in a journal that is not the
//!   last loses the rest of that journal only: the last row of `meta`, and with it
//!   the engine's own head, comes whole from the next journal. Comparing heads does
//!   not show such a loss.
//! - Each keyspace skips what its own tables have. After damage, recently flushed
//!   keyspaces have everything and the others do not: records may be newer than the
//!   row of their repository, and an index may name a missing row. Batches are no
//!   longer whole in that case.
//! - A power cut may keep the last pages of the last batch and lose the first
//!   ones. Such a torn end is not damage, because it was never acknowledged, but its
//!   checksum stops the engine.
//!
//! Therefore this module reads every batch first, with its checksum and the number
//! that every batch of the store carries. A torn end that was never acknowledged is
//! cut. Everything else that is missing is a [`JournalLoss`]: it is reported, and the
//! files stay as they are for `gapless store repair`.
//!
//! Limits: each start reads the journals once more. Only the journals are verified;
//! tables have checksums of their own, which fail when a table is read. After a failed
//! fsync this module reads what the operating system still has in memory, which may
//! be more than the disk has; a later start finds the loss.

mod batch;
mod cut;
mod scan;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use cut::{DAMAGED_FOLDER, cut_torn_end, excise};
pub use scan::{Journal, JournalGap, Tail, scan};

use crate::head::AcknowledgedHead;

/// A range of bytes in a journal that is not a whole batch.
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
    /// The first and the last missing batch, if known.
    pub batches: Option<(u64, u64)>,
    /// The numbers of the first and the last missing file.
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
    /// The end is torn and was never acknowledged; the caller must cut it first.
    Torn(Hole),
    /// Something acknowledged is missing; the engine must not open the journals.
    Lost(JournalLoss),
}

/// Reads all journals of an engine's folder and compares them with the acknowledged
/// head.
pub fn inspect(
    engine: &Path,
    acknowledged: Option<AcknowledgedHead>,
) -> io::Result<JournalVerdict> {
    Ok(judge(&scan(engine)?, acknowledged))
}

/// Compares journals that are read already with the acknowledged head.
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
            // Only the last journal was still being written.
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
        // The engine never removes its last journal.
        (Some(_), None) if journals.is_empty() => lost.add_files(0, 0),
        _ => {}
    }
    if lost.is_empty() {
        return torn.map_or(JournalVerdict::Whole, JournalVerdict::Torn);
    }
    lost.holes.extend(torn);
    JournalVerdict::Lost(lost)
}
