//! Event streams: drafts become numbered frames in a feed, and subscribers read the feed
//! over WebSockets.

mod event;
mod feed;
pub mod socket;
pub mod subscribe;

pub use event::{Body, CommitBody, Draft};
pub use feed::{Feed, Manners};
