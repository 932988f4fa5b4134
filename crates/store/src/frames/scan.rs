//! Walks the entries of a segment from a place on, skipping what is damaged.
//!
//! Reads ahead in large pieces. A header that does not check is damage: the walk
//! looks for the next one that does, within the segment, and says what it left
//! out. The last piece of a segment may be damage or merely torn; the walk does
//! not know, whoever calls it does.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::entry::{ENTRY_HEADER_BYTES, EntryHeader, SegmentMark};

/// Read at a time, at the least.
const READ_BYTES: usize = 256 << 10;

/// An entry, or a stretch of damage.
#[derive(Debug, PartialEq, Eq)]
pub enum ScanItem {
    Entry {
        at: u64,
        header: EntryHeader,
        payload: Vec<u8>,
    },
    /// Bytes from `at` up to `until` are no entry any more.
    Damaged { at: u64, until: u64 },
}

/// A walk over a segment's bytes, up to a length that does not grow meanwhile.
pub struct Scan<'f> {
    file: &'f File,
    mark: SegmentMark,
    /// Where the next entry should begin.
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    /// The place in the file of the buffer's first byte.
    buffer_at: u64,
    /// Only headers are wanted: payloads are passed over, unread and unchecked.
    headers_only: bool,
}

impl<'f> Scan<'f> {
    pub fn new(file: &'f File, mark: SegmentMark, at: u64, end: u64) -> Scan<'f> {
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

    pub fn headers(file: &'f File, mark: SegmentMark, at: u64, end: u64) -> Scan<'f> {
        Scan {
            headers_only: true,
            ..Scan::new(file, mark, at, end)
        }
    }

    /// The next entry or piece of damage; none at the end.
    pub fn next(&mut self) -> io::Result<Option<ScanItem>> {
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

    /// Looks for the next whole header after `from`.
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

    /// Bytes of the file, which must lie before the end.
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
