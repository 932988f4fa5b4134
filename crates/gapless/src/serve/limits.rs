//! Every bound on what is served, by name.

/// Entries of `listRepos`: the lexicon's numbers.
pub const REPOS_PAGE: usize = 500;
pub const REPOS_LONGEST: usize = 1000;
/// Entries of `listReposByCollection`: the lexicon's numbers.
pub const BY_COLLECTION_PAGE: usize = 500;
pub const BY_COLLECTION_LONGEST: usize = 2000;
/// Entries of `listRecords`: the lexicon's numbers.
pub const RECORDS_PAGE: usize = 50;
pub const RECORDS_LONGEST: usize = 100;
/// Repositories that one page of a listing looks at: when few of them belong into it
/// the page is short, or empty, and has a cursor all the same.
pub const LOOKED_AT: usize = 5_000;
/// Bytes of records after which a page of `listRecords` ends.
pub const RECORDS_BYTES: usize = 8 << 20;
/// Collections that `describeRepo` names.
pub const COLLECTIONS: usize = 1_000;
/// CIDs of one `getBlocks`.
pub const BLOCKS: usize = 256;
/// Bytes of its answer.
pub const BLOCKS_BYTES: usize = 32 << 20;
/// Records that are sent before it is seen whether they may still be shown.
pub const LOOK_RECORDS: usize = 2_000;
/// Records that are read from one view: a multiple of those.
pub const PART_RECORDS: usize = 10 * LOOK_RECORDS;
/// Bytes of a piece of an answer that is streamed, and pieces that wait for a reader.
pub const PIECE_BYTES: usize = 256 << 10;
pub const PIECES: usize = 4;
/// What all trees may take that are kept or in use: those of ten million records.
pub const TREES_BYTES: u64 = 1 << 30;
