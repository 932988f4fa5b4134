//! Every bound on what is served, by name.

use std::time::Duration;

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

/// The bounds that tests set lower. Nobody configures them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeLimits {
    /// Whole repositories that are sent at a time. An address has a share of these
    /// places, for repositories, blocks and proofs together.
    pub exports: usize,
    /// Whether this machine has no more than a share either.
    pub own_counted: bool,
    /// Trees that are built at a time: a large one takes two cores.
    pub builds: usize,
    /// How long somebody waits for a turn.
    pub turn: Duration,
    /// How long a reader may take nothing.
    pub stall: Duration,
    /// Bytes a second that it takes at least, while we wait for it, over each such
    /// time.
    pub least_rate: u64,
    /// What trees that nobody uses may take.
    pub kept_trees_bytes: u64,
    /// What the records of all repositories that are being sent may take: they are kept
    /// from when their keys are read until they leave. For whom there is no room they
    /// are read twice.
    pub records_memory: u64,
}

impl Default for ServeLimits {
    fn default() -> ServeLimits {
        ServeLimits {
            exports: 16,
            own_counted: false,
            builds: 2,
            turn: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            least_rate: 64 << 10,
            kept_trees_bytes: 128 << 20,
            records_memory: 256 << 20,
        }
    }
}
