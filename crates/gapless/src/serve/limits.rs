//! The limits of what is served that no configuration changes.

/// The default and the largest `limit` of `listRepos`, as in the lexicon.
pub(crate) const REPOS_DEFAULT_LIMIT: usize = 500;
pub(crate) const REPOS_MAX_LIMIT: usize = 1000;
/// The default and the largest `limit` of `listReposByCollection`, as in the lexicon.
pub(crate) const BY_COLLECTION_DEFAULT_LIMIT: usize = 500;
pub(crate) const BY_COLLECTION_MAX_LIMIT: usize = 2000;
/// The default and the largest `limit` of `listRecords`, as in the lexicon.
pub(crate) const RECORDS_DEFAULT_LIMIT: usize = 50;
pub(crate) const RECORDS_MAX_LIMIT: usize = 100;
/// Repositories that one page of a listing scans. If few of them belong to the list, the
/// page is short or empty, and still has a cursor.
pub(crate) const REPOS_SCANNED_PER_PAGE: usize = 5_000;
/// Bytes of records after which a page of `listRecords` ends.
pub(crate) const RECORDS_PAGE_BYTES: usize = 8 << 20;
/// Reads that find the collections of one repository.
pub(crate) const COLLECTION_SEEKS: usize = 5_000;
/// Collections that `describeRepo` lists.
pub(crate) const MAX_COLLECTIONS: usize = 1_000;
/// CIDs of one `getBlocks` request.
pub(crate) const MAX_BLOCKS: usize = 256;
/// Bytes of one `getBlocks` response.
pub(crate) const MAX_BLOCKS_BYTES: usize = 32 << 20;
/// Records that an export sends between two checks that the account is not hidden.
pub(crate) const RECORDS_PER_CHECK: usize = 2_000;
/// Records that an export reads from one view; a multiple of the number above.
pub(crate) const RECORDS_PER_VIEW: usize = 10 * RECORDS_PER_CHECK;
/// Bytes of a piece of an export, and pieces that wait for the reader.
pub(crate) const PIECE_BYTES: usize = 256 << 10;
pub(crate) const QUEUED_PIECES: usize = 4;
/// Bytes of all trees, cached or in use: enough for ten million records.
pub(crate) const MAX_TREES_BYTES: u64 = 1 << 30;
