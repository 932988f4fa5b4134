//! `claimed`: repository, path → the claim of an unproven source about a record.
//!
//! A claim is never part of a root and never served as the owner's data. It is deleted
//! as soon as a proven state at its rev or a later one is held, because that state
//! decides every path. It is also deleted once a repository of which something is held
//! owes nothing: then the host was asked since, and has no such commit.

pub use gapless_core::repo_tx::step::Claim;

use crate::codec::{RowFault, RowWriter, read_row};

const VERSION: u8 = 1;

pub fn encode(claim: &Claim) -> Vec<u8> {
    let mut row = RowWriter::new(VERSION, 64);
    row.upstream(claim.upstream).rev(claim.rev);
    row.maybe(claim.record.as_ref(), |row, (cid, bytes)| {
        row.cid(cid).bytes(bytes);
    });
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<Claim, RowFault> {
    read_row(bytes, VERSION, |row, _| {
        Ok(Claim {
            upstream: row.upstream()?,
            rev: row.rev()?,
            record: row.maybe(|row| Ok((row.cid()?, row.bytes()?.to_vec())))?,
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
            upstream in upstream(),
            rev in rev(),
            record in prop::option::of((cid(), prop::collection::vec(any::<u8>(), 0..400))),
        ) {
            let claim = Claim { upstream, rev, record };
            prop_assert_eq!(decode(&encode(&claim)), Ok(claim));
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
        }
    }
}
