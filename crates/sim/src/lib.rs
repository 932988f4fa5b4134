//! Tests the ledger: a deterministic simulation of the ledger's decisions, the store in
//! memory, and a world that lies.
//!
//! One seed determines a whole run. [`world`] knows the truth and misbehaves; [`mirror`]
//! plays the program, with every decision made by the ledger; [`check`] compares the two
//! after every step. [`readers`] follow the log and are compared with the store. For development
//! only.

pub mod chaos;
mod check;
mod heal;
pub mod literal;
pub mod mirror;
mod mischief;
pub mod pin;
pub mod readers;
mod rng;
pub mod script;
mod trace;
pub mod world;
