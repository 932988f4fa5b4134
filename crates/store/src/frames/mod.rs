//! Stores verified frames as they were received, by log number, for the firehose that
//! Gapless serves. An LSM tree is a bad place for a queue that is deleted at its
//! head, so frames are in append-only segments beside the engine, and segments are
//! dropped whole.
//!
//! Promises: a frame is durable once [`Frames::sync`] has returned. The writer calls
//! it before the batch that names the frame, so a frame may exist without its batch;
//! opening drops such a frame, so that no number ever has two contents. Opening also
//! cuts a torn end. Reading skips a damaged frame in the middle and reports it, and
//! returns [`FramesError::Gone`] for numbers that were dropped.
//!
//! If the firehose is not served from frames, none are kept; once they are kept
//! again, the window starts empty.
//!
//! Limits: a frame has at most `limits::FRAME_BYTES`, and numbers only grow. After a
//! failed write or fsync no more frames are accepted, because the contents of the
//! file are unknown until it is opened again.

mod entry;
mod mend;
mod open;
mod reader;
mod scan;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use mend::{MendReport, mend};
pub use open::OpenReport;
pub use reader::{Damage, FramesPage, FramesReader, StoredFrame};

use crate::durable;
use entry::{EntryHeader, SegmentHeader, SegmentMark};
use reader::Segments;
use scan::{Scan, ScanItem};
use segment::Segment;

/// The folder's name in the data folder.
pub const FRAMES_FOLDER: &str = "frames";

/// How long frames are kept, and how many bytes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramesSettings {
    /// A new segment begins once the last one has this many bytes.
    pub segment_bytes: u64,
    pub max_age_ms: u64,
    /// The maximum size of all segments together.
    pub max_bytes: u64,
    /// Whether frames are kept. If not, opening deletes the existing ones, and reading
    /// finds none.
    pub keep: bool,
}

impl Default for FramesSettings {
    fn default() -> FramesSettings {
        FramesSettings {
            segment_bytes: 64 << 20,
            max_age_ms: 24 * 60 * 60 * 1000,
            max_bytes: 20_000_000_000,
            keep: true,
        }
    }
}

/// A new segment begins once the last one has this fraction of the maximum age, so that the
/// frames of a quiet stream age out too.
const AGE_PARTS: u64 = 24;

/// Why an operation on frames failed.
#[derive(Debug, thiserror::Error)]
pub enum FramesError {
    #[error(
        "frames from number {from_seq} on were requested, but those below {oldest_seq} are no longer kept"
    )]
    Gone { from_seq: u64, oldest_seq: u64 },
    #[error("a frame with number {seq} came after number {last_seq}: numbers only grow")]
    OutOfOrder { seq: u64, last_seq: u64 },
    #[error("a frame of {bytes} bytes is larger than the limit for frames")]
    TooLarge { bytes: usize },
    #[error("no frames are accepted since a write failed ({why}); restart Gapless")]
    Latched { why: String },
    #[error("cannot use {}: {source}", file.display())]
    Io { file: PathBuf, source: io::Error },
}

/// The only writer of the frames of a data folder.
#[derive(Debug)]
pub struct Frames {
    folder: PathBuf,
    settings: FramesSettings,
    segments: Arc<Segments>,
    /// The last segment, and its file.
    active: Arc<Segment>,
    file: File,
    /// Entries that are not written yet, and their numbers and future offsets.
    pending: Vec<u8>,
    pending_entries: Vec<(u64, u64)>,
    /// The offset at which `pending` will be written.
    end: u64,
    last_seq: u64,
    /// Segments whose creation lies in the future, by their first numbers, and when that was seen.
    from_the_future: BTreeMap<u64, u64>,
    /// Why no more frames are accepted.
    latched: Option<String>,
    opened: OpenReport,
}

impl Frames {
    /// A part of the maximum age: the age of the oldest frame is accurate to that.
    pub(crate) fn part_of_age(&self) -> Duration {
        Duration::from_millis(self.settings.max_age_ms / AGE_PARTS).max(Duration::from_secs(1))
    }

