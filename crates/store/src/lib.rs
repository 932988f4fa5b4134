//! What is held, written down: one owner of every write, and readers that never
//! see what a power cut could take back.
//!
//! [`store`] is what the program uses; [`book`] the same without a thread.
//! [`change`] says what shall be, [`apply`] writes it, [`contents`] reads it.
//! [`engine`] is the wall around the storage engine, with a double in memory;
//! [`table`] knows every key and row.

pub mod apply;
pub mod book;
pub mod change;
pub mod check;
pub mod codec;
mod committer;
#[cfg(feature = "engine")]
pub mod condition;
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
mod group;
#[cfg(feature = "engine")]
pub mod head;
mod ids;
#[cfg(feature = "engine")]
pub mod journal;
#[cfg(feature = "engine")]
pub mod lock;
#[cfg(feature = "engine")]
mod open;
pub mod prepare;
pub mod queue;
#[cfg(feature = "engine")]
pub mod repair;
mod rows;
#[cfg(feature = "engine")]
pub mod space;
pub mod store;
pub mod table;
pub mod tx;
mod walk;
mod writer;

#[cfg(feature = "engine")]
pub use condition::ENGINE_FOLDER;
#[cfg(feature = "engine")]
pub use open::Settings;
pub use store::Store;
