//! Tests the committer with many writers and readers at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gapless_store::Store;
use gapless_store::change::Change;
use gapless_store::engine::MemoryEngine;
use gapless_store::error::{Contradiction, StoreError};
use gapless_store::queue::GroupLimits;

use crate::event;

const WRITERS: u32 = 4;
const EACH: u64 = 300;

fn many_writers(store: Store) {
    let store = Arc::new(store);
    let stop = Arc::new(AtomicBool::new(false));
    let reader = std::thread::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        move || {
            let mut looks = 0u64;
            while !stop.load(Ordering::SeqCst) {
                let head = store.durable_head();
                let view = store.view();
                let numbers = view.counters().unwrap().next_seq;
                assert!(
                    numbers >= head.next_seq,
                    "a later view has at least the head"
                );
                let rows = view.log_from(0).unwrap().map(|row| row.unwrap().0);
                assert!(rows.eq(1..numbers), "whole batches, in order");
                looks += 1;
            }
            looks
        }
    });
    let writers: Vec<_> = (0..WRITERS)
        .map(|who| {
            let store = store.clone();
            std::thread::spawn(move || {
                let (tell, told) = std::sync::mpsc::sync_channel(EACH as usize);
                for _ in 0..EACH {
                    let (tell, seen) = (tell.clone(), store.clone());
                    store.submit(event(who), move |answer| {
                        let ack = answer.unwrap();
                        assert!(seen.durable_head().next_seq > ack.numbers.clone().unwrap().start);
                        tell.send(ack).unwrap();
                    });
                }
                drop(tell);
                told.iter().collect::<Vec<_>>()
            })
        })
        .collect();
    let (mut numbers, mut batches) = (BTreeSet::new(), BTreeSet::new());
    for writer in writers {
        let acks = writer.join().unwrap();
        let own: Vec<u64> = acks
            .iter()
            .map(|ack| ack.numbers.clone().unwrap().start)
            .collect();
        assert!(own.is_sorted_by(|a, b| a < b), "first come, first served");
        numbers.extend(own);
        batches.extend(acks.iter().map(|ack| ack.batch));
    }
    stop.store(true, Ordering::SeqCst);
    assert!(reader.join().unwrap() > 0);
    let all = u64::from(WRITERS) * EACH;
    assert_eq!(numbers, (1..=all).collect(), "dense, and none twice");
    assert!(
        (batches.len() as u64) < all,
        "changes were written together"
    );
    assert_eq!(store.durable_head().batch, batches.len() as u64);
    store.close().unwrap();
}

#[test]
fn numbers_are_dense_and_views_whole_in_memory() {
    many_writers(Store::memory().unwrap());
}

#[test]
fn numbers_are_dense_and_views_whole_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let settings = crate::disk::settings();
    many_writers(Store::open(folder.path(), &settings).unwrap());
    let again = Store::open(folder.path(), &settings).unwrap();
    assert_eq!(again.durable_head().next_seq, 1 + u64::from(WRITERS) * EACH);
}

#[test]
fn the_end_waits_for_what_was_handed_over_and_takes_nothing_more() {
    let engine = MemoryEngine::new();
    let limits = GroupLimits {
        group_changes: 7,
        ..GroupLimits::default()
    };
    let store = Store::in_memory(engine.clone(), limits).unwrap();
    let written = Arc::new(AtomicU64::new(0));
    for who in 0..100 {
        let written = written.clone();
        store.submit(event(who % 5), move |answer| {
            answer.unwrap();
            written.fetch_add(1, Ordering::SeqCst);
        });
    }
    store.close().unwrap();
    assert_eq!(written.load(Ordering::SeqCst), 100);
    assert!(matches!(store.write(event(1)), Err(StoreError::Closed)));
    assert_eq!(store.view().log_from(0).unwrap().count(), 100);
    let again = Store::in_memory(engine, limits).unwrap();
    assert_eq!(again.durable_head().next_seq, 101);
    assert!(again.durable_head().batch >= 100 / 7);
}

/// As many repositories as there are rows that are kept at hand: the last one takes the place of the first.
const KEPT: u32 = 1 << 17;

fn with_lineage(who: u32, lineage: u32) -> Change {
    let mut change = event(who);
    let row = change.repo.as_mut().and_then(|repo| repo.row.as_mut());
    row.expect("it has a row").lineage = lineage;
    change
}

#[test]
fn a_row_that_was_read_before_another_change_is_not_believed() {
    let store = Store::memory().unwrap();
    for who in 0..=KEPT {
        store.submit(event(who), |answer| assert!(answer.is_ok()));
    }
    let first = store.write(event(0)).unwrap().repo.unwrap();
    let last = store.write(event(KEPT)).unwrap().repo.unwrap();
    assert_eq!(last.0 - first.0, u64::from(KEPT));
    let old = store.view();
    store.write(with_lineage(0, 2)).unwrap();
    store.write(event(KEPT)).unwrap();
    let did = event(0).repo.unwrap().row.unwrap().did;
    let (_, row) = old.repo_by_did(&did).unwrap().unwrap();
    assert_eq!(row.lineage, 0);
    let refused = store.write(with_lineage(0, 1));
    let back = StoreError::Refused(Contradiction::LineageBack);
    assert_eq!(refused.unwrap_err().to_string(), back.to_string());
    store.write(event(KEPT)).unwrap();
    let (_, row) = store.view().repo_by_did(&did).unwrap().unwrap();
    assert_eq!(row.lineage, 2);
    store.write(with_lineage(0, 3)).unwrap();
}
