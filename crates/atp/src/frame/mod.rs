//! Event stream frames: one binary WebSocket message each.
//!
//! [`decode`] reads a header and a payload and borrows from the message;
//! [`encode`](mod@encode) writes them. Types, operations and fields that are not
//! known are skipped, as the protocol asks. Fields may come in any order; a known
//! one that comes twice is an error, because readers would disagree on which
//! counts.

mod decode;
mod encode;
mod renumber;

pub use decode::{
    AccountEvent, Action, CommitEvent, Event, FrameError, IdentityEvent, InfoEvent, PayloadError,
    RawOp, SyncEvent, decode,
};
pub use encode::{
    encode_account, encode_commit, encode_error, encode_identity, encode_info, encode_sync,
    sync_blocks,
};
pub use renumber::{Renumbered, renumber};