    /// What opening found and cut.
    pub fn opened(&self) -> &OpenReport {
        &self.opened
    }

    /// Returns a handle for reading. There may be many.
    pub fn reader(&self) -> FramesReader {
        FramesReader {
            segments: Arc::clone(&self.segments),
        }
    }

    /// Appends a frame. After the next [`Frames::sync`] the frame is durable and can be
    /// read. Does nothing if frames are not kept.
    pub fn append(&mut self, seq: u64, frame: &[u8]) -> Result<(), FramesError> {
        self.check_latch()?;
        if !self.settings.keep {
            return Ok(());
        }
        if seq <= self.last_seq {
            return Err(FramesError::OutOfOrder {
                seq,
                last_seq: self.last_seq,
            });
        }
        let Some(header) = EntryHeader::of(seq, frame) else {
            return Err(FramesError::TooLarge { bytes: frame.len() });
        };
        let written = self.end + self.pending.len() as u64;
        if written >= self.settings.segment_bytes {
            self.sync()?;
            self.begin_segment(seq, now_ms())?;
        }
        let at = self.end + self.pending.len() as u64;
        self.pending
            .extend_from_slice(&header.encode(self.active.mark));
        self.pending.extend_from_slice(frame);
        self.pending_entries.push((seq, at));
        self.last_seq = seq;
        Ok(())
    }

    /// Makes every appended frame durable.
    pub fn sync(&mut self) -> Result<(), FramesError> {
        self.check_latch()?;
        if self.pending.is_empty() {
            return Ok(());
        }
        self.file
            .write_all_at(&self.pending, self.end)
            .and_then(|()| self.file.sync_data())
            .map_err(|source| self.latch(source))?;
        self.end += self.pending.len() as u64;
        self.active.publish(&self.pending_entries, self.end);
        self.pending.clear();
        self.pending_entries.clear();
        Ok(())
    }

    /// Drops whole segments beyond the maximum age or size. Call it periodically; it is
    /// cheap if there is nothing to drop.
    pub fn trim(&mut self, now_ms: u64) -> Result<(), FramesError> {
        self.check_latch()?;
        let part_ms = self.settings.max_age_ms / AGE_PARTS;
        let active = self.active.clone();
        let aged = now_ms.saturating_sub(self.created_ms(&active, now_ms)) >= part_ms;
        if aged && self.last_seq >= self.active.first_seq {
            self.sync()?;
            self.begin_segment(self.last_seq + 1, now_ms)?;
        }
        let segments = self.segments.current();
        let mut bytes: u64 = segments.iter().map(|segment| segment.bytes()).sum();
        for segment in &segments {
            self.created_ms(segment, now_ms);
        }
        for pair in segments.windows(2) {
            let [oldest, next] = pair else { break };
            // Every frame in the oldest segment was written before the next segment was begun.
            let age = now_ms.saturating_sub(self.created_ms(next, now_ms));
            let aged = age >= self.settings.max_age_ms && !self.segments.is_clock_doubted();
            if !aged && bytes <= self.settings.max_bytes {
                break;
            }
            bytes -= oldest.bytes();
            // Remove the segment from the list first, so that no reader finds it. Sync the folder
            // once per segment, so that a crash cannot bring back an earlier segment without a
            // later one.
            self.segments.update(|list| drop(list.remove(0)));
            fs::remove_file(&oldest.path)
                .and_then(|()| durable::sync_folder(&self.folder))
                .map_err(|source| self.latch(source))?;
        }
        Ok(())
    }

    /// When a segment was created. A segment from the future was created while the clock was wrong:
    /// it ages from the moment at which that is seen.
    fn created_ms(&mut self, segment: &Segment, now_ms: u64) -> u64 {
        if segment.created_ms <= now_ms {
            return segment.created_ms;
        }
        *self
            .from_the_future
            .entry(segment.first_seq)
            .or_insert(now_ms)
    }

