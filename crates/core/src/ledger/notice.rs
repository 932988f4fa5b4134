//! What people and counters should hear of a decision. Nothing is decided by a
//! notice: whoever drops them loses no data.

use gapless_atp::syntax::Rev;

use super::state::{Account, HostId, NamedHead};

/// Why an epoch of an upstream ended and a new one began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResetReason {
    /// The host sent `#info OutdatedCursor`.
    OutdatedCursor,
    /// The host knows no number as high as our cursor.
    FutureCursor,
    /// There was no cursor to start from.
    NoCursor,
    /// The first frame was not the event at our cursor.
    OtherEvent,
    /// The event at our cursor did not come.
    Silence,
    /// The numbers went back, and stayed there.
    Backwards,
    /// We could not keep up and dropped frames.
    Overflow,
    /// What follows our cursor cannot be read, however often it is asked for.
    Stuck,
    /// The stream was read for tracked repositories only, and is now read for all.
    Widened,
    /// The store was repaired: what was acknowledged may be gone.
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

/// One thing worth counting, and some of them worth an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    Reset(ResetReason),
    /// A frame with a number that we have had.
    Backward,
    /// The owner's key signed two commits with one rev.
    Fork {
        rev: Rev,
    },
    /// Input that the owner did not sign.
    Unauthenticated,
    /// Input of which nobody can say who signed it: the owner's document could not
    /// be read yet.
    Unresolved,
    /// An event from a host that the repository does not live on.
    Misrouted,
    /// A commit of a lineage that was given up.
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
    /// The host says that it does not have the repository. Said once, when it is
    /// hidden for that, or when it is not because hiding is suspended.
    Vanished {
        hidden: bool,
    },
    /// So many vanished that nothing is hidden.
    HidingSuspended {
        vanished: u64,
        of: u64,
    },
    HostBehind {
        named: NamedHead,
    },
    /// The host's older state was taken over.
    Adopted {
        rev: Rev,
    },
    /// A snapshot was not used.
    SnapshotDiscarded,
    /// A snapshot older than the head that the host named.
    SnapshotStale,
}
