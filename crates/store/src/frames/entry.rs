//! The format of a segment and its entries: each frame is a header, which can be found
//! again after damage, and the bytes.
//!
//! ```text
//! entry   = mark u64 · length u32 · seq u64 · flags u32 · payload crc u32 · header crc u32 · payload
//! segment = "GPLSFRAM" · version u32 · mark u64 · first seq u64 · follows u64 · created ms u64 · crc u32, then entries
//! ```
//!
//! Integers are little-endian. Header and payload have a checksum each: a damaged
//! payload costs its own entry, a damaged header is skipped by searching for the
//! next mark. The mark is a random number of each segment: frames are untrusted
//! bytes, and a frame that contains the bytes of an entry must never be read as two.
//! A redacted entry keeps its place and number; its bytes are zeros.

use std::hash::{BuildHasher, RandomState};

use gapless_atp::limits::FRAME_BYTES;

pub(super) const ENTRY_HEADER_BYTES: usize = 32;
pub(super) const SEGMENT_HEADER_BYTES: usize = 48;

const SEGMENT_MAGIC: &[u8; 8] = b"GPLSFRAM";
const SEGMENT_VERSION: u32 = 1;
const REDACTED: u32 = 1;

/// The random number that begins every entry of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentMark(pub [u8; 8]);

impl SegmentMark {
    pub(super) const BYTES: usize = 8;

    /// Creates a mark that the senders of frames cannot guess.
    pub(super) fn random() -> SegmentMark {
        SegmentMark(RandomState::new().hash_one(0_u64).to_le_bytes())
    }

    /// The offset of the first mark in `bytes`.
    pub(super) fn find(&self, bytes: &[u8]) -> Option<usize> {
        bytes
            .windows(SegmentMark::BYTES)
            .position(|window| window == self.0)
    }
}

/// The header before the bytes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryHeader {
    pub seq: u64,
    pub length: u32,
    pub redacted: bool,
    payload_crc: u32,
}

impl EntryHeader {
    pub(super) fn of(seq: u64, payload: &[u8]) -> Option<EntryHeader> {
        let length = u32::try_from(payload.len()).ok()?;
        (payload.len() <= FRAME_BYTES).then(|| EntryHeader {
            seq,
            length,
            redacted: false,
            payload_crc: crc32fast::hash(payload),
        })
    }

    /// The header of this entry once its payload is all zeros.
    pub(super) fn redact(self) -> EntryHeader {
        let zeros = vec![0; self.length as usize];
        EntryHeader {
            redacted: true,
            payload_crc: crc32fast::hash(&zeros),
            ..self
        }
    }

    /// Bytes of header and payload together.
    pub(super) fn entry_bytes(&self) -> u64 {
        ENTRY_HEADER_BYTES as u64 + u64::from(self.length)
    }

    pub(super) fn encode(&self, mark: SegmentMark) -> [u8; ENTRY_HEADER_BYTES] {
        let mut bytes = [0; ENTRY_HEADER_BYTES];
        let flags = if self.redacted { REDACTED } else { 0 };
        let (body, crc) = bytes.split_at_mut(ENTRY_HEADER_BYTES - 4);
        let fields = mark
            .0
            .into_iter()
            .chain(self.length.to_le_bytes())
            .chain(self.seq.to_le_bytes())
            .chain(flags.to_le_bytes())
            .chain(self.payload_crc.to_le_bytes());
        for (to, from) in body.iter_mut().zip(fields) {
            *to = from;
        }
        crc.copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        bytes
    }

    /// Decodes a header of this segment. Returns `None` for any other bytes and for a damaged
    /// header.
    pub(super) fn decode(bytes: &[u8], mark: SegmentMark) -> Option<EntryHeader> {
        let (found, header) = EntryHeader::decode_any(bytes)?;
        (found == mark).then_some(header)
    }

