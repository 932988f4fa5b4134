//! From a socket to a change, in the order in which an event goes:
//!
//! | module | what it does |
//! |---|---|
//! | [`follow`] | one upstream: dial, read, hand on, dial again |
//! | `hand_on` | from the stream to the desks, and what nobody wants or can read |
//! | [`lines`] | the wire of a Jetstream: whose message is it, and what does it say? |
//! | `read` | whose event is it, which number has it? |
//! | `redial` | how long until the next dial, and when one is due at once |
//! | [`desk`] | every repository has one desk, where its events come one by one |
//! | [`judge`] | is it what it says it is? |
//! | [`decide`] | what the ledger makes of it, and the frames that waited for it |
//! | [`draft`] | the changes that this comes to, in order |

pub mod decide;
pub mod desk;
pub mod draft;
pub mod follow;
mod hand_on;
pub mod judge;
pub mod lines;
mod read;
mod redial;
