//! Tests the chunks in which a snapshot is compared with the held records: their sizes, their
//! records, and how the comparison stops.

use std::cell::Cell;

use gapless_mirror::repair::compare::{CHUNK_BYTES, CompareInput, Keep};
use gapless_store::change::RecordOp;

use crate::repo::{BOTH, Mirror, Random, Repo, keep_all, path, record, snapshot};

fn sizes(mirror: &Mirror, repo: &Repo, memory: usize) -> Vec<usize> {
    let snapshot = snapshot(&repo.blocks(), memory).unwrap();
    let (chunks, _) = mirror.compare(&snapshot, &keep_all, false).unwrap();
    let ops = chunks.iter().flat_map(|chunk| &chunk.ops);
    let paths: Vec<&Vec<u8>> = ops.map(|op| &op.path).collect();
    assert!(paths.is_sorted() && paths.len() == repo.records.len());
    chunks.iter().map(|chunk| chunk.ops.len()).collect()
}

#[test]
fn a_thousand_operations_at_most() {
    let mirror = Mirror::new();
    for memory in BOTH {
        assert_eq!(sizes(&mirror, &Repo::empty(), memory), [0]);
        assert_eq!(sizes(&mirror, &Repo::of(1_000), memory), [1_000]);
        assert_eq!(sizes(&mirror, &Repo::of(1_001), memory), [1_000, 1]);
        assert_eq!(
            sizes(&mirror, &Repo::of(2_500), memory),
            [1_000, 1_000, 500]
        );
    }
}

#[test]
fn four_megabytes_at_most() {
    let mut repo = Repo::empty();
    for number in 0..11 {
        repo.records.insert(path(number), record(number, 1 << 20));
    }
    for memory in BOTH {
        // The paths take something, too, so four do not fit.
        let sizes = sizes(&Mirror::new(), &repo, memory);
        assert_eq!(sizes, [3, 3, 3, 2]);
        assert!(sizes.iter().all(|size| size << 20 <= CHUNK_BYTES));
    }
}

#[test]
fn memory_and_disk_hand_out_the_same() {
    let mut repo = Repo::of(1_500);
    let mirror = Mirror::new();
    mirror
        .take(&snapshot(&repo.blocks(), 0).unwrap(), &keep_all, false)
        .unwrap();
    for _ in 0..50 {
        repo.stir(&mut Random(repo.rev * 31));
    }
    let [memory, disk] = BOTH.map(|memory| {
        let snapshot = snapshot(&repo.blocks(), memory).unwrap();
        mirror.compare(&snapshot, &keep_all, true).unwrap()
    });
    assert!(memory.1.puts > 50 && memory.1.deletes > 10 && memory.1.unchanged > 1_000);
    assert_eq!(memory, disk);
}

#[test]
fn nothing_is_compared_beyond_the_chunks_that_are_taken() {
    let snapshot = snapshot(&Repo::of(5_000).blocks(), 0).unwrap();
    let mirror = Mirror::new();
    let view = mirror.store.view();
    let compared = Cell::new(0);
    let comparison = CompareInput {
        open_view: &|| view.clone(),
        repo: None,
        keep: &|_| {
            compared.set(compared.get() + 1);
            Keep::Record
        },
        compare_bytes: false,
    };
    let chunks = snapshot.differences(comparison).unwrap();
    assert_eq!(compared.get(), 0);
    assert_eq!(chunks.take(2).filter(Result::is_ok).count(), 2);
    assert_eq!(compared.get(), 2_001);
}

fn posts_alone(path: &[u8]) -> Keep {
    if path.starts_with(b"app.bsky.feed.post/") {
        Keep::Record
    } else {
        Keep::Key
    }
}

fn only_posts(path: &[u8]) -> Keep {
    match posts_alone(path) {
        Keep::Record => Keep::Record,
        _ => Keep::Nothing,
    }
}

#[test]
fn filters() {
    let repo = Repo::of(90);
    for memory in BOTH {
        let snapshot = snapshot(&repo.blocks(), memory).unwrap();
        let mirror = Mirror::new();
        let totals = mirror.take(&snapshot, &posts_alone, false).unwrap();
        assert_eq!((totals.puts, totals.unwanted), (90, 0));
        let mut expected = repo.held();
        for (path, bytes) in &mut expected {
            if posts_alone(path) != Keep::Record {
                *bytes = None;
            }
        }
        assert_eq!(mirror.held(), expected);
        // Every key is there, so the root is.
        assert_eq!(mirror.tree().root(), snapshot.head().data);

        // Wanted in full: the CIDs are the same, and only `repair` looks further.
        let totals = mirror.compare(&snapshot, &keep_all, false).unwrap().1;
        assert_eq!(totals.unchanged, 90);
        let totals = mirror.take(&snapshot, &keep_all, true).unwrap();
        assert_eq!((totals.puts, totals.unchanged), (60, 30));
        assert_eq!(mirror.held(), repo.held());
        // And back to keys.
        let totals = mirror.take(&snapshot, &posts_alone, true).unwrap();
        assert_eq!((totals.puts, totals.unchanged, totals.bytes), (60, 30, 0));
        assert_eq!(mirror.held(), expected);

        // Without the keys of others.
        let totals = mirror.take(&snapshot, &only_posts, false).unwrap();
        assert_eq!((totals.deletes, totals.unchanged), (60, 30));
        expected.retain(|_, bytes| bytes.is_some());
        assert_eq!(mirror.held(), expected);
        let totals = mirror.take(&snapshot, &only_posts, true).unwrap();
        assert_eq!((totals.unwanted, totals.unchanged), (60, 30));
    }
}

#[test]
fn fresh_only_where_nothing_is_held() {
    let fresh = |ops: &[RecordOp]| ops.iter().filter(|op| op.fresh).count();
    let mut repo = Repo::of(20);
    let mirror = Mirror::new();
    let first = snapshot(&repo.blocks(), 0).unwrap();
    let (chunks, _) = mirror.compare(&first, &keep_all, false).unwrap();
    assert_eq!(fresh(&chunks[0].ops), 20);
    mirror.take(&first, &keep_all, false).unwrap();
    for number in 20..30 {
        repo.records.insert(path(number), record(number, 40));
    }
    let second = snapshot(&repo.blocks(), 0).unwrap();
    let (chunks, _) = mirror.compare(&second, &keep_all, false).unwrap();
    assert_eq!((chunks[0].ops.len(), fresh(&chunks[0].ops)), (10, 0));
}

#[test]
fn repair_finds_what_is_spoilt_and_nothing_else() {
    let repo = Repo::of(300);
    for memory in BOTH {
        let snapshot = snapshot(&repo.blocks(), memory).unwrap();
        let mirror = Mirror::new();
        mirror.take(&snapshot, &keep_all, false).unwrap();
        let mut flipped = record(17, 40);
        flipped[5] ^= 1;
        mirror.spoil(&path(17), Some(flipped));
        mirror.spoil(&path(200), None);
        assert_eq!(
            mirror.compare(&snapshot, &keep_all, false).unwrap().1.puts,
            0
        );
        let (chunks, totals) = mirror.compare(&snapshot, &keep_all, true).unwrap();
        let mut paths: Vec<Vec<u8>> = chunks[0].ops.iter().map(|op| op.path.clone()).collect();
        paths.sort();
        let mut spoilt = vec![path(17), path(200)];
        spoilt.sort();
        assert_eq!((paths, totals.unchanged), (spoilt, 298));
        mirror.take(&snapshot, &keep_all, true).unwrap();
        assert_eq!(mirror.held(), repo.held());
    }
}