    /// Overwrites the bytes of one frame with zeros, durably; its number stays. Returns false if
    /// the frame does not exist or was dropped.
    pub fn redact(&mut self, seq: u64) -> Result<bool, FramesError> {
        self.sync()?;
        let segments = self.segments.current();
        let after = segments.partition_point(|segment| segment.first_seq <= seq);
        let Some(segment) = after.checked_sub(1).and_then(|at| segments.get(at)) else {
            return Ok(false);
        };
        let redacted = redact_in(segment, &[seq]).map_err(|source| FramesError::Io {
            file: segment.path.clone(),
            source,
        })?;
        Ok(redacted > 0)
    }

    /// Overwrites the bytes of many frames with zeros, with two fsyncs for each segment that has
    /// any of them. Returns how many frames were found.
    pub(crate) fn redact_all(&mut self, seqs: &[u64]) -> Result<u64, FramesError> {
        self.sync()?;
        let mut seqs = seqs.to_vec();
        seqs.sort_unstable();
        let mut left = &seqs[..];
        let mut redacted = 0;
        let segments = self.segments.current();
        for (at, segment) in segments.iter().enumerate() {
            let next = segments.get(at + 1).map(|next| next.first_seq);
            let below = left.partition_point(|seq| *seq < segment.first_seq);
            let (_, from_here) = left.split_at(below);
            let end = next.map_or(from_here.len(), |next| {
                from_here.partition_point(|seq| *seq < next)
            });
            let (here, rest) = from_here.split_at(end);
            left = rest;
            if !here.is_empty() {
                redacted += redact_in(segment, here).map_err(|source| FramesError::Io {
                    file: segment.path.clone(),
                    source,
                })?;
            }
        }
        Ok(redacted)
    }

    fn begin_segment(&mut self, first_seq: u64, created_ms: u64) -> Result<(), FramesError> {
        let header = SegmentHeader {
            mark: SegmentMark::random(),
            first_seq,
            follows: self.active.first_seq,
            created_ms,
        };
        let (segment, file) =
            Segment::create(&self.folder, header).map_err(|source| self.latch(source))?;
        self.end = segment.bytes();
        self.file = file;
        self.active = Arc::new(segment);
        let active = Arc::clone(&self.active);
        self.segments.update(|list| list.push(active));
        Ok(())
    }

    fn check_latch(&self) -> Result<(), FramesError> {
        match &self.latched {
            None => Ok(()),
            Some(why) => Err(FramesError::Latched { why: why.clone() }),
        }
    }

    fn latch(&mut self, source: io::Error) -> FramesError {
        self.latched = Some(source.to_string());
        FramesError::Io {
            file: self.active.path.clone(),
            source,
        }
    }
}

/// Overwrites entries in place: bytes first, then their headers. An interruption in
/// between leaves damaged entries, which are not served either.
fn redact_in(segment: &Segment, seqs: &[u64]) -> io::Result<u64> {
    let file = File::options().read(true).write(true).open(&segment.path)?;
    let mut found = Vec::new();
    for seq in seqs {
        let place = segment.offset_before(*seq, &file)?;
        let mut scan = Scan::headers(&file, segment.mark, place, segment.bytes());
        while let Some(met) = scan.next()? {
            let ScanItem::Entry { at, header, .. } = met else {
                continue;
            };
            if header.seq < *seq {
                continue;
            }
            if header.seq == *seq {
                found.push((at, header));
            }
            break;
        }
    }
    if found.is_empty() {
        return Ok(0);
    }
    for (at, header) in &found {
        let payload_at = at + entry::ENTRY_HEADER_BYTES as u64;
        file.write_all_at(&vec![0; header.length as usize], payload_at)?;
    }
    file.sync_data()?;
    for (at, header) in &found {
        file.write_all_at(&header.redact().encode(segment.mark), *at)?;
    }
    file.sync_data()?;
    Ok(found.len() as u64)
}

/// The wall clock in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
