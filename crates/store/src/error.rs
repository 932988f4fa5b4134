//! Why the store did not do what it was asked to, for people and for callers
//! that branch on it. Errors are cheap to clone: one failed write answers
//! everybody who waited for it.

use std::sync::Arc;

use crate::codec::RowFault;
use crate::engine::EngineError;
use crate::table::Table;

#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Final: nothing is written or read until a new start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// One row is damaged; the others are not touched by it.
    #[error(
        "a row of the table '{}' cannot be read (key {key}): {fault}. `gapless store check --data DIR` says what else is damaged", table.name()
    )]
    Row {
        table: Table,
        key: String,
        fault: RowFault,
    },
    /// A fault of our own: what was handed over cannot be true.
    #[error(transparent)]
    Refused(#[from] Contradiction),
    /// A fault of our own, before anything was handed over; others are not touched by it.
    #[error("{0}")]
    Fault(Arc<str>),
    /// Not final: it is taken as soon as there is room again. Reading goes on.
    #[cfg(feature = "engine")]
    #[error("{0}; reading goes on")]
    Full(#[from] crate::space::DiskFull),
    /// Something that was acknowledged is not there.
    #[error(
        "the store has lost what it had acknowledged: {what}. A damaged disk, or files put back from a copy, do this. `gapless store repair --data DIR` marks every repository for a comparison with its host and covers the lost numbers; nothing was changed"
    )]
    Lost { what: Arc<str> },
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Lock(Arc<crate::lock::LockError>),
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Format(Arc<crate::format::FormatError>),
    /// Final, as all that follow.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Head(Arc<crate::head::HeadError>),
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Frames(Arc<crate::frames::FramesError>),
    /// Something else of the operating system failed.
    #[error("{0}")]
    System(Arc<str>),
    #[error("the store is closed")]
    Closed,
    /// One of the threads that write has ended by a fault of our own.
    #[error("the thread that writes has ended unexpectedly; start Gapless again")]
    CommitterGone,
}

impl StoreError {
    pub(crate) fn row(table: Table, key: &[u8], fault: RowFault) -> StoreError {
        StoreError::Row {
            table,
            key: format!("{:?}", crate::engine::Slice::from(key)),
            fault,
        }
    }

    #[cfg(feature = "engine")]
    pub(crate) fn lost(what: impl std::fmt::Display) -> StoreError {
        StoreError::Lost {
            what: what.to_string().into(),
        }
    }

    /// Whether nothing can be written before a new start.
    pub fn is_final(&self) -> bool {
        match self {
            StoreError::Row { .. } | StoreError::Refused(_) | StoreError::Fault(_) => false,
            #[cfg(feature = "engine")]
            StoreError::Full(_) => false,
            _ => true,
        }
    }
}

#[cfg(feature = "engine")]
mod beside {
    use std::sync::Arc;

    use super::StoreError;
    use crate::format::FormatError;
    use crate::frames::FramesError;
    use crate::head::HeadError;
    use crate::lock::LockError;

    impl From<LockError> for StoreError {
        fn from(error: LockError) -> StoreError {
            StoreError::Lock(Arc::new(error))
        }
    }

    impl From<FormatError> for StoreError {
        fn from(error: FormatError) -> StoreError {
            StoreError::Format(Arc::new(error))
        }
    }

    impl From<HeadError> for StoreError {
        fn from(error: HeadError) -> StoreError {
            StoreError::Head(Arc::new(error))
        }
    }

    impl From<FramesError> for StoreError {
        fn from(error: FramesError) -> StoreError {
            StoreError::Frames(Arc::new(error))
        }
    }
}

/// What cannot be true of a change. Whoever made it has a fault, or stands on an
/// earlier change that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    #[error("a change is about repository {0}, which does not exist")]
    NoSuchRepo(u64),
    #[error("a change is about upstream {0}, which does not exist")]
    NoSuchUpstream(u32),
    #[error("a change is about host {0}, which does not exist")]
    NoSuchHost(u32),
    #[error("a change is about dead letter {0}, which does not exist")]
    NoSuchDeadLetter(u64),
    #[error("a change is about the purge at {0}, which there was not")]
    NoSuchPurge(u64),
    #[error("a change carries the row of another repository than the one it is about")]
    OtherRepo,
    #[error("a change names a repository that is not known, and says nothing of it")]
    NameWithoutRow,
    #[error("a change was decided on another state of the repository than the one held")]
    OtherState,
    #[error("a change says that another state is held, and brings no records that lead there")]
    Unfounded,
    #[error("a live commit does not lead to an exact state")]
    NotExact,
    #[error("the rev of a change is not above the held one, and no new lineage begins")]
    NotAbove,
    #[error("the lineage of a repository went back")]
    LineageBack,
    #[error("the signed commit that was handed over is not the head's")]
    OtherCommit,
    #[error("a record is deleted that is not held")]
    NothingToDelete,
    #[error("a record is held where a change says that none is")]
    NotFresh,
    #[error("one path is written twice by one change")]
    PathTwice,
    #[error("a path is empty or too long")]
    PathLength,
    #[error("one change has more operations or bytes than a row of the log may have")]
    TooLarge,
    #[error("the frame of a change is larger than a frame can be")]
    FrameTooLarge,
    #[error("a purge does not end with nothing held")]
    PurgeHolds,
    #[error("the numbering of an upstream went back")]
    NumberingBack,
    #[error("the epoch of an upstream went back")]
    EpochBack,
    #[error("the name of a host, or the address of an upstream, changed")]
    Renamed,
    #[error(
        "host {0} is to be forgotten, and a repository lives there or an upstream speaks for it"
    )]
    HostInUse(u32),
}
