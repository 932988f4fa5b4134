//! `did`: DID → the repository's number, which all other tables use.
//!
//! A number is assigned once and stays, even after a purge, so that the log keeps its
//! meaning.

use gapless_core::ledger::RepoId;

use crate::codec::{RowFault, RowWriter, read_row};

const VERSION: u8 = 1;

pub fn encode(repo: RepoId) -> Vec<u8> {
    let mut row = RowWriter::new(VERSION, 8);
    row.repo(repo);
    row.finish()
}

pub fn decode(bytes: &[u8]) -> Result<RepoId, RowFault> {
    read_row(bytes, VERSION, |row, _| row.repo())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        for id in [0, 1, 127, 128, u64::MAX] {
            assert_eq!(decode(&encode(RepoId(id))), Ok(RepoId(id)));
        }
    }
}
