//! Interleavings that are easy to get wrong, played one by one on the simulator's
//! world and mirror. Every step is checked against the truth, as in chaos; each
//! test says besides what the rule is for.

mod accounts;
mod fetching;
mod hosts;
mod log;
mod moves;
mod operators;
mod order;
mod streams;
mod sweeps;
