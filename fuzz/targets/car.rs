#![no_main]
//! Reads CAR files from memory: every block hashes to its CID, and the map finds all of
//! them.

use gapless_atp::car::{read_blocks, write_block, write_header};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    // The same bytes as the blocks of a valid file: a length byte, then data.
    let mut file = Vec::new();
    write_header(&mut file, &[]);
    let mut rest = bytes;
    let mut count = 0;
    while let Some((len, after)) = rest.split_first() {
        let (data, after) = after.split_at(after.len().min(usize::from(*len)));
        write_block(&mut file, &gapless_atp::cid::Cid::raw(data), data);
        rest = after;
        count += 1;
    }
    assert_eq!(check(&file), Some(count));
});

/// The number of blocks of a file that can be read.
fn check(bytes: &[u8]) -> Option<usize> {
    let blocks = read_blocks(bytes).ok()?;
    let map = blocks.clone().into_map();
    let mut again = Vec::new();
    write_header(&mut again, blocks.roots());
    let (mut count, mut failed) = (0, None);
    for block in blocks {
        match block {
            Ok((cid, data)) => {
                assert!(cid.matches(data));
                if let Ok(map) = &map {
                    assert_eq!(map.get(&cid), Some(data));
                }
                write_block(&mut again, &cid, data);
                count += 1;
            }
            Err(error) => failed = Some(error),
        }
    }
    assert_eq!(map.as_ref().err(), failed.as_ref());
    let map = map.ok()?;
    assert!(map.len() <= count);
    // The header may contain more than the writer produces; the blocks are equal byte for
    // byte.
    let ours = read_blocks(&again).expect("our own file");
    assert!(ours.clone().eq(read_blocks(bytes).expect("read before")));
    Some(count)
}
