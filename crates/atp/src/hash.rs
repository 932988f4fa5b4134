//! SHA-256 of a whole message at once.
//!
//! The codec hashes millions of short messages (blocks of 300 bytes, keys of 40). For
//! those a buffering hasher costs a tenth more than the hashing itself. This module gives
//! the compression function whole blocks without copying them, then one or two blocks of
//! padding.

use sha2::block_api::compress256;

/// The initial state of SHA-256: the first 32 bits of the fractional parts of the square
/// roots of the first eight primes.
const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// Bytes of a block that the padding leaves for the message: 64, less one for
/// the mark and eight for the length.
const ROOM: usize = 64 - 9;

fn compress(message: &[u8]) -> [u32; 8] {
    let (blocks, tail) = message.as_chunks::<64>();
    let mut state = START;
    if !blocks.is_empty() {
        compress256(&mut state, blocks);
    }
    let mut padding = [[0; 64]; 2];
    padding[0][..tail.len()].copy_from_slice(tail);
    padding[0][tail.len()] = 0x80;
    let last = usize::from(tail.len() > ROOM);
    padding[last][56..].copy_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    compress256(&mut state, &padding[..=last]);
    state
}

/// The digest of `message`.
pub(crate) fn sha256(message: &[u8]) -> [u8; 32] {
    let mut digest = [0; 32];
    for (bytes, word) in digest
        .as_chunks_mut::<4>()
        .0
        .iter_mut()
        .zip(compress(message))
    {
        *bytes = word.to_be_bytes();
    }
    digest
}

/// How many zero bits the digest of `message` begins with.
pub(crate) fn leading_zeros(message: &[u8]) -> u32 {
    let mut zeros = 0;
    for word in compress(message) {
        zeros += word.leading_zeros();
        if word != 0 {
            break;
        }
    }
    zeros
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn agrees_with_the_library_at_every_length() {
        let message: Vec<u8> = (0..400u32).map(|n| (n * 7 % 251) as u8).collect();
        for len in 0..=message.len() {
            let wanted: [u8; 32] = Sha256::digest(&message[..len]).into();
            assert_eq!(sha256(&message[..len]), wanted, "{len} bytes");
            let zeros = u128::from_be_bytes(wanted[..16].try_into().unwrap()).leading_zeros();
            assert_eq!(leading_zeros(&message[..len]), zeros, "{len} bytes");
        }
    }
}
