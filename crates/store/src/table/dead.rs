//! `dead`: number → dead letter, an event or answer that could not be used, with its
//! bytes, the reason and its resolution. So nothing that Gapless read is dropped
//! without a trace.

use gapless_core::ledger::{RepoId, Time};

use super::log::SourceEvent;
use crate::codec::{RowFault, RowReader, RowWriter, read_row};

const VERSION: u8 = 1;

/// Why a dead letter could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadClass {
    /// Nothing could be read, not even the DID.
    Unreadable,
    /// Only the DID could be read.
    Undecodable,
    /// The event or answer could be read, but breaks a rule of the protocol.
    Invalid,
    /// The store refused it although it was valid: a bug in Gapless.
    Refused,
}

/// What became of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resolution {
    /// Neither used nor given up so far.
    Open,
    /// A retry has used it.
    Used,
    /// A later state, or a purge, has made it irrelevant.
    Superseded,
    /// An operator has given it up.
    Dropped,
}

/// An event or answer that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    pub class: DeadClass,
    pub source: Option<SourceEvent>,
    pub repo: Option<RepoId>,
    pub error: String,
    pub payload: Vec<u8>,
    pub attempts: u32,
    pub first_seen: Time,
    pub resolution: Resolution,
}

pub fn encode(letter: &DeadLetter) -> Vec<u8> {
    let mut row = RowWriter::new(VERSION, 64 + letter.error.len() + letter.payload.len());
    row.byte(match letter.class {
        DeadClass::Unreadable => 0,
        DeadClass::Undecodable => 1,
        DeadClass::Invalid => 2,
        DeadClass::Refused => 3,
    });
    row.maybe(letter.source, |row, source| {
        row.upstream(source.upstream).number(source.seq);
    });
    row.maybe(letter.repo, |row, repo| {
        row.repo(repo);
    });
    row.text(&letter.error).bytes(&letter.payload);
    row.number(letter.attempts.into()).time(letter.first_seen);
    row.byte(match letter.resolution {
        Resolution::Open => 0,
        Resolution::Used => 1,
        Resolution::Superseded => 2,
        Resolution::Dropped => 3,
    });
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<DeadLetter, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        Ok(DeadLetter {
            class: match row.byte()? {
                0 => DeadClass::Unreadable,
                1 => DeadClass::Undecodable,
                2 => DeadClass::Invalid,
                3 => DeadClass::Refused,
                _ => return Err(RowFault::Value("class")),
            },
            source: row.maybe(|row| {
                Ok(SourceEvent {
                    upstream: row.upstream()?,
                    seq: row.number()?,
                })
            })?,
            repo: row.maybe(RowReader::repo)?,
            error: row.text()?.to_owned(),
            payload: row.bytes()?.to_vec(),
            attempts: row.small()?,
            first_seen: row.time()?,
            resolution: match row.byte()? {
                0 => Resolution::Open,
                1 => Resolution::Used,
                2 => Resolution::Superseded,
                3 => Resolution::Dropped,
                _ => return Err(RowFault::Value("resolution")),
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::option::of;
    use proptest::prelude::*;

    use super::super::arbitrary::{time, upstream};
    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            class in prop::sample::select(vec![
                DeadClass::Unreadable,
                DeadClass::Undecodable,
                DeadClass::Invalid,
                DeadClass::Refused,
            ]),
            source in of((upstream(), any::<u64>())),
            repo in of(any::<u64>().prop_map(RepoId)),
            error in ".{0,40}",
            payload in prop::collection::vec(any::<u8>(), 0..200),
            attempts in any::<u32>(),
            first_seen in time(),
            resolution in prop::sample::select(vec![
                Resolution::Open,
                Resolution::Used,
                Resolution::Superseded,
                Resolution::Dropped,
            ]),
        ) {
            let source = source.map(|(upstream, seq)| SourceEvent { upstream, seq });
            let letter = DeadLetter {
                class, source, repo, error, payload, attempts, first_seen, resolution,
            };
            prop_assert_eq!(decode(&encode(&letter)), Ok(letter));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
        }
    }
}
