#![no_main]
//! Whole repositories: a CAR of any bytes, and a tree of any shape with correct hashes.
//! An accepted tree is the one that its keys build.

use gapless_atp::car::{write_block, write_header};
use gapless_atp::cid::Cid;
use gapless_atp::mst::{root, walk};
use gapless_atp::repo::{Commit, ImportError, RepoCar};
use gapless_atp::syntax::Rev;
use gapless_fuzz::{Shape, Store, pool, record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Shape, Vec<u8>)| {
    let (shape, bytes) = input;
    check(&bytes);
    let mut store = Store::default();
    let Some((top, _)) = shape.plant(&mut store) else {
        return;
    };
    // Every record that the shape can name.
    for number in 0..pool().len() {
        store.put(record(number as u8));
    }
    let did = "did:plc:abcdefghijklmnopqrstuvwx";
    let rev = Rev::from_micros(1 << 50, 0);
    let block = Commit::encode(did, rev, &[1; 64], &top, None);
    let commit = store.put(block);
    let mut file = Vec::new();
    write_header(&mut file, &[commit]);
    for (cid, block) in &store.0 {
        write_block(&mut file, cid, block);
    }
    check(&file);
    // A walk reads no more than the nodes that exist, however they are shared.
    let mut nodes = 0;
    let _ = walk::<gapless_atp::mst::TreeError>(top, &store, |_| {
        nodes += 1;
        assert!(nodes <= 24 * 9 * 2, "the walk does not end");
        Ok(())
    });
});

fn check(file: &[u8]) {
    let Ok(repo) = RepoCar::read(file) else {
        return;
    };
    let mut keys: Vec<(Vec<u8>, Cid)> = Vec::new();
    let walked = repo.records::<ImportError>(|key, cid, bytes| {
        assert!(cid.matches(bytes));
        keys.push((key.to_vec(), cid));
        Ok(())
    });
    if walked.is_ok() {
        let pairs = keys.iter().map(|(key, cid)| (key.as_slice(), *cid));
        assert_eq!(root(pairs), Ok(repo.commit.data));
    }
}
