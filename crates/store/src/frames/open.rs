//! Opens the segments, and first removes what must not be there: torn ends, and frames
//! whose batch was never durable.
//!
//! Only the last segment can have either; every other segment was whole when the next
//! one was begun.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::entry::{SEGMENT_HEADER_BYTES, SegmentHeader, SegmentMark};
use super::reader::Segments;
use super::scan::{Scan, ScanItem};
use super::segment::Segment;
use super::{Frames, FramesError, FramesSettings, now_ms};
use crate::durable;

/// The lowest number of the segment that exists while no frames are kept. It is above every
/// number, so readers find nothing, and the next opening drops the segment.
const NEVER: u64 = u64::MAX;

/// What opening the frames found and cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Bytes cut from the last segment: a torn end, or frames of batches that were
    /// never durable.
    pub cut_bytes: u64,
    /// Segments removed because they held only frames of batches that were never durable.
    pub cut_segments: usize,
    /// Damaged ranges in the last segment.
    pub damaged: usize,
    /// Segments dropped because a later one is missing: the kept frames must have no
    /// holes.
    pub dropped_before_hole: usize,
}

impl Frames {
    /// Opens the frames of a data folder. `durable_next_seq` is the number after
    /// the last one that the engine holds: frames at or above it were never
    /// acknowledged and are dropped.
    pub fn open(
        folder: &Path,
        settings: FramesSettings,
        durable_next_seq: u64,
    ) -> Result<Frames, FramesError> {
        let failed = |source| FramesError::Io {
            file: folder.to_owned(),
            source,
        };
        durable::create_folder(folder).map_err(failed)?;
        let mut report = OpenReport::default();
        let mut segments = Segment::list(folder).map_err(failed)?;
        if !settings.keep {
            drop_all(folder, &mut segments).map_err(failed)?;
        }
        drop_beyond(folder, &mut segments, durable_next_seq, &mut report).map_err(failed)?;
        drop_before_hole(folder, &mut segments, &mut report).map_err(failed)?;
        let mut last_seq = durable_next_seq.saturating_sub(1);
        let (active, file) = match segments.pop() {
            Some(last) => {
                let (file, seq) = cut_end(&last, durable_next_seq, &mut report).map_err(failed)?;
                last_seq = last_seq.max(seq);
                (last, file)
            }
            None => {
                let header = SegmentHeader {
                    mark: SegmentMark::random(),
                    first_seq: if settings.keep {
                        durable_next_seq
                    } else {
                        NEVER
                    },
                    follows: 0,
                    created_ms: now_ms(),
                };
                Segment::create(folder, header).map_err(failed)?
            }
        };
        let end = active.bytes();
        let active = Arc::new(active);
        let segments = Segments::new(segments);
        segments.update(|list| list.push(Arc::clone(&active)));
        Ok(Frames {
            folder: folder.to_owned(),
            settings,
            segments: Arc::new(segments),
            active,
            file,
            pending: Vec::new(),
            pending_entries: Vec::new(),
            end,
            last_seq,
            from_the_future: Default::default(),
            latched: None,
            opened: report,
        })
    }
}

/// Removes all segments, the lowest first, so that an interruption leaves no hole.
fn drop_all(folder: &Path, segments: &mut Vec<Segment>) -> io::Result<()> {
    for segment in segments.drain(..) {
        fs::remove_file(&segment.path)?;
        durable::sync_folder(folder)?;
    }
    Ok(())
}

/// Removes segments that begin beyond the durable head or have an incomplete
/// header.
fn drop_beyond(
    folder: &Path,
    segments: &mut Vec<Segment>,
    durable_next_seq: u64,
    report: &mut OpenReport,
) -> io::Result<()> {
    while let Some(last) = segments.last()
        && (last.first_seq >= durable_next_seq || last.bytes() < SEGMENT_HEADER_BYTES as u64)
    {
        if last.bytes() > SEGMENT_HEADER_BYTES as u64 {
            report.cut_segments += 1;
        }
        fs::remove_file(&last.path)?;
        durable::sync_folder(folder)?;
        segments.pop();
    }
    Ok(())
}

/// If a segment does not follow the previous one, a segment between them is missing:
/// drops every segment before the hole.
fn drop_before_hole(
    folder: &Path,
    segments: &mut Vec<Segment>,
    report: &mut OpenReport,
) -> io::Result<()> {
    let follows = |pair: &[Segment]| match pair {
        // A damaged header says nothing; the segment is kept.
        [before, after] => after.follows.is_none_or(|seq| seq == before.first_seq),
        _ => true,
    };
    let Some(hole) = segments.windows(2).rposition(|pair| !follows(pair)) else {
        return Ok(());
    };
    for segment in segments.drain(..=hole) {
        fs::remove_file(&segment.path)?;
        durable::sync_folder(folder)?;
        report.dropped_before_hole += 1;
    }
    Ok(())
}

/// Cuts the last segment after its last durable frame. Returns its file and that
/// frame's number.
fn cut_end(
    last: &Segment,
    durable_next_seq: u64,
    report: &mut OpenReport,
) -> io::Result<(File, u64)> {
    let file = File::options().read(true).write(true).open(&last.path)?;
    let bytes = last.bytes();
    let mut end = SEGMENT_HEADER_BYTES as u64;
    let (mut last_seq, mut damaged, mut entries) = (0, 0, Vec::new());
    let mut scan = Scan::new(&file, last.mark, end, bytes);
    while let Some(met) = scan.next()? {
        match met {
            ScanItem::Entry { header, .. } if header.seq >= durable_next_seq => break,
            ScanItem::Entry { at, header, .. } => {
                entries.push((header.seq, at));
                end = at + header.entry_bytes();
                last_seq = header.seq;
                report.damaged += damaged;
                damaged = 0;
            }
            // Damage counts only if a whole frame follows; otherwise it is the torn end.
            ScanItem::Damaged { .. } => damaged += 1,
        }
    }
    if end < bytes {
        report.cut_bytes = bytes - end;
        file.set_len(end)?;
        file.sync_all()?;
    }
    last.publish(&entries, end);
    Ok((file, last_seq))
}
