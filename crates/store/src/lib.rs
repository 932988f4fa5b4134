//! The store of everything that Gapless holds: one owner of every write, and readers that never
//! see what a power cut could take back.
//!
//! [`store`] is what the program uses; [`sync_writer`] writes on the caller's thread instead.
//! [`change`] describes what to write, [`apply`] writes it, [`read_view`] reads it.
//! [`engine`] is the interface to the storage engine, with an implementation in memory for tests;
//! [`table`] defines every key and row.

pub mod apply;
pub mod change;
pub mod check;
mod codec;
mod committer;
pub mod cursor;
#[cfg(feature = "engine")]
pub mod diagnosis;
#[cfg(feature = "engine")]
mod durable;
pub mod engine;
pub mod error;
#[cfg(feature = "engine")]
pub mod format;
#[cfg(feature = "engine")]
pub mod frames;
mod group;
#[cfg(feature = "engine")]
pub mod head;
mod ids;
#[cfg(feature = "engine")]
pub mod journal;
#[cfg(feature = "engine")]
mod lock;
pub mod log_model;
pub mod log_reader;
#[cfg(feature = "engine")]
mod open;
mod prepare;
pub mod queue;
pub mod read_view;
#[cfg(feature = "engine")]
pub mod repair;
mod row_cache;
pub mod scan;
#[cfg(feature = "engine")]
pub mod space;
pub mod store;
pub mod sync;
pub mod sync_writer;
pub mod table;
pub mod tx;
mod walk;
mod writer;

#[cfg(feature = "engine")]
pub use diagnosis::ENGINE_FOLDER;
#[cfg(feature = "engine")]
pub use open::Settings;
pub use store::Store;
