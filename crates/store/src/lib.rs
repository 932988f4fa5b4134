//! What is held, written down: one owner of every write, and readers that never
//! see what a power cut could take back.
//!
//! [`engine`] is the wall around the storage engine, with a double in memory;
//! [`table`] knows every key and row.

pub mod engine;
pub mod table;
