//! The settings and limits that the rules use, by name. [`Settings`] can be configured;
//! the constants cannot.

use std::time::Duration;

use super::state::FilterGen;

/// What to do when a host names an older head than ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnRollback {
    /// Adopt the host's state if the loss is surely a small accident; otherwise hold.
    #[default]
    Auto,
    /// Keep the held state until the host moves on, or an operator decides.
    Hold,
    /// Adopt the host's state as soon as it has named the same head [`BEHIND_TIMES`]
    /// times.
    Adopt,
}

/// Configuration of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long a cover may be down before its repositories stop being complete.
    pub live_grace: Duration,
    /// How often a host is swept.
    pub sweep_every: Duration,
    /// How often the host is asked for a head that only listings confirm.
    pub confirm_every: Duration,
    pub on_rollback: OnRollback,
    /// The generation of the filter in force.
    pub filter: FilterGen,
    /// Whether only the keys of wanted collections are held. Then commits without a proof
    /// cannot be recomputed.
    pub wanted_keys_only: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            live_grace: Duration::from_secs(60),
            sweep_every: Duration::from_secs(15 * 60),
            confirm_every: Duration::from_secs(24 * 3600),
            on_rollback: OnRollback::Auto,
            filter: FilterGen(0),
            wanted_keys_only: false,
        }
    }
}

/// How long after connecting without a cursor the subscription counts as in force, if the
/// host sends nothing.
pub const OPEN_AFTER: Duration = Duration::from_secs(5);
/// How long a host has, after connecting with a cursor, to send the event at our cursor.
/// After that the host counts as having lost it.
pub const CONTINUITY_WITHIN: Duration = Duration::from_secs(10);
/// The longest time that an event needs to become durable. A shorter `live_grace` does
/// not lower it, because a disk may take a moment.
pub const DURABLE_WITHIN: Duration = Duration::from_secs(5);
/// The number of frames in a row with numbers at or below the last one that begin a new
/// numbering.
pub const BACKWARD_FRAMES: u32 = 1_000;
/// The number of recent events of a stream that are remembered, to recognize a
/// duplicate. A larger number has no use: as many events with lower numbers begin a
/// new numbering.
pub(crate) const RECENT_EVENTS: usize = BACKWARD_FRAMES as usize;
/// The number of read times that a stream remembers for events that are not durable
/// yet. The limit holds even if the disk is full for days.
pub(crate) const WAITING_MOMENTS: usize = 1_024;
/// The span that every connect to a stream with times instead of numbers requests
/// again: the times are not exact, and two events may arrive in the wrong order.
pub const TIMED_OVERLAP: Duration = Duration::from_secs(5);
/// How long a suspect waits for the queue before the host is asked about it.
pub const SUSPECT_PATIENCE: Duration = Duration::from_secs(30);
/// The shortest time between two fetches that commits without a proof cause, when no keys
/// are held to recompute them with.
pub const LEGACY_FETCH_EVERY: Duration = Duration::from_secs(600);
/// The limit on parked frames of one repository.
pub const PARKED_FRAMES: u32 = 2_048;
/// The limit on the bytes of one repository's parked frames.
pub const PARKED_BYTES: u64 = 16 << 20;
/// The limit on the bytes of all parked frames.
pub const PARKED_BYTES_IN_ALL: u64 = 1 << 30;
/// The limit on the parked bytes of one repository when an unjudged frame is added: one
/// that cannot be verified because the owner's document cannot be read. Anyone can forge
/// such frames.
pub const UNJUDGED_BYTES: u64 = 1 << 20;
/// The limit on the bytes of all parked frames when an unjudged frame is added, so that
/// unjudged frames never use up the space of signed ones.
pub const UNJUDGED_BYTES_IN_ALL: u64 = PARKED_BYTES_IN_ALL / 4;
/// The number of questions about one repository that strangers can cause in a row.
pub const STRANGER_TOKENS: u32 = 4;
/// How long it takes until a stranger can cause one more question about the repository.
pub const STRANGER_REFILL: Duration = Duration::from_secs(600);
/// The wait after the first failure. It doubles with each failure, up to
/// [`BACKOFF_LONGEST`].
pub const BACKOFF_FIRST: Duration = Duration::from_secs(2);
/// The longest wait that backoff gives.
pub const BACKOFF_LONGEST: Duration = Duration::from_secs(3600);
/// The longest wait of anything that is owed, whatever a host or a clock says.
pub(crate) const WAIT_LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How long a repository over `fetch.max_repo_bytes` waits until it is fetched again.
pub(crate) const OVERSIZE_WAIT: Duration = WAIT_LONGEST;
/// How often a host must name the same older head, a sweep apart, before it is believed.
pub(crate) const BEHIND_TIMES: u32 = 2;
/// If at least this many repositories of a host vanish in one sweep, and more than a
/// hundredth of all, none of them is hidden.
pub(crate) const VANISHED_AT_LEAST: u64 = 10;
/// A relay's report of a deletion is believed only if the host misses at most one
/// repository for each ten that it has.
pub(crate) const MISSING_ONE_IN: u64 = 10;
