//! The log as its readers see it. Every reader of the log uses this module.
//!
//! | module | what it does |
//! |---|---|
//! | [`head`] | announces new numbers to any number of readers |
//! | [`reader`] | reads pages of rows with the bytes of their records, and walks |
//! | [`consumer`] | registers a consumer, and records its position |
//! | [`framed`] | reads rows with their frames, for the firehose |
//! | [`frames`] | encodes the frames of events that Gapless itself announces |

pub mod consumer;
pub mod framed;
pub mod frames;
pub mod head;
pub mod reader;
