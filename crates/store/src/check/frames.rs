//! Frames beside the engine: each belongs to a row of the log.

use super::{Finding, Progress, Report, TELL_EVERY};
use crate::contents::Contents;
use crate::error::StoreError;
use crate::frames::{FramesError, FramesReader};
use crate::table::log::LogKind;
use crate::table::{Table, key};

const STAGE: &str = "frames";
const PAGE_BYTES: usize = 8 << 20;

pub fn check(
    contents: &Contents,
    frames: &FramesReader,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), StoreError> {
    let end = contents.counters()?.next_seq;
    let mut next = frames.oldest_seq();
    while next < end {
        let page = match frames.read(next, end, PAGE_BYTES) {
            Ok(page) => page,
            // Dropped as too old while we read.
            Err(FramesError::Gone { oldest_seq, .. }) if oldest_seq > next => {
                next = oldest_seq;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for damage in page.damaged {
            report.find(Finding::FrameDamaged {
                file: damage.file.display().to_string(),
                at: damage.at,
                until: damage.until,
            });
        }
        for frame in &page.frames {
            report.frames += 1;
            if !belongs(contents, frame.seq)? {
                report.find(Finding::Frame { seq: frame.seq });
            }
            if report.frames.is_multiple_of(TELL_EVERY) {
                progress(Progress {
                    stage: STAGE,
                    done: frame.seq,
                    of: end,
                });
            }
        }
        next = page.next_seq;
    }
    Ok(())
}

/// Whether a row of the log begins here, or the row that did was lost.
fn belongs(contents: &Contents, seq: u64) -> Result<bool, StoreError> {
    if contents.raw().get(Table::Log, &key::seq(seq))?.is_some() {
        return Ok(true);
    }
    let covering = contents.log_from(seq)?.next().transpose()?;
    Ok(covering.is_some_and(|(first, row)| first < seq && matches!(row.kind, LogKind::Lost(_))))
}
