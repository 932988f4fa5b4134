//! Tests the ledger: a deterministic simulation of the ledger's decisions, the store in
//! memory, and a world that lies.
//!
//! One seed determines a whole run. [`world`] knows the truth and misbehaves; [`mirror`]
//! plays the program, with every decision made by the ledger; [`check`] compares the two
//! after every step. For development only.

pub mod chaos;
pub mod check;
pub mod heal;
pub mod literal;
pub mod mirror;
pub mod mischief;
pub mod pin;
pub mod rng;
pub mod script;
pub mod trace;
pub mod world;
