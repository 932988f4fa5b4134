//! Scans the entries of a segment from an offset on and skips what is damaged.
//!
//! The scan reads ahead in large pieces. If the checksum of a header is wrong, the
//! scan searches the segment for the next valid header and reports the range that it
//! skipped. The last range of a segment may be damaged or merely torn; only the
//! caller can tell which.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::entry::{ENTRY_HEADER_BYTES, EntryHeader, SegmentMark};

/// The minimum number of bytes to read at a time.
const READ_BYTES: usize = 256 << 10;

/// An entry, or a damaged range.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScanItem {
    Entry {
        at: u64,
        header: EntryHeader,
        payload: Vec<u8>,
    },
    /// Bytes from `at` up to `until`, which hold no valid entry.
    Damaged { at: u64, until: u64 },
}

/// A scan over the entries of a segment, up to a fixed length.
pub(super) struct Scan<'f> {
    file: &'f File,
    mark: SegmentMark,
    /// Where the next entry should begin.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    /// The offset in the file of the buffer's first byte.
    buffer_at: u64,
    /// Whether payloads are skipped, without being read or verified.
    headers_only: bool,
}

impl<'f> Scan<'f> {
    pub(super) fn new(file: &'f File, mark: SegmentMark, at: u64, end: u64) -> Scan<'f> {
        Scan {
            file,
            mark,
            at,
            end,
            buffer: Vec::new(),
            buffer_at: at,
            headers_only: false,
        }
    }

    pub(super) fn headers(file: &'f File, mark: SegmentMark, at: u64, end: u64) -> Scan<'f> {
        Scan {
            headers_only: true,
            ..Scan::new(file, mark, at, end)
        }
    }

    /// Returns the next entry or damaged range; `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<ScanItem>> {
        let at = self.at;
        if at >= self.end {
            return Ok(None);
        }
        let Some(header) = self.header_at(at)? else {
            return self.skip_damage(at).map(Some);
        };
        let until = at + header.entry_bytes();
        if until > self.end {
            return self.skip_damage(at).map(Some);
        }
        let payload = if self.headers_only {
            Vec::new()
        } else {
            let start = at + ENTRY_HEADER_BYTES as u64;
            let payload = self.bytes(start, header.length as usize)?.to_vec();
            if !header.fits(&payload) {
                self.at = until;
                return Ok(Some(ScanItem::Damaged { at, until }));
            }
            payload
        };
        self.at = until;
        Ok(Some(ScanItem::Entry {
            at,
            header,
            payload,
        }))
    }

    fn header_at(&mut self, at: u64) -> io::Result<Option<EntryHeader>> {
        if self.end - at < ENTRY_HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mark = self.mark;
        let bytes = self.bytes(at, ENTRY_HEADER_BYTES)?;
        Ok(EntryHeader::decode(bytes, mark))
    }

    /// Searches for the next valid header after `from`.
    fn skip_damage(&mut self, from: u64) -> io::Result<ScanItem> {
        let mut at = from + 1;
        while self.end.saturating_sub(at) >= ENTRY_HEADER_BYTES as u64 {
            let window = (self.end - at).min(READ_BYTES as u64) as usize;
            let mark = self.mark;
            let Some(found) = mark.find(self.bytes(at, window)?) else {
                // A mark may lie across the border of two windows.
                at += (window - (SegmentMark::BYTES - 1)) as u64;
                continue;
            };
            at += found as u64;
            match self.header_at(at)? {
                Some(header) if at + header.entry_bytes() <= self.end => {
                    self.at = at;
                    return Ok(ScanItem::Damaged {
                        at: from,
                        until: at,
                    });
                }
                _ => at += 1,
            }
        }
        self.at = self.end;
        Ok(ScanItem::Damaged {
            at: from,
            until: self.end,
        })
    }

    /// Reads bytes of the file, which must be before the end.
    fn bytes(&mut self, at: u64, length: usize) -> io::Result<&[u8]> {
        let inside =
            at >= self.buffer_at && at + length as u64 <= self.buffer_at + self.buffer.len() as u64;
        if !inside {
            let wanted = (self.end - at).min(length.max(READ_BYTES) as u64) as usize;
            self.buffer.resize(wanted, 0);
            self.buffer_at = at;
            self.file.read_exact_at(&mut self.buffer, at)?;
        }
        let start = (at - self.buffer_at) as usize;
        self.buffer
            .get(start..start + length)
            .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}
