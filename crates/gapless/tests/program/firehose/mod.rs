//! Tests the firehose that a mirror sends, over real sockets: consumers that check every frame
//! read it, and so does another mirror.

mod chain;
mod closing;
mod gone;
mod slow;
pub(crate) mod strict;
mod window;
