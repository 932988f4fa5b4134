//! What was missed is fetched here, in the order in which it happens:
//!
//! | module | what it does |
//! |---|---|
//! | [`sweep`] | compares a host's listing with what is held |
//! | [`work`] | pays what is owed: resolve, ask, fetch |
//! | [`take_in`] | one fetch: download, check, write |
//! | `write` | lays it over what is held, chunk by chunk |
//! | [`spill`] | bytes as they come, in memory or in a file |
//! | [`source`], [`difference`] | where tree nodes come from: the answer, and what is held |
//! | [`snapshot`] | is it whole? |
//! | [`compare`] | what leads from the held records to those of the snapshot |

pub mod compare;
pub mod difference;
pub mod snapshot;
pub mod source;
pub mod spill;
pub mod sweep;
pub mod take_in;
pub mod work;
mod write;
