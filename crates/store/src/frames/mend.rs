//! Removes damaged bytes, and frames without a row of the log, from the segments.
//!
//! Each affected segment is rewritten beside the old one and replaces it in one step,
//! so an interruption leaves the old one or the new one. The remaining frames keep
//! their order and their bytes. For a row whose frame was removed, the firehose sends
//! a `#sync` instead.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::entry::{SEGMENT_HEADER_BYTES, SegmentHeader};
use super::scan::{Scan, ScanItem};
use super::segment::Segment;
use crate::durable;
use crate::error::StoreError;

/// The extension of a segment that is being rewritten.
const NEW_EXTENSION: &str = "new";
/// The number of bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// What a mend removed from the segments, or would remove.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MendReport {
    /// Damaged ranges of bytes.
    pub damaged: u64,
    /// Frames without a row of the log.
    pub strays: u64,
}

/// Decides whether the frame with a number belongs to a row of the log.
pub(super) type BelongsFn<'b> = dyn FnMut(u64) -> Result<bool, StoreError> + 'b;

/// Mends all segments of a folder; only reports what it would remove unless `write` is set.
/// The caller must be the only user of the folder.
pub fn mend(
    folder: &Path,
    belongs: &mut BelongsFn<'_>,
    write: bool,
) -> Result<MendReport, StoreError> {
    let failed = |error: io::Error| {
        StoreError::System(format!("cannot mend {}: {error}", folder.display()).into())
    };
    let mut all = MendReport::default();
    if !folder.is_dir() {
        return Ok(all);
    }
    let segments = Segment::list(folder).map_err(failed)?;
    let last = segments.last().map(|segment| segment.first_seq);
    let mut before = 0;
    for segment in &segments {
        let file = File::open(&segment.path).map_err(failed)?;
        let is_last = Some(segment.first_seq) == last;
        let (found, keep) = scan_segment(segment, &file, is_last, belongs, failed)?;
        if write && found != MendReport::default() {
            rewrite(segment, &file, before, &keep).map_err(failed)?;
            durable::sync_folder(folder).map_err(failed)?;
        }
        all.damaged += found.damaged;
        all.strays += found.strays;
        before = segment.first_seq;
    }
    Ok(all)
}

/// The byte ranges of a segment that stay, in order.
type KeptRanges = Vec<(u64, u64)>;

fn scan_segment(
    segment: &Segment,
    file: &File,
    is_last: bool,
    belongs: &mut BelongsFn<'_>,
    failed: impl Fn(io::Error) -> StoreError,
) -> Result<(MendReport, KeptRanges), StoreError> {
    let (mut found, mut keep) = (MendReport::default(), KeptRanges::new());
    let start = SEGMENT_HEADER_BYTES as u64;
    let mut scan = Scan::new(file, segment.mark, start, segment.bytes());
    while let Some(met) = scan.next().map_err(&failed)? {
        match met {
            // The torn end of the last segment: `Frames::open` cuts it.
            ScanItem::Damaged { until, .. } if is_last && until == segment.bytes() => {}
            ScanItem::Damaged { .. } => found.damaged += 1,
            ScanItem::Entry { at, header, .. } => {
                if !belongs(header.seq)? {
                    found.strays += 1;
                    continue;
                }
                let until = at + header.entry_bytes();
                match keep.last_mut() {
                    Some(stretch) if stretch.1 == at => stretch.1 = until,
                    _ => keep.push((at, until)),
                }
            }
        }
    }
    Ok((found, keep))
}

fn rewrite(segment: &Segment, from: &File, before: u64, keep: &KeptRanges) -> io::Result<()> {
    let header = SegmentHeader {
        mark: segment.mark,
        first_seq: segment.first_seq,
        follows: segment.follows.unwrap_or(before),
        created_ms: segment.created_ms,
    };
    let path = segment.path.with_extension(NEW_EXTENSION);
    let mut new = BufWriter::new(File::create(&path)?);
    new.write_all(&header.encode())?;
    let mut buffer = vec![0; COPY_BYTES];
    for (mut at, until) in keep.iter().copied() {
        while at < until {
            let count = (until - at).min(COPY_BYTES as u64) as usize;
            let piece = &mut buffer[..count];
            from.read_exact_at(piece, at)?;
            new.write_all(piece)?;
            at += count as u64;
        }
    }
    new.into_inner()
        .map_err(io::IntoInnerError::into_error)?
        .sync_all()?;
    fs::rename(&path, &segment.path)
}
