//! Every limit that this crate enforces on bytes from outside, by name.
//!
//! Where the protocol gives a number, that number is used. Elsewhere the limit is far
//! above any honest value and far below any dangerous one. The odds quoted for tree
//! shapes follow from the key hash (fan-out four).

/// One WebSocket message. The protocol's hard limit is 5 MB.
pub const FRAME_BYTES: usize = 5_000_000;
/// The `blocks` field of a `#commit`. The protocol's limit is 2,000,000 bytes of block
/// payload. A reference PDS counts payload without CAR overhead, so a legal commit can be
/// longer on the wire; the limit allows for the overhead so that no such commit is lost.
pub const COMMIT_BLOCKS_BYTES: usize = 2_500_000;
/// The `blocks` field of a `#sync`. The lexicon says 10 kB, but relays pass up to 2 MB,
/// and reading them costs nothing.
pub const SYNC_BLOCKS_BYTES: usize = 2_500_000;
/// Operations in one commit.
pub const COMMIT_OPS: usize = 200;
/// One record block (1 MiB; the guide and the deployed code agree on no less).
pub const RECORD_BYTES: usize = 1 << 20;
/// One block of any kind in a CAR. Tree nodes may become larger than records if an
/// account mines keys of height zero.
pub const BLOCK_BYTES: usize = 2 << 20;
/// The header of a CAR file.
pub const CAR_HEADER_BYTES: usize = 4096;
/// Roots named by a CAR header.
pub const CAR_ROOTS: usize = 16;
/// A CAR that is read from memory. Larger ones must be streamed.
pub(crate) const CAR_SLICE_BYTES: usize = u32::MAX as usize;
/// Blocks in one CAR. The largest repositories known hold single-digit millions
/// of records, and about a third as many nodes.
pub const CAR_BLOCKS: usize = 64_000_000;
/// Bytes of an unsigned varint: 64 bits, no longer.
pub const VARINT_BYTES: usize = 10;
/// Nested arrays and maps in a strict value. The guide says 32; real records are
/// occasionally deeper, and 64 levels of recursion are safe on any stack.
pub const NESTING: usize = 64;
/// Items in one array or map.
pub const CONTAINER_ITEMS: usize = 131_072;
/// Entries in one tree node. The chance of 1,024 by accident is 0.75^1024.
pub const NODE_ENTRIES: usize = 1024;
/// Height of a tree. 4^40 hashes would be needed to mine a key this high.
pub(crate) const TREE_HEIGHT: u32 = 40;
/// Bytes of a tree key. Legal paths end at 830; both reference libraries allow 1024.
pub const KEY_BYTES: usize = 1024;
/// Bytes of all keys that one partial tree holds while operations are undone or applied.
/// Prefix compression can expand one byte on the wire to ten bytes of keys, and a commit
/// carries at most 2.5 MB.
pub(crate) const TREE_KEY_BYTES: usize = 256 << 20;
/// Bytes of a DID document. Documents of the PLC directory have at most 8 kB.
pub const DID_DOCUMENT_BYTES: usize = 256 << 10;
/// Names, keys or services in a DID document. The PLC directory allows ten.
pub(crate) const DID_DOCUMENT_ENTRIES: usize = 1000;
/// Bytes of the audit log of one DID.
pub const AUDIT_LOG_BYTES: usize = 1 << 20;
/// Operations in an audit log: as many as [`AUDIT_LOG_BYTES`] hold, at 500 bytes each.
pub(crate) const AUDIT_LOG_ENTRIES: usize = 2000;
/// Bytes of a DID. Supported ones are far shorter; AT-URIs may name others.
pub const DID_BYTES: usize = 2048;
/// Bytes of a handle, as of any DNS name.
pub(crate) const HANDLE_BYTES: usize = 253;
/// Bytes of an NSID: an authority of 253, a dot, a name of 63.
pub const NSID_BYTES: usize = 317;
/// Bytes of a record key.
pub const RECORD_KEY_BYTES: usize = 512;
/// Bytes of an AT-URI.
pub(crate) const AT_URI_BYTES: usize = 8192;
/// Characters of a public key in base58 (an uncompressed point has 89). Decoding takes
/// quadratic time.
pub(crate) const KEY_TEXT_BYTES: usize = 128;
/// Bytes of a PDS address: a host name of 253, a scheme and a port.
pub(crate) const ENDPOINT_BYTES: usize = 300;
/// How far a rev may be ahead of the clock. A rev from further in the future is refused:
/// once stored, it would make every honest later commit a replay.
pub const REV_FUTURE_MICROS: u64 = 5 * 60 * 1_000_000;
