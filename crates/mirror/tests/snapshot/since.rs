//! Tests differences (`getRepo` with `since`): with the held records they lead to the same
//! records as the whole repository, or they are refused.

use gapless_mirror::repair::compare::Keep;
use gapless_mirror::repair::held_tree::HeldTree;

use crate::repo::{
    BOTH, Blocks, Mirror, Random, Repo, commit, did, keep_all, path, record, repeated, snapshot,
};

/// A mirror that holds this repository.
fn mirror_of(repo: &Repo) -> Mirror {
    let mirror = Mirror::new();
    let whole = snapshot(&repo.blocks(), usize::MAX).unwrap();
    mirror.take(&whole, &keep_all, false).unwrap();
    assert_eq!(mirror.held(), repo.held());
    mirror
}

/// The class of the error in which a difference ends.
fn refusal(mirror: &Mirror, blocks: &Blocks) -> &'static str {
    let difference = snapshot(blocks, 0).unwrap().with_held(mirror.tree());
    // What is handed out instead may be a gigabyte: it is not printed.
    let Err(error) = mirror.compare(&difference, &keep_all, false) else {
        panic!("it is not refused");
    };
    assert_eq!(difference.walk_whole().unwrap_err().class(), error.class());
    error.class()
}

#[test]
fn random_changes_in_full_and_since() {
    let mut moved = 0;
    for seed in 1..=6 {
        let mut random = Random(seed * 7919);
        let mut repo = Repo::of(random.below(300));
        let (full, since) = (mirror_of(&repo), mirror_of(&repo));
        for round in 0..25 {
            let older = repo.clone();
            repo.stir(&mut random);
            let memory = BOTH[round % 2];
            let whole = snapshot(&repo.blocks(), memory).unwrap();
            let totals = full.take(&whole, &keep_all, false).unwrap();
            let blocks = repo.blocks_since(&older);
            let difference = snapshot(&blocks, memory).unwrap();
            let difference = difference.with_held(since.tree());
            assert_eq!(since.take(&difference, &keep_all, false).unwrap(), totals);
            assert_eq!(full.held(), repo.held());
            assert_eq!(since.held(), repo.held());
            assert_eq!(since.tree().root(), repo_root(&repo));
            let sent = |bytes: &Vec<u8>| blocks.iter().any(|(_, block)| block == bytes);
            let new = repo
                .records
                .iter()
                .filter(|(path, bytes)| older.records.get(*path) != Some(bytes) && !sent(bytes));
            moved += new.count();
        }
    }
    assert!(moved > 50, "{moved} records were moved or copied");
}

fn repo_root(repo: &Repo) -> gapless_atp::cid::Cid {
    let blocks = repo.blocks();
    gapless_atp::repo::Commit::decode(&blocks[0].1)
        .unwrap()
        .data
}

#[test]
fn a_host_that_sends_the_whole_all_the_same() {
    let mut repo = Repo::of(100);
    let mirror = mirror_of(&repo);
    repo.stir(&mut Random(3));
    let difference = snapshot(&repo.blocks(), 0)
        .unwrap()
        .with_held(mirror.tree());
    mirror.take(&difference, &keep_all, false).unwrap();
    assert_eq!(mirror.held(), repo.held());
}

#[test]
fn nothing_but_a_commit() {
    for count in [0, 1, 100] {
        let mut repo = Repo::of(count);
        let mirror = mirror_of(&repo);
        repo.rev += 1;
        let alone = vec![commit(&did(), repo.signed_rev(), &repo_root(&repo))];
        let without = snapshot(&alone, 0).unwrap();
        assert_eq!(without.walk_whole().unwrap_err().class(), "missing_node");
        let difference = snapshot(&alone, 0).unwrap().with_held(mirror.tree());
        let totals = mirror.take(&difference, &keep_all, false).unwrap();
        assert_eq!((totals.puts, totals.deletes), (0, 0));
        assert_eq!(totals.unchanged, count as u64);
        assert_eq!(mirror.row().head(), Some(&difference.head()));
    }
}

