//! The running mirror, without its command line and web server.
//!
//! The modules form layers, which `xtask/layers.txt` lists and `cargo xtask tidy` checks. A
//! live record passes [`ingest`], [`desk`] and the store's committer.
//! A missing record is fetched by [`repair`]; [`sweep`] finds what no stream announced.
//! [`inspect`] answers questions, [`control`] carries out orders, and [`Mirror`] starts
//! and stops everything.

mod admission;
pub mod api;
mod behind_counts;
pub mod budget;
mod clock;
mod control;
pub mod damage;
pub mod desk;
mod discover;
mod disk_space;
pub mod failpoints;
mod filter_generation;
mod following;
mod hosts;
mod ingest;
mod inspect;
mod jetstream;
mod last_errors;
pub mod lifecycle;
pub mod log;
pub mod metrics;
pub mod repair;
pub mod schedule;
pub mod services;
pub mod settings;
mod shutdown;
mod store_ids;
pub mod store_io;
mod sweep;
mod tracking;
mod upkeep;
pub mod upstreams;

pub use lifecycle::{Mirror, StartError};
