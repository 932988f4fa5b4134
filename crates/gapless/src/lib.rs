//! The program, as a library, so that tests and benches can start it.
//!
//! A record goes this way: [`gapless_net`] dials the upstream, [`ingest`] reads, judges
//! and decides, the store's committer makes it durable. What was missed is
//! fetched by [`fetch`]. [`web`] answers questions; [`cli`] asks them.

pub mod admission;
pub mod api;
pub mod behind_counts;
pub mod claims;
pub mod cli;
pub mod clock;
pub mod config;
pub mod damage;
#[cfg(feature = "demo")]
pub mod demo;
pub mod disk_space;
pub mod fetch;
pub mod filter;
pub mod filter_generation;
pub mod following;
pub mod hosts;
pub mod ingest;
pub mod last_errors;
pub mod log;
pub mod metrics;
pub mod mirror;
pub mod quotas;
pub mod run;
pub mod scan;
pub mod schedule;
pub mod serve;
pub mod services;
pub mod shutdown;
pub mod stop;
pub mod store_io;
pub mod terminal;
pub mod totals;
pub mod tracking;
pub mod upkeep;
pub mod upstreams;
pub mod web;
