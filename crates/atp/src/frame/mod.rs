//! Frames of an event stream: one binary WebSocket message each.
//!
//! [`decode`](fn@decode) reads a header and a payload and borrows from the message;
//! `encode` writes them. Unknown types, operations and fields are skipped,
//! as the protocol requires. Fields may come in any order. A known field that is repeated
//! is an error, because readers would disagree on which value counts.

mod decode;
mod encode;
mod renumber;

pub use decode::{
    AccountEvent, Action, CommitEvent, Envelope, Event, FrameError, IdentityEvent, InfoEvent,
    PayloadError, RawOp, SyncEvent, decode, envelope,
};
pub use encode::{
    encode_account, encode_commit, encode_error, encode_identity, encode_info, encode_sync,
    sync_blocks,
};
pub use renumber::{Renumbered, renumber};
