//! The numbers that the rules use, by name. Most can be configured; the rest are
//! here so that they have a name.

use std::time::Duration;

use super::state::FilterGen;

/// What to do when a host names an older head than ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnRollback {
    /// Adopt its state when that is surely a small accident, hold otherwise.
    #[default]
    Auto,
    /// Keep ours until the host goes on, or an operator decides.
    Hold,
    /// Adopt its state whenever it has said the same twice.
    Adopt,
}

/// Configuration of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long a cover may be down before its repositories are not complete.
    pub live_grace: Duration,
    /// How often a host is swept.
    pub sweep_every: Duration,
    /// How often a head that only a listing confirms is asked for by itself.
    pub confirm_every: Duration,
    pub on_rollback: OnRollback,
    /// The filter in force.
    pub filter: FilterGen,
    /// Only the keys of wanted collections are held: operations without a proof
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

/// After the upgrade without a cursor, a silent host's subscription counts as
/// in force.
pub const OPEN_AFTER: Duration = Duration::from_secs(5);
/// After the upgrade with a cursor, a host that has not sent the event at our
/// cursor has lost it.
pub const CONTINUITY_WITHIN: Duration = Duration::from_secs(10);
/// What was read is durable by then, whatever grace is configured: a disk may take
/// a moment.
pub const DURABLE_WITHIN: Duration = Duration::from_secs(5);
/// So many frames in a row with numbers we have had are a new numbering.
pub const BACKWARD_FRAMES: u32 = 1_000;
/// The number of recent events of a stream that are remembered, to recognize a
/// duplicate. A larger number has no use: as many events with lower numbers begin a
/// new numbering.
pub const RECENT_EVENTS: usize = BACKWARD_FRAMES as usize;
/// The number of read times that a stream remembers for events that are not durable
/// yet. The limit holds even if the disk is full for days.
pub const WAITING_MOMENTS: usize = 1_024;
/// The span that every connect to a stream with times instead of numbers requests
/// again: the times are not exact, and two events may arrive in the wrong order.
pub const TIMED_OVERLAP: Duration = Duration::from_secs(5);
/// A suspect is asked about after so long, whatever the queue does.
pub const SUSPECT_PATIENCE: Duration = Duration::from_secs(30);
/// Without keys to recompute with, unproven commits make us fetch, this often.
pub const LEGACY_FETCH_EVERY: Duration = Duration::from_secs(600);
/// Parked frames of one repository.
pub const PARKED_FRAMES: u32 = 2_048;
/// Bytes of the parked frames of one repository.
pub const PARKED_BYTES: u64 = 16 << 20;
/// Bytes of all parked frames.
pub const PARKED_BYTES_IN_ALL: u64 = 1 << 30;
/// Of these: bytes of one repository that nobody has judged, because its document
/// cannot be read. Anybody can make them up.
pub const UNJUDGED_BYTES: u64 = 1 << 20;
/// What nobody has judged is parked while all that is parked takes no more than
/// this, so that it never takes the room of what is signed.
pub const UNJUDGED_BYTES_IN_ALL: u64 = PARKED_BYTES_IN_ALL / 4;
/// Questions that strangers can make us ask about one repository in a row.
pub const STRANGER_TOKENS: u32 = 4;
/// How long until one of them may be asked again.
pub const STRANGER_REFILL: Duration = Duration::from_secs(600);
/// The first wait after a failure, doubled up to the longest.
pub const BACKOFF_FIRST: Duration = Duration::from_secs(2);
/// The longest wait between two tries.
pub const BACKOFF_LONGEST: Duration = Duration::from_secs(3600);
/// Nothing that is owed waits longer, whatever a host or a clock says.
pub const WAIT_LONGEST: Duration = Duration::from_secs(24 * 3600);
/// What is larger than is taken of one repository is fetched again after so long.
pub const OVERSIZE_WAIT: Duration = WAIT_LONGEST;
/// A host that says the same older head so often is believed.
pub const BEHIND_TIMES: u32 = 2;
/// More vanished repositories than this in one sweep, and more than a hundredth
/// of the host's, hide nothing.
pub const VANISHED_AT_LEAST: u64 = 10;
/// A relay's word that something was deleted is believed only of a host that misses at
/// most one for so many that it has.
pub const MISSING_ONE_IN: u64 = 10;
