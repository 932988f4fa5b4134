//! The log as others read it. Every reader of the log uses this module.

pub mod frames;
