//! What was missed is fetched here, in the order in which it happens:
//!
//! | module | what it does |
//! |---|---|
//! | [`turns`] | whose turn is it, and how did its last sweeps end? |
//! | [`sweep`] | a host is compared with what is held, and when that is done |
//! | `listing` | page by page through its listing |
//! | `questions` | what a listing leaves open, or does not say, is asked |
//! | `deleted` | does it bear out what only a relay calls deleted? |
//! | `pages`, `patience` | does a listing end, and how long is a host waited for? |
//! | `pace` | how often that is done |
//! | [`counted`] | what is owed, and how many repositories a host has, as the store knows it |
//! | [`work`] | pays what is owed: resolve, ask, fetch |
//! | `asking` | a host is asked for a head, and its answer heard |
//! | `naming` | whose document names a host, and who brought its repository |
//! | `walk` | another filter: is what it wants held already? |
//! | [`take_in`] | one fetch: download, check, write |
//! | [`import`] | one that somebody brings as a file: check, write |
//! | `write` | lays it over what is held, chunk by chunk |
//! | [`spill`] | bytes as they come, in memory or in a file |
//! | [`memory`] | what all that arrives may take together |
//! | [`source`], [`difference`] | where tree nodes come from: the answer, and what is held |
//! | [`snapshot`] | is it whole? |
//! | [`compare`] | what leads from the held records to those of the snapshot |

mod asking;
pub mod compare;
pub mod counted;
mod deleted;
pub mod difference;
pub mod import;
mod listing;
pub mod memory;
mod naming;
mod pace;
mod pages;
mod patience;
mod questions;
pub mod snapshot;
pub mod source;
pub mod spill;
pub mod sweep;
pub mod take_in;
pub mod turns;
mod walk;
pub mod work;
mod write;
