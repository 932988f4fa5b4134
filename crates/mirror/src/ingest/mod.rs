//! Reads the streams of upstreams and sends their events to the desks:
//!
//! | module | what it does |
//! |---|---|
//! | [`follow`] | one upstream: dial, read, dial again |
//! | `redial` | how long until the next dial, and when one is due at once |
//! | `dispatch` | places messages in the stream and sends events to the desks |
//! | `skip` | moves the cursor past events of repositories that are not wanted |
//! | `unreadable` | keeps messages that cannot be read as dead letters |

mod dispatch;
pub(crate) mod follow;
mod redial;
mod skip;
mod unreadable;
