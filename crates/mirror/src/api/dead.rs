//! Answers about dead letters: input that could not be used and is kept until an operator resolves
//! the letter.

use gapless_store::table::dead::{DeadClass, DeadLetter};
use serde::{Deserialize, Serialize};

use crate::api::time::timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeadAnswer {
    pub number: u64,
    /// unreadable, undecodable, invalid or refused.
    pub class: String,
    /// The repository, if its DID could be read and is known.
    pub did: Option<String>,
    /// The URL of the upstream that sent the input, if it is still known.
    pub upstream: Option<String>,
    /// The number of the event at the upstream.
    pub seq: Option<u64>,
    pub error: String,
    pub first_seen: Option<String>,
    /// Bytes of the input that are kept.
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeadPage {
    pub dead: Vec<DeadAnswer>,
    /// The cursor of the next page; null on the last page.
    pub cursor: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeadResolved {
    pub resolved: u64,
}

impl DeadAnswer {
    pub fn new(
        number: u64,
        letter: &DeadLetter,
        did: Option<String>,
        upstream: Option<String>,
    ) -> DeadAnswer {
        DeadAnswer {
            number,
            class: match letter.class {
                DeadClass::Unreadable => "unreadable",
                DeadClass::Undecodable => "undecodable",
                DeadClass::Invalid => "invalid",
                DeadClass::Refused => "refused",
            }
            .to_owned(),
            did,
            upstream,
            seq: letter.source.map(|source| source.seq),
            error: letter.error.clone(),
            first_seen: timestamp(letter.first_seen),
            bytes: letter.payload.len() as u64,
        }
    }
}
