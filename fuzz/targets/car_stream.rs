#![no_main]
//! Reads CAR files in pieces of any size: the same blocks and the same error as in one
//! piece.

use gapless_atp::car::{CarError, CarStream, read_blocks, write_block, write_header};
use gapless_atp::cid::{CID_LEN, Cid};
use gapless_atp::limits;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Vec<u8>, Vec<Vec<u8>>, Vec<u8>)| {
    let (pieces, blocks, tail) = input;
    let mut file = Vec::new();
    // Without blocks the tail is the whole file.
    if !blocks.is_empty() {
        write_header(&mut file, &[Cid::raw(b"")]);
    }
    for block in &blocks {
        write_block(&mut file, &Cid::raw(block), block);
    }
    file.extend_from_slice(&tail);
    assert_eq!(by_stream(&file, &pieces), by_slice(&file));
});

type Outcome = (Vec<(Cid, Vec<u8>)>, Option<CarError>);

fn by_slice(file: &[u8]) -> Outcome {
    let mut found = Vec::new();
    let blocks = match read_blocks(file) {
        Ok(blocks) => blocks,
        Err(error) => return (found, Some(error)),
    };
    for block in blocks {
        match block {
            Ok((cid, data)) => found.push((cid, data.to_vec())),
            Err(error) => return (found, Some(error)),
        }
    }
    (found, None)
}

fn by_stream(file: &[u8], pieces: &[u8]) -> Outcome {
    let mut stream = CarStream::new();
    let mut found = Vec::new();
    let mut rest = file;
    let mut sizes = pieces.iter().cycle();
    while !rest.is_empty() {
        let size = usize::from(*sizes.next().unwrap_or(&255)) + 1;
        let (piece, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        stream.feed(piece);
        let most = limits::BLOCK_BYTES + CID_LEN + limits::VARINT_BYTES + piece.len();
        assert!(stream.buffered() <= most);
        loop {
            match stream.next_block() {
                Ok(Some((cid, data))) => found.push((cid, data.to_vec())),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, stream.finish().err())
}
