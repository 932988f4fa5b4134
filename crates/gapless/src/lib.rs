//! The program as a library, which tests and benches can start.
//!
//! [`gapless_mirror`] follows, verifies, stores and repairs. This crate configures it,
//! serves what it holds ([`serve`], [`web`]) and gives it a command line ([`cli`]).

pub mod cli;
pub mod config;
#[cfg(feature = "demo")]
pub mod demo;
pub(crate) mod run;
pub mod serve;
pub(crate) mod terminal;
pub mod web;
