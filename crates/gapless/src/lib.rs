//! The program, as a library, so that tests and benches can start it.
//!
//! [`gapless_mirror`] follows, verifies, stores and repairs. This crate configures it,
//! serves what it holds ([`serve`], [`web`]) and gives it a command line ([`cli`]).

pub mod cli;
pub mod config;
#[cfg(feature = "demo")]
pub mod demo;
pub mod run;
pub mod serve;
pub mod terminal;
pub mod web;
