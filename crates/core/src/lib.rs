//! The decisions of Gapless, as pure functions: state, input and time go in; new state
//! and effects come out.
//!
//! No function here reads a clock, a file or a socket, or depends on the iteration order
//! of a hash map. The same inputs always give the same decisions, so the simulator can
//! replay a run from its seed. The caller performs the effects and passes their results
//! back as further inputs.

#![deny(clippy::iter_over_hash_type)]

pub mod filter;
pub mod ledger;
pub mod repo_tx;
pub mod retain;