    /// Decodes a header with any mark, and returns that mark too.
    pub(super) fn decode_any(bytes: &[u8]) -> Option<(SegmentMark, EntryHeader)> {
        let bytes = bytes.first_chunk::<ENTRY_HEADER_BYTES>()?;
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (mark, rest) = body.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (seq, rest) = rest.split_first_chunk::<8>()?;
        let (flags, rest) = rest.split_first_chunk::<4>()?;
        let (payload_crc, _) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length);
        if length as usize > FRAME_BYTES {
            return None;
        }
        let header = EntryHeader {
            seq: u64::from_le_bytes(*seq),
            length,
            redacted: u32::from_le_bytes(*flags) & REDACTED != 0,
            payload_crc: u32::from_le_bytes(*payload_crc),
        };
        Some((SegmentMark(*mark), header))
    }

    pub(super) fn fits(&self, payload: &[u8]) -> bool {
        payload.len() == self.length as usize && crc32fast::hash(payload) == self.payload_crc
    }
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub mark: SegmentMark,
    /// The lowest number that a frame in the segment can have.
    pub first_seq: u64,
    /// The first number of the previous segment; zero if there was none. Shows whether
    /// a segment in between is missing.
    pub follows: u64,
    /// When the segment was begun. The frames in the previous segment are not younger.
    pub created_ms: u64,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let (body, crc) = bytes.split_at_mut(SEGMENT_HEADER_BYTES - 4);
        let fields = SEGMENT_MAGIC
            .iter()
            .copied()
            .chain(SEGMENT_VERSION.to_le_bytes())
            .chain(self.mark.0)
            .chain(self.first_seq.to_le_bytes())
            .chain(self.follows.to_le_bytes())
            .chain(self.created_ms.to_le_bytes());
        for (to, from) in body.iter_mut().zip(fields) {
            *to = from;
        }
        crc.copy_from_slice(&crc32fast::hash(body).to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let bytes = bytes.first_chunk::<SEGMENT_HEADER_BYTES>()?;
        let (body, crc) = bytes.split_last_chunk::<4>()?;
        if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
            return None;
        }
        let (magic, rest) = body.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk::<4>()?;
        let (mark, rest) = rest.split_first_chunk::<8>()?;
        let (first_seq, rest) = rest.split_first_chunk::<8>()?;
        let (follows, rest) = rest.split_first_chunk::<8>()?;
        let (created_ms, _) = rest.split_first_chunk::<8>()?;
        if magic != SEGMENT_MAGIC || u32::from_le_bytes(*version) != SEGMENT_VERSION {
            return None;
        }
        Some(SegmentHeader {
            mark: SegmentMark(*mark),
            first_seq: u64::from_le_bytes(*first_seq),
            follows: u64::from_le_bytes(*follows),
            created_ms: u64::from_le_bytes(*created_ms),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_every_flipped_bit_is_seen() {
        let entry = EntryHeader::of(77, b"a frame").unwrap();
        let mark = SegmentMark::random();
        let bytes = entry.encode(mark);
        assert_eq!(EntryHeader::decode(&bytes, mark), Some(entry));
        assert_eq!(EntryHeader::decode(&bytes, SegmentMark::random()), None);
        let segment = SegmentHeader {
            mark,
            first_seq: 5,
            follows: 3,
            created_ms: 1_700_000_000_000,
        };
        let segment_bytes = segment.encode();
        assert_eq!(SegmentHeader::decode(&segment_bytes), Some(segment));
        for bit in 0..ENTRY_HEADER_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(EntryHeader::decode_any(&damaged), None, "bit {bit}");
        }
        for bit in 0..SEGMENT_HEADER_BYTES * 8 {
            let mut damaged = segment_bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(SegmentHeader::decode(&damaged), None, "bit {bit}");
        }
    }

    #[test]
    fn a_payload_fits_only_its_header() {
        let entry = EntryHeader::of(1, b"a frame").unwrap();
        assert!(entry.fits(b"a frame"));
        assert!(!entry.fits(b"a frane"));
        assert!(!entry.fits(b"a fram"));
        assert!(entry.redact().fits(&[0; 7]));
        assert!(EntryHeader::of(1, &vec![0; FRAME_BYTES + 1]).is_none());
    }
}
