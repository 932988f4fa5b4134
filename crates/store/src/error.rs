//! The errors of the store, with texts for operators and variants for callers that
//! branch on them. Errors are cheap to clone, because one failed write answers every
//! change that waited for it.

use std::sync::Arc;

use crate::codec::RowFault;
use crate::engine::EngineError;
use crate::table::Table;
use crate::table::meta::LogId;
use gapless_core::retain::{ConsumerKey, PositionError};

/// Why the store did not do what it was asked to.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The engine failed. Final: nothing is read or written until a restart.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// One row is damaged; others are not affected.
    #[error(
        "a row of the table '{}' cannot be read (key {key}): {fault}. `gapless store check --data DIR` reports what else is damaged", table.name()
    )]
    Row {
        table: Table,
        key: String,
        fault: RowFault,
    },
    /// A bug in Gapless: the change contradicts itself or the store.
    #[error(transparent)]
    Refused(#[from] Contradiction),
    /// A consumer of the log asked for something that would lose or repeat rows.
    #[error(transparent)]
    Consumer(#[from] ConsumerError),
    /// A bug in Gapless outside the store's threads, such as a panic in a read; other work is not
    /// affected.
    #[error("{0}")]
    Fault(Arc<str>),
    /// The disk is almost full. Not final: writing resumes once there is space. Reading continues.
    #[cfg(feature = "engine")]
    #[error("{0}; reading continues")]
    Full(#[from] crate::space::DiskFull),
    /// Something that was acknowledged is missing.
    #[error(
        "the store has lost data that it had acknowledged: {what}. A damaged disk or files restored from a copy can cause this. `gapless store repair --data DIR` marks every repository for a comparison with its host and covers the lost numbers; nothing was changed"
    )]
    Lost { what: Arc<str> },
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Lock(Arc<crate::lock::LockError>),
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Format(Arc<crate::format::FormatError>),
    /// The head file failed. Final, as are all variants below.
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Head(Arc<crate::head::HeadError>),
    #[cfg(feature = "engine")]
    #[error(transparent)]
    Frames(Arc<crate::frames::FramesError>),
    /// Another operation of the operating system failed.
    #[error("{0}")]
    System(Arc<str>),
    #[error("the store is closed")]
    Closed,
    /// The committer or the writer thread has ended unexpectedly, by a bug in Gapless.
    #[error("the store's writing thread has ended unexpectedly; restart Gapless")]
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

    /// Whether the store cannot write anything before a restart.
    pub fn is_final(&self) -> bool {
        match self {
            StoreError::Row { .. }
            | StoreError::Refused(_)
            | StoreError::Consumer(_)
            | StoreError::Fault(_) => false,
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

/// Why a change of a consumer's position was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumerError {
    #[error("the consumer {key:?} is not registered")]
    Unknown { key: ConsumerKey },
    #[error("the consumer {name} is registered already")]
    Registered { name: Arc<str> },
    #[error(
        "the consumer {name} has followed the log {given}, and this store has {}; its position means nothing here. It has to begin again with a walk",
        log.map_or_else(|| "no log yet".to_owned(), |log| format!("the log {log}"))
    )]
    OtherLog {
        name: Arc<str>,
        given: LogId,
        log: Option<LogId>,
    },
    #[error("the consumer {name}: {error}")]
    Position {
        name: Arc<str>,
        error: PositionError,
    },
}

/// Why a change was refused: it contradicts itself or the store. Either the code that made
/// the change has a bug, or the change builds on an earlier one that was refused.
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
    #[error("a change is about the purge at {0}, which does not exist")]
    NoSuchPurge(u64),
    #[error("a change has the row of another repository than the one it is about")]
    OtherRepo,
    #[error("a change names an unknown repository and has no row or entry for it")]
    NameWithoutRow,
    #[error("a change was decided on a state of the repository that is not the one held")]
    OtherState,
    #[error("a change sets another held state, but has no records that lead to it")]
    Unfounded,
    #[error("a live commit does not lead to an exact state")]
    NotExact,
    #[error("the rev of a change is not above the held rev, and no new lineage begins")]
    NotAbove,
    #[error("the lineage of a repository went back")]
    LineageBack,
    #[error("the signed commit in a change is not the one that its head names")]
    OtherCommit,
    #[error("a change deletes a record that is not held")]
    NothingToDelete,
    #[error("a change says that a path is not held, but the path has a record")]
    NotFresh,
    #[error("a change writes one path twice")]
    PathTwice,
    #[error("a path is empty or too long")]
    PathLength,
    #[error("a change has more operations or bytes than a row of the log may have")]
    TooLarge,
    #[error("the frame of a change is larger than the limit for frames")]
    FrameTooLarge,
    #[error("a purge does not set the held state to nothing, or does not say that it is under way")]
    PurgeHolds,
    #[error(
        "a change writes to a repository that is being purged, or ends a purge that is not finished"
    )]
    Purging,
    #[error("the repository of purge {0} is not being purged")]
    NotPurging(u64),
    #[error("the numbering of an upstream went back")]
    NumberingBack,
    #[error("the epoch of an upstream went back")]
    EpochBack,
    #[error("the name of a host, or the address of an upstream, changed")]
    Renamed,
    #[error("a change deletes host {0}, but a repository lives there or an upstream speaks for it")]
    HostInUse(u32),
}