#[test]
fn without_any_one_block() {
    let older = Repo::of(200);
    let mut repo = older.clone();
    for number in [5, 77, 150] {
        repo.records
            .insert(path(number), record(9_000 + number, 40));
    }
    repo.rev += 1;
    let mirror = mirror_of(&older);
    let blocks = repo.blocks_since(&older);
    let mut classes = Vec::new();
    for at in 1..blocks.len() {
        let mut fewer = blocks.clone();
        fewer.remove(at);
        classes.push(refusal(&mirror, &fewer));
    }
    let records = classes.iter().filter(|class| **class == "missing_record");
    assert_eq!(records.count(), 3);
    assert!(
        classes
            .iter()
            .filter(|class| **class == "missing_node")
            .count()
            >= 3
    );
    assert_eq!(mirror.held(), older.held());
}

/// A moved record whose held bytes are spoilt, or were never kept, is not moved.
#[test]
fn moved_records_are_hashed() {
    let older = Repo::of(100);
    let mut repo = older.clone();
    let bytes = repo.records.remove(&path(42)).unwrap();
    repo.records.insert(path(999), bytes.clone());
    repo.rev += 1;
    let blocks = repo.blocks_since(&older);
    assert!(blocks.iter().all(|(_, block)| *block != bytes));
    for spoilt in [Some(b"other".to_vec()), None] {
        let mirror = mirror_of(&older);
        mirror.spoil(&path(42), spoilt);
        assert_eq!(refusal(&mirror, &blocks), "missing_record");
    }
}

#[test]
fn a_held_record_that_is_repeated_without_end() {
    let mut older = Repo::of(10);
    let large = record(1, 1 << 20);
    older
        .records
        .insert(b"com.example.thing/large".to_vec(), large);
    let mirror = mirror_of(&older);
    let mut blocks = repeated(1_030);
    blocks.pop();
    assert_eq!(refusal(&mirror, &blocks), "too_large");
}

/// What is held may have moved on since the tree was built.
#[test]
fn a_view_that_is_newer_than_the_tree() {
    let older = Repo::of(100);
    let mirror = mirror_of(&older);
    let tree = mirror.tree();
    let mut between = older.clone();
    between.records.insert(path(3), record(5_000, 40));
    between.rev += 1;
    mirror
        .take(&snapshot(&between.blocks(), 0).unwrap(), &keep_all, false)
        .unwrap();
    let mut repo = older.clone();
    repo.records.insert(path(50), record(6_000, 40));
    repo.rev += 2;
    let difference = snapshot(&repo.blocks_since(&older), 0)
        .unwrap()
        .with_held(tree);
    mirror.take(&difference, &keep_all, false).unwrap();
    assert_eq!(mirror.held(), repo.held());
}

#[test]
fn a_tree_that_is_too_large() {
    let mirror = mirror_of(&Repo::of(500));
    let build = |limit| HeldTree::build(&mirror.store.view(), mirror.id().unwrap(), limit);
    assert!(build(10_000).unwrap().is_none());
    assert!(build(1_000_000).unwrap().is_some());
}

/// A spoilt record is not in a difference; `repair` then says so.
#[test]
fn repair_needs_the_whole() {
    let repo = Repo::of(50);
    let mirror = mirror_of(&repo);
    mirror.spoil(&path(7), Some(b"other".to_vec()));
    let alone = vec![repo.blocks().remove(0)];
    let difference = snapshot(&alone, 0).unwrap().with_held(mirror.tree());
    let error = mirror.compare(&difference, &keep_all, true).unwrap_err();
    assert_eq!(error.class(), "missing_record");
    let unwanted = |_: &[u8]| Keep::Key;
    let (_, totals) = mirror.compare(&difference, &unwanted, true).unwrap();
    assert_eq!(totals.puts, 50);
}
