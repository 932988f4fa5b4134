//! Opening the segments: what must not be there is taken away first.
//!
//! Only the last segment can have a torn end or frames whose batch was never
//! durable; the others were whole when the one after them was begun.

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

/// The lowest number of a segment that no frame comes into. It is beyond everything, so
/// nobody is told that there is anything, and the next opening drops it.
const NEVER: u64 = u64::MAX;

/// What opening the frames found and cut.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Bytes of the last segment that were a torn end, or of batches that were
    /// never durable.
    pub cut_bytes: u64,
    /// Segments that held nothing but such.
    pub cut_segments: usize,
    /// Pieces of the last segment that are damaged.
    pub damaged: usize,
    /// Segments that stood before one that is missing. They were dropped: what
    /// is kept must be without holes.
    pub dropped_before_hole: usize,
}

impl Frames {
    /// Opens the frames of a data folder. `durable_next_seq` is the number after
    /// the last that the engine holds: what is at or above it was never
    /// acknowledged and is dropped.
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
            latched: None,
            opened: report,
        })
    }
}

/// Removes all of them, the lowest first: cut short, what is left has no hole.
fn drop_all(folder: &Path, segments: &mut Vec<Segment>) -> io::Result<()> {
    for segment in segments.drain(..) {
        fs::remove_file(&segment.path)?;
        durable::sync_folder(folder)?;
    }
    Ok(())
}

/// Removes segments that were begun beyond the durable head, or not even begun
/// whole.
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

/// Where a segment does not follow the one before it, something between them is
/// missing; what is before the hole is given up.
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

/// Cuts the last segment after its last frame that counts. Returns its file and
/// that frame's number.
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
            // Only if a whole frame follows; otherwise it is the torn end.
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
