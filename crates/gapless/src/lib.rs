//! The program, as a library, so that tests and benches can start it.
//!
//! A record goes this way: [`net`] dials the upstream, [`ingest`] reads, judges
//! and decides, the store's committer makes it durable. What was missed is
//! fetched by [`fetch`]. [`web`] answers questions; [`cli`] asks them.

pub mod api;
pub mod candidates;
pub mod census;
pub mod claims;
pub mod cli;
pub mod clock;
pub mod config;
#[cfg(feature = "demo")]
pub mod demo;
pub mod fetch;
pub mod filter;
pub mod hosts;
pub mod ingest;
pub mod metrics;
pub mod mirror;
pub mod moments;
pub mod net;
pub mod newcomers;
pub mod quotas;
pub mod room;
pub mod run;
pub mod schedule;
pub mod scope;
pub mod serve;
pub mod shared;
pub mod stop;
pub mod store_io;
pub mod troubles;
pub mod web;
