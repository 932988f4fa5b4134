//! Event streams: drafts become numbered frames in a feed, and subscribers read the feed
//! over WebSockets.

mod event;
mod feed;
pub(crate) mod socket;
pub(crate) mod subscribe;

pub(crate) use event::{Body, CommitBody, Draft};
pub(crate) use feed::{Feed, Manners};
