//! The running mirror, without its command line and web server.
//!
//! The modules form layers, which `xtask/layers.txt` lists and `cargo xtask tidy` checks. A
//! live record passes [`ingest`], [`desk`] and the store's committer.
//! A missing record is fetched by [`repair`]; [`sweep`] finds what no stream announced.
//! [`inspect`] answers questions, [`control`] carries out orders, and [`Mirror`] starts
//! and stops everything.

pub mod admission;
pub mod api;
pub mod behind_counts;
pub mod budget;
pub mod clock;
pub mod control;
pub mod damage;
pub mod desk;
pub mod discover;
pub mod disk_space;
pub mod failpoints;
pub(crate) mod filter_generation;
pub mod following;
pub mod hosts;
pub mod ingest;
pub mod inspect;
pub mod jetstream;
pub mod last_errors;
pub mod lifecycle;
pub mod log;
pub mod metrics;
pub mod repair;
pub mod schedule;
pub mod services;
pub mod settings;
pub mod shutdown;
pub mod store_io;
pub(crate) mod sweep;
pub mod tracking;
pub mod upkeep;
pub mod upstreams;

pub use lifecycle::{Mirror, StartError};
