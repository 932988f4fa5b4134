//! One segment file: its name, its header, its length, and a sparse index of its
//! entries.
//!
//! A segment is named after the lowest number that it can hold, in twenty digits, so
//! that names sort as numbers do. The first lookup builds the index by reading all
//! headers; the index has one entry per 64 KiB.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::{
    ENTRY_HEADER_BYTES, EntryHeader, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentMark,
};
use super::scan::{Scan, ScanItem};
use crate::durable;
use crate::sync::Mutex;

const EXTENSION: &str = "seg";
/// The index has one entry per this many bytes.
const INDEX_EVERY_BYTES: u64 = 64 << 10;

/// A segment, shared by the writer and the readers.
#[derive(Debug)]
pub(super) struct Segment {
    pub path: PathBuf,
    pub mark: SegmentMark,
    pub first_seq: u64,
    pub created_ms: u64,
    /// The first number of the previous segment; `None` if the header is damaged.
    pub follows: Option<u64>,
    /// The durable length, up to which the segment may be read.
    bytes: AtomicU64,
    index: Mutex<SparseIndex>,
}

/// The numbers and offsets of some of the entries, in order.
#[derive(Debug, Default)]
struct SparseIndex {
    known: Vec<(u64, u64)>,
    /// The offset up to which the segment is indexed.
    upto: u64,
}

impl SparseIndex {
    fn add(&mut self, seq: u64, at: u64) {
        let far = |&(_, last): &(u64, u64)| at >= last + INDEX_EVERY_BYTES;
        if self.known.last().is_none_or(far) {
            self.known.push((seq, at));
        }
    }
}

impl Segment {
    pub(super) fn path_of(folder: &Path, first_seq: u64) -> PathBuf {
        folder.join(format!("{first_seq:020}.{EXTENSION}"))
    }

    fn new(path: PathBuf, header: SegmentHeader, follows: Option<u64>, bytes: u64) -> Segment {
        Segment {
            path,
            mark: header.mark,
            first_seq: header.first_seq,
            created_ms: header.created_ms,
            follows,
            bytes: AtomicU64::new(bytes),
            index: Mutex::default(),
        }
    }

    /// Creates a segment with a durable header and name.
    pub(super) fn create(folder: &Path, header: SegmentHeader) -> io::Result<(Segment, File)> {
        let path = Segment::path_of(folder, header.first_seq);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        file.write_all_at(&header.encode(), 0)?;
        file.sync_all()?;
        durable::sync_folder(folder)?;
        let bytes = SEGMENT_HEADER_BYTES as u64;
        let segment = Segment::new(path, header, Some(header.follows), bytes);
        Ok((segment, file))
    }

    /// All segments of a folder, lowest first. A segment with a damaged header is
    /// kept, because its entries may still be whole, with a creation time of zero, so
    /// that it is dropped early.
    pub(super) fn list(folder: &Path) -> io::Result<Vec<Segment>> {
        let mut segments = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let Some(first_seq) = seq_in_name(&path) else {
                continue;
            };
            let file = File::open(&path)?;
            let (mark, whole) = read_header(&file)?;
            let header = SegmentHeader {
                mark,
                first_seq,
                follows: 0,
                created_ms: whole.map_or(0, |header| header.created_ms),
            };
            let follows = whole.map(|header| header.follows);
            let bytes = file.metadata()?.len();
            segments.push(Segment::new(path, header, follows, bytes));
        }
        segments.sort_by_key(|segment| segment.first_seq);
        Ok(segments)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Makes durable entries visible to readers.
    pub(super) fn publish(&self, entries: &[(u64, u64)], bytes: u64) {
        let mut index = self.index.lock();
        for (seq, at) in entries {
            index.add(*seq, *at);
        }
        index.upto = bytes;
        drop(index);
        self.bytes.store(bytes, Ordering::Release);
    }

    /// Returns an offset at or shortly before the entry of `seq`.
    pub(super) fn offset_before(&self, seq: u64, file: &File) -> io::Result<u64> {
        let start = SEGMENT_HEADER_BYTES as u64;
        let bytes = self.bytes();
        let mut index = self.index.lock();
        if index.upto < bytes {
            let mut scan = Scan::headers(file, self.mark, index.upto.max(start), bytes);
            while let Some(met) = scan.next()? {
                if let ScanItem::Entry { at, header, .. } = met {
                    index.add(header.seq, at);
                }
            }
            index.upto = bytes;
        }
        let after = index.known.partition_point(|(known, _)| *known <= seq);
        let before = after.checked_sub(1).and_then(|at| index.known.get(at));
        Ok(before.map_or(start, |(_, at)| *at))
    }
}

/// Reads the mark, and the header if it is whole; otherwise the mark is that of the
/// first entry.
fn read_header(file: &File) -> io::Result<(SegmentMark, Option<SegmentHeader>)> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES + ENTRY_HEADER_BYTES];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..)
        && !rest.is_empty()
    {
        match file.read_at(rest, filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    if let Some(header) = SegmentHeader::decode(&bytes) {
        return Ok((header.mark, Some(header)));
    }
    let entry = bytes.get(SEGMENT_HEADER_BYTES..).unwrap_or_default();
    let mark = EntryHeader::decode_any(entry).map(|(mark, _)| mark);
    // Without a mark no entry can be found: a random mark finds none.
    Ok((mark.unwrap_or_else(SegmentMark::random), None))
}

fn seq_in_name(path: &Path) -> Option<u64> {
    if path.extension()?.to_str()? != EXTENSION {
        return None;
    }
    let stem = path.file_stem()?.to_str()?;
    (stem.len() == 20 && stem.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| stem.parse().ok())
        .flatten()
}
