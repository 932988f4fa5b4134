//! `claimed`: repository, path → the claim of an unproven source about a record.
//!
//! A claim is never part of a root and never served as the owner's data. It is deleted
//! as soon as a proven state at its rev or a later one is held, because that state
//! decides every path. It is also deleted once a repository of which something is held
//! owes nothing: then the host was asked since, and has no such commit.

use std::ops::Deref;

pub use gapless_core::repo_tx::step::Claim;

use crate::codec::{RowFault, RowWriter, read_row};

/// Version 2 added the log number.
const VERSION: u8 = 2;

/// A claim as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRow {
    /// The log number of the operation that reported the claim; 0 in a row of an earlier format.
    pub seq: u64,
    pub claim: Claim,
}

impl Deref for ClaimRow {
    type Target = Claim;

    fn deref(&self) -> &Claim {
        &self.claim
    }
}

pub fn encode(seq: u64, claim: &Claim) -> Vec<u8> {
    let mut row = RowWriter::new(VERSION, 64);
    row.number(seq);
    row.upstream(claim.upstream).rev(claim.rev);
    row.maybe(claim.record.as_ref(), |row, (cid, bytes)| {
        row.cid(cid).bytes(bytes);
    });
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<ClaimRow, RowFault> {
    read_row(bytes, VERSION, |row, version| {
        Ok(ClaimRow {
            seq: if version >= 2 { row.number()? } else { 0 },
            claim: Claim {
                upstream: row.upstream()?,
                rev: row.rev()?,
                record: row.maybe(|row| Ok((row.cid()?, row.bytes()?.to_vec())))?,
            },
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::arbitrary::{cid, rev, upstream};
    use super::*;

    proptest! {
        #[test]
        fn round_trip(
            seq in any::<u64>(),
            upstream in upstream(),
            rev in rev(),
            record in prop::option::of((cid(), prop::collection::vec(any::<u8>(), 0..400))),
        ) {
            let claim = Claim { upstream, rev, record };
            prop_assert_eq!(decode(&encode(seq, &claim)), Ok(ClaimRow { seq, claim }));
        }

        #[test]
        fn rows_of_earlier_formats_have_no_number(upstream in upstream(), rev in rev()) {
            let mut old = RowWriter::new(1, 0);
            old.upstream(upstream).rev(rev).flag(false);
            let claim = Claim { upstream, rev, record: None };
            prop_assert_eq!(decode(old.as_bytes()), Ok(ClaimRow { seq: 0, claim }));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
        }
    }
}
