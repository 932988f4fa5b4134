//! The program, as a library, so that tests and benches can start it.
//!
//! A record goes this way: [`net`] dials the upstream, [`ingest`] reads, judges
//! and decides, the store's committer makes it durable. What was missed is
//! fetched by [`fetch`]. [`web`] answers questions; [`cli`] asks them.

pub mod api;
pub mod cli;
pub mod config;
pub mod fetch;
pub mod net;
pub mod web;
