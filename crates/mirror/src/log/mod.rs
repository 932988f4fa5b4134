//! The log as its readers see it. Every reader of the log uses this module.

pub mod frames;
