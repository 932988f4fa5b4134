//! Tests the spill of blocks to disk: blocks are read back as they were hashed or not at all,
//! and the limits on memory and disk hold.

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

fn fetched(memory: usize) -> SpilledCar {
    let folder = tempfile::tempdir().unwrap();
    let limits = SpillLimits {
        memory,
        ..SpillLimits::default()
    };
    let mut spill = Spill::new(folder.path(), limits);
    spill.feed(&car()).unwrap();
    spill.finish().unwrap()
}

fn entry_of(fetched: &SpilledCar, block: &[u8]) -> BlockIndexEntry {
    let key = key(&Cid::dag_cbor(block));
    *fetched.index.find(&key).next().unwrap()
}

#[test]
fn what_the_disk_has_spoilt_is_not_handed_on() {
    let fetched = fetched(0);
    let CarBytes::File(file) = &fetched.data else {
        panic!("it is on disk");
    };
    file.write_all_at(b"x", entry_of(&fetched, b"one").position())
        .unwrap();
    let error = fetched.block(&Cid::dag_cbor(b"one")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(fetched.block(&Cid::dag_cbor(b"two")).unwrap().is_some());
}

#[test]
fn two_blocks_of_one_key_are_told_apart() {
    for memory in [0, usize::MAX] {
        let mut fetched = fetched(memory);
        let (one, two) = (entry_of(&fetched, b"one"), entry_of(&fetched, b"two"));
        // As if both began alike.
        let key = one.key;
        let entries = vec![BlockIndexEntry { key, ..two }, one];
        fetched.index = BlockIndex::new(entries);
        let found = fetched.block(&Cid::dag_cbor(b"one")).unwrap();
        assert_eq!(found.as_deref(), Some(&b"one"[..]));
        fetched.index = BlockIndex::new(vec![BlockIndexEntry { key, ..two }]);
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
    let limits = SpillLimits::of_car(0, MAX_CAR_BYTES, free.saturating_mul(2));
    let mut spill = Spill::new(folder.path(), limits);
    let error = spill.feed(&car()).unwrap_err();
    assert!(matches!(error, SpillError::DiskFull(_)), "{error}");
    assert!(error.is_ours() && error.to_string().contains("min_free_disk"));
}

#[test]
fn tiny_blocks_make_no_large_index() {
    let large = SpillLimits::of_car(0, MAX_CAR_BYTES, 0);
    assert!(large.blocks * INDEX_ENTRY_BYTES as u64 <= MAX_INDEX_BYTES);
    assert!(large.blocks > 10_000_000, "more than any repository has");
    let small = SpillLimits::of_car(0, 1_000_000, 0);
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
    (0..3 * (1 << 20) / INDEX_ENTRY_BYTES).for_each(|_| write_block(&mut tiny, &one, b""));
    let budget = crate::budget::Budget::new(3 << 20);
    let folder = tempfile::tempdir().unwrap();
    let receive = || {
        let limits = SpillLimits::of_car(DEFAULT_MEMORY_BYTES, MAX_CAR_BYTES, 0);
        let mut spill = Spill::new(folder.path(), limits).with_index_lease(budget.lease());
        spill.feed(&tiny)?;
        spill.finish()
    };
    let first = receive().unwrap();
    let error = receive().err().expect("the first has most of it");
    assert!(error.is_ours() && error.class() == "memory", "{error}");
    drop(first);
    receive().unwrap();
}

#[test]
fn it_goes_to_another_thread() {
    fn sent<T: Send>() {}
    sent::<Spill>();
    sent::<crate::repair::snapshot::Snapshot>();
}
