//! `hosted`: host, repository → nothing. Lists the repositories of each host, so that
//! a sweep can find those missing from the host's listing. The key has all the data;
//! the row is only its version.

use crate::codec::{RowFault, read_row};

const VERSION: u8 = 1;

pub fn encode() -> Vec<u8> {
    vec![VERSION]
}

pub fn decode(bytes: &[u8]) -> Result<(), RowFault> {
    read_row(bytes, VERSION, |_, _| Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        assert_eq!(decode(&encode()), Ok(()));
        assert_eq!(decode(&[]), Err(RowFault::Short));
        assert_eq!(decode(&[1, 0]), Err(RowFault::Long));
    }
}
