//! The log as its readers see it. Every reader of the log uses this module.
//!
//! | module | what it does |
//! |---|---|
//! | [`head`] | announces new numbers to any number of readers |
//! | [`reader`] | reads rows with their frames, one page at a time |
//! | [`frames`] | encodes the frames of events that Gapless itself announces |

pub mod frames;
pub mod head;
pub mod reader;
