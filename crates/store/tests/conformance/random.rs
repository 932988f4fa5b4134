//! Tests long runs of random changes against a model.

use gapless_store::Store;
use gapless_store::change::Change;
use gapless_store::engine::{KeyRange, MemoryEngine};
use gapless_store::error::StoreError;
use gapless_store::queue::GroupLimits;
use gapless_store::read_view::ReadView;
use gapless_store::table::Table;

use crate::owner::{done, new_upstream};
use crate::story::{Dice, Story};
use crate::world::World;

pub(crate) fn many_random_changes(world: &dyn World) {
    let (mut story, mut dice) = (Story::new(0xa11ce), Dice(0xd1ce));
    let mut book = world.book();
    let upstream = new_upstream(&mut book);
    let mut seq = 0;
    for round in 0..60u64 {
        let mut group = Vec::new();
        let mut wanted = Vec::new();
        for _ in 0..dice.below(12) {
            let (mut change, refused) = story.next();
            seq += 1;
            book.begin(upstream, 0, seq);
            change.done = done(upstream, 0, seq);
            group.push(change);
            wanted.push(refused);
            if refused {
                // It becomes a dead letter, or here nothing, and is done by that.
                group.push(Change {
                    done: done(upstream, 0, seq),
                    ..Change::default()
                });
                wanted.push(false);
            }
        }
        let answers = book.write_group(group).unwrap();
        let refused: Vec<bool> = answers
            .iter()
            .map(|answer| matches!(answer, Err(StoreError::Refused(_))))
            .collect();
        assert_eq!(refused, wanted);
        let cursor = book.view().cursor(upstream).unwrap();
        assert_eq!(cursor.map_or(0, |cursor| cursor.seq), seq);
        if round % 20 == 19 {
            story.check(&book.view());
            drop(book);
            book = world.book();
            assert_eq!(book.head().next_seq, story.numbers + 1);
            story.check(&book.view());
        }
    }
    assert!(story.refused > 5, "refusals were part of the story");
}

/// All but the counters, which count groups.
fn rows(view: &ReadView) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for table in Table::ALL.into_iter().filter(|table| *table != Table::Meta) {
        for row in view.raw().range(table, KeyRange::all()) {
            let (key, value) = row.unwrap();
            all.push((table, key.to_vec(), value.to_vec()));
        }
    }
    all
}

/// Through the committer's threads, in groups of any size: the same rows as one by
/// one.
#[test]
fn what_goes_through_the_threads_comes_to_the_same() {
    for seed in 0..20u64 {
        let mut story = Story::new(seed.wrapping_mul(77));
        let changes: Vec<Change> = (0..300).map(|_| story.next().0).collect();
        let limits = GroupLimits {
            group_changes: 1 + seed as usize % 5,
            group_bytes: 1 << (seed % 16),
            queue_changes: 1 + seed as usize % 7,
            ..GroupLimits::default()
        };
        let store = Store::in_memory(MemoryEngine::new(), limits).unwrap();
        for change in changes.clone() {
            store.submit(change, |_| {});
        }
        store.close().unwrap();
        story.check(&store.view());
        let mut one_by_one = crate::Memory::fresh().book();
        for change in changes {
            let _ = one_by_one.write(change);
        }
        assert!(
            rows(&store.view()) == rows(&one_by_one.view()),
            "seed {seed}"
        );
    }
}

/// Changes applied one by one and in one group give the same rows.
pub(crate) fn the_size_of_groups_does_not_matter(world: &dyn World) {
    let mut story = Story::new(7);
    let changes: Vec<Change> = (0..150).map(|_| story.next().0).collect();
    let mut one_by_one = crate::Memory::fresh().book();
    for change in changes.clone() {
        let _ = one_by_one.write(change);
    }
    let mut at_once = world.book();
    at_once.write_group(changes).unwrap();
    story.check(&at_once.view());
    assert_eq!(rows(&at_once.view()), rows(&one_by_one.view()));
    assert_eq!(at_once.head().batch, 1);
}
