//! Checks that every frame belongs to a row of the log.

use super::{CheckReport, Finding, PROGRESS_ROWS, Progress};
use crate::error::StoreError;
use crate::frames::{FramesError, FramesReader};
use crate::read_view::ReadView;
use crate::table::log::LogKind;
use crate::table::{Table, key};

const STAGE: &str = "frames";
const PAGE_BYTES: usize = 8 << 20;

/// Whether a row of this kind stands for rows that had frames.
pub(crate) fn covers_others(kind: LogKind) -> bool {
    matches!(kind, LogKind::Lost(_) | LogKind::Trimmed(_))
}

pub(super) fn check(
    view: &ReadView,
    frames: &FramesReader,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), StoreError> {
    let end = view.counters()?.next_seq;
    let mut next = frames.oldest_seq();
    while next < end {
        let page = match frames.read(next, end, PAGE_BYTES) {
            Ok(page) => page,
            // The segment was dropped as too old during the check.
            Err(FramesError::Gone { oldest_seq, .. }) if oldest_seq > next => {
                next = oldest_seq;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for damage in page.damaged {
            report.add(Finding::FrameDamaged {
                file: damage.file.display().to_string(),
                at: damage.at,
                until: damage.until,
            });
        }
        for frame in &page.frames {
            report.frames += 1;
            if !belongs(view, frame.seq)? {
                report.add(Finding::Frame { seq: frame.seq });
            }
            if report.frames.is_multiple_of(PROGRESS_ROWS) {
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

/// Whether a row of the log begins at `seq`, or a `lost` or `trimmed` row covers it.
fn belongs(view: &ReadView, seq: u64) -> Result<bool, StoreError> {
    if view.raw().get(Table::Log, &key::seq(seq))?.is_some() {
        return Ok(true);
    }
    let covering = view.log_from(seq)?.next().transpose()?;
    Ok(covering.is_some_and(|(first, row)| first < seq && covers_others(row.kind)))
}
