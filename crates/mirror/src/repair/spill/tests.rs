//! Blocks come back as they were hashed or not at all, and neither memory nor disk
//! is taken beyond the limits.

use gapless_atp::car::{write_block, write_header};

use super::*;

const BLOCKS: [&[u8]; 3] = [b"commit", b"one", b"two"];

fn car() -> Vec<u8> {
    let mut car = Vec::new();
    write_header(&mut car, &[Cid::dag_cbor(BLOCKS[0])]);
    for block in BLOCKS {
        write_block(&mut car, &Cid::dag_cbor(block), block);
    }
    car
}

fn fetched(memory: usize) -> Fetched {
    let folder = tempfile::tempdir().unwrap();
    let limits = SpillLimits {
        memory,
        ..SpillLimits::default()
    };
    let mut spill = Spill::new(folder.path(), limits);
    spill.feed(&car()).unwrap();
    spill.finish().unwrap()
}

fn place(fetched: &Fetched, block: &[u8]) -> Entry {
    let key = key(&Cid::dag_cbor(block));
    *fetched.index.find(&key).next().unwrap()
}

#[test]
fn what_the_disk_has_spoilt_is_not_handed_on() {
    let fetched = fetched(0);
    let Data::File(file) = &fetched.data else {
        panic!("it is on disk");
    };
    file.write_all_at(b"x", place(&fetched, b"one").at())
        .unwrap();
    let error = fetched.block(&Cid::dag_cbor(b"one")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(fetched.block(&Cid::dag_cbor(b"two")).unwrap().is_some());
}

#[test]
fn two_blocks_of_one_key_are_told_apart() {
    for memory in [0, usize::MAX] {
        let mut fetched = fetched(memory);
        let (one, two) = (place(&fetched, b"one"), place(&fetched, b"two"));
        // As if both began alike.
        let key = one.key;
        let entries = vec![Entry { key, ..two }, one];
        fetched.index = Index::new(entries);
        let found = fetched.block(&Cid::dag_cbor(b"one")).unwrap();
        assert_eq!(found.as_deref(), Some(&b"one"[..]));
        fetched.index = Index::new(vec![Entry { key, ..two }]);
        assert!(fetched.block(&Cid::dag_cbor(b"one")).unwrap().is_none());
    }
}

#[test]
fn the_codec_is_part_of_the_name() {
    for memory in [0, usize::MAX] {
        let fetched = fetched(memory);
        assert!(fetched.length(&Cid::raw(b"one")).is_none());
        assert!(fetched.block(&Cid::raw(b"one")).unwrap().is_none());
    }
}

#[test]
fn a_full_disk_takes_no_more_and_is_not_the_hosts_fault() {
    let folder = tempfile::tempdir().unwrap();
    let free = free_bytes(folder.path()).unwrap();
    let limits = SpillLimits::of_file(0, CAR_BYTES, free.saturating_mul(2));
    let mut spill = Spill::new(folder.path(), limits);
    let error = spill.feed(&car()).unwrap_err();
    assert!(matches!(error, SpillError::NoRoom(_)), "{error}");
    assert!(error.is_ours() && error.to_string().contains("min_free_disk"));
}

#[test]
fn tiny_blocks_make_no_large_index() {
    let large = SpillLimits::of_file(0, CAR_BYTES, 0);
    assert!(large.blocks * INDEX_BYTES as u64 <= INDEX_MEMORY);
    assert!(large.blocks > 10_000_000, "more than any repository has");
    let small = SpillLimits::of_file(0, 1_000_000, 0);
    assert!(small.blocks < 1_000_000 / CID_LEN as u64);
    let limits = SpillLimits { blocks: 2, ..small };
    let mut spill = Spill::new(Path::new("/nonexistent"), limits);
    let error = spill.feed(&car()).unwrap_err();
    assert!(matches!(error, SpillError::Blocks(2)), "{error}");
}

#[test]
fn indexes_of_many_files_take_no_more_than_there_is_for_all() {
    let mut tiny = Vec::new();
    write_header(&mut tiny, &[Cid::dag_cbor(b"commit")]);
    write_block(&mut tiny, &Cid::dag_cbor(b"commit"), b"commit");
    let one = Cid::dag_cbor(b"");
    (0..3 * (1 << 20) / INDEX_BYTES).for_each(|_| write_block(&mut tiny, &one, b""));
    let memory = crate::budget::Memory::new(3 << 20);
    let folder = tempfile::tempdir().unwrap();
    let taken = || {
        let limits = SpillLimits::of_file(SPILL_AT, CAR_BYTES, 0);
        let mut spill = Spill::new(folder.path(), limits).sharing(memory.share());
        spill.feed(&tiny)?;
        spill.finish()
    };
    let first = taken().unwrap();
    let error = taken().err().expect("the first has most of it");
    assert!(error.is_ours() && error.class() == "memory", "{error}");
    drop(first);
    taken().unwrap();
}

#[test]
fn it_goes_to_another_thread() {
    fn sent<T: Send>() {}
    sent::<Spill>();
    sent::<crate::repair::snapshot::Snapshot>();
}
