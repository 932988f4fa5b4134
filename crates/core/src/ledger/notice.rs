//! Notices of decisions, for counters, logs and alarms. A notice decides nothing: a
//! caller that drops notices loses no data.

use gapless_atp::syntax::Rev;

use super::state::{Account, HostId, NamedHead};

/// Why an epoch of an upstream ended and a new one began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResetReason {
    /// The host sent `#info OutdatedCursor`.
    OutdatedCursor,
    /// The host has no event with a number as high as our cursor.
    FutureCursor,
    /// There was no cursor to start from.
    NoCursor,
    /// The first frame was not the event at our cursor.
    OtherEvent,
    /// The event at our cursor did not arrive in time.
    Silence,
    /// The event numbers went back and stayed there.
    Backwards,
    /// The mirror could not keep up and dropped frames.
    Overflow,
    /// The frames after our cursor could not be read in several attempts.
    Stuck,
    /// The stream was read for tracked repositories only, and is now read for all.
    Widened,
    /// The store was repaired: acknowledged events may be lost.
    StoreRepaired,
}

/// Why a parked frame was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The head has passed the frame.
    Superseded,
    /// A limit on parked frames or bytes was reached.
    NoRoom,
    /// Another frame of the same rev is parked.
    SameRev,
    /// The frame was read from a host that the repository does not live on.
    OtherHost,
    /// The frame's rev belongs to an abandoned lineage.
    Abandoned,
    /// Once the DID was resolved, the frame proved not to be signed by the owner.
    Forged,
}

/// Something worth counting; some notices are worth an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    Reset(ResetReason),
    /// A frame whose number is not above that of the frame before it.
    Backward,
    /// The owner's key signed two commits with one rev.
    Fork {
        rev: Rev,
    },
    /// Input that the owner did not sign.
    Unauthenticated,
    /// Input that cannot be verified yet, because the owner's document could not be read.
    Unresolved,
    /// An event from a host that the repository does not live on.
    Misrouted,
    /// A commit of an abandoned lineage.
    Abandoned {
        rev: Rev,
    },
    ParkedDropped {
        rev: Rev,
        why: DropReason,
    },
    Moved {
        from: Option<HostId>,
        to: Option<HostId>,
    },
    /// The directory answered with an older document than one already seen.
    OldDocument,
    Account(Account),
    /// The host says that it does not have the repository. Added once: with `hidden: true` when the
    /// repository is hidden for that reason, and with `hidden: false` when hiding is suspended.
    Vanished {
        hidden: bool,
    },
    /// So many repositories of a host vanished at once that none is hidden.
    HidingSuspended {
        vanished: u64,
        of: u64,
    },
    HostBehind {
        named: NamedHead,
    },
    /// The host's older state was adopted.
    Adopted {
        rev: Rev,
    },
    /// A snapshot was discarded unwritten.
    SnapshotDiscarded,
    /// A snapshot is older than the head that the host named.
    SnapshotStale,
}
