//! The decisions of Gapless, as pure functions: state, input and time go in, new
//! state and effects come out.
//!
//! Nothing here reads a clock, a file or a socket, and nothing depends on the
//! order of a hash map: the same inputs give the same decisions, always, which
//! is what lets the simulator replay a seed. Whoever calls performs the effects
//! and brings the results back as further inputs.

#![deny(clippy::iter_over_hash_type)]

pub mod filter;
pub mod ledger;
