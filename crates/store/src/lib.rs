//! What is held, written down: one owner of every write, and readers that never
//! see what a power cut could take back.
//!
//! [`engine`] is the wall around the storage engine, with a double in memory;
//! [`table`] knows every key and row.

pub mod apply;
pub mod book;
pub mod change;
pub mod codec;
pub mod contents;
pub mod cursor;
#[cfg(feature = "engine")]
mod durable;
pub mod engine;
pub mod error;
#[cfg(feature = "engine")]
pub mod format;
#[cfg(feature = "engine")]
pub mod frames;
#[cfg(feature = "engine")]
pub mod head;
#[cfg(feature = "engine")]
pub mod journal;
#[cfg(feature = "engine")]
pub mod lock;
#[cfg(feature = "engine")]
pub mod space;
pub mod table;
pub mod tx;
