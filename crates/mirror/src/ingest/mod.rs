//! Reads the streams of upstreams and sends their events to the desks:
//!
//! | module | what it does |
//! |---|---|
//! | [`follow`] | one upstream: dial, read, dial again |
//! | `read` | which repository an event belongs to, and which number it has |
//! | `dispatch` | places events in the stream, and sends them to the desks or skips them |
//! | `redial` | how long until the next dial, and when one is due at once |

mod dispatch;
pub mod follow;
pub(crate) mod read;
mod redial;
