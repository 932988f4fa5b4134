//! Tests the engine: bytes by table, written atomically, read in order and isolated, and still
//! there after a restart.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use gapless_store::engine::{Engine, KeyRange, RawBatch, View};
use gapless_store::table::Table;

use crate::story::Dice;
use crate::world::World;

fn batch(writes: &[(Table, &str, Option<&str>)]) -> RawBatch {
    let mut batch = RawBatch::default();
    for (table, key, value) in writes {
        match value {
            Some(value) => batch.put(*table, *key, *value),
            None => batch.delete(*table, *key),
        }
    }
    batch
}

fn get(view: &dyn View, table: Table, key: &str) -> Option<String> {
    let value = view.get(table, key.as_bytes()).unwrap()?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

fn keys(view: &dyn View, table: Table, range: KeyRange) -> Vec<Vec<u8>> {
    view.range(table, range)
        .map(|row| row.unwrap().0.to_vec())
        .collect()
}

/// Two tables always carry the same number, and no snapshot may see different ones.
pub(crate) fn a_batch_is_seen_whole(world: &dyn World) {
    let mut engine = world.engine();
    let write = |engine: &mut Box<dyn Engine>, round: u32| {
        let text = round.to_string();
        let both = [
            (Table::Repo, "n", Some(text.as_str())),
            (Table::Log, "n", Some(text.as_str())),
        ];
        engine.commit(&batch(&both)).unwrap();
    };
    write(&mut engine, 0);
    let (views, seen) = std::sync::mpsc::sync_channel::<std::sync::Arc<dyn View>>(4);
    let looker = std::thread::spawn(move || {
        let mut last = 0;
        for view in seen {
            let repo = get(&*view, Table::Repo, "n").unwrap();
            assert_eq!(Some(&repo), get(&*view, Table::Log, "n").as_ref());
            let round: u32 = repo.parse().unwrap();
            assert!(round >= last, "batches are seen in order");
            last = round;
        }
        last
    });
    for round in 1..200 {
        write(&mut engine, round);
        views.send(engine.snapshot()).unwrap();
    }
    drop(views);
    assert_eq!(looker.join().unwrap(), 199);
}

pub(crate) fn the_later_of_two_writes_counts(world: &dyn World) {
    let mut engine = world.engine();
    let twice = [
        (Table::Meta, "a", Some("1")),
        (Table::Meta, "a", Some("2")),
        (Table::Meta, "b", Some("1")),
        (Table::Meta, "b", None),
        (Table::Meta, "c", None),
        (Table::Meta, "c", Some("3")),
    ];
    engine.commit(&batch(&twice)).unwrap();
    let view = engine.snapshot();
    assert_eq!(get(&*view, Table::Meta, "a").as_deref(), Some("2"));
    assert_eq!(get(&*view, Table::Meta, "b"), None);
    assert_eq!(get(&*view, Table::Meta, "c").as_deref(), Some("3"));
}

pub(crate) fn views_do_not_change(world: &dyn World) {
    let mut engine = world.engine();
    let first = [(Table::Did, "a", Some("1")), (Table::Did, "b", Some("1"))];
    engine.commit(&batch(&first)).unwrap();
    let before = engine.snapshot();
    let mut rows = before.range(Table::Did, KeyRange::all());
    assert_eq!(&*rows.next().unwrap().unwrap().0, b"a");
    let second = [
        (Table::Did, "a", Some("2")),
        (Table::Did, "b", None),
        (Table::Did, "c", Some("2")),
    ];
    engine.commit(&batch(&second)).unwrap();
    assert_eq!(get(&*before, Table::Did, "a").as_deref(), Some("1"));
    assert_eq!(get(&*before, Table::Did, "b").as_deref(), Some("1"));
    assert_eq!(get(&*before, Table::Did, "c"), None);
    let rest: Vec<Vec<u8>> = rows.map(|row| row.unwrap().0.to_vec()).collect();
    assert_eq!(
        rest,
        [b"b"],
        "an iterator under way sees what its view sees"
    );
    let after = engine.snapshot();
    assert_eq!(keys(&*after, Table::Did, KeyRange::all()), [b"a", b"c"]);
    assert_eq!(get(&*after, Table::Repo, "a"), None, "tables are apart");
}

pub(crate) fn ranges_go_both_ways_and_meet(world: &dyn World) {
    let mut engine = world.engine();
    let mut writes = RawBatch::default();
    for key in 0..10u8 {
        writes.put(Table::Hosted, [key], [key]);
    }
    engine.commit(&writes).unwrap();
    let view = engine.snapshot();
    let range = |start, end| KeyRange { start, end };
    let found = |range| -> Vec<u8> {
        let keys = keys(&*view, Table::Hosted, range);
        keys.into_iter().map(|key| key[0]).collect()
    };
    assert_eq!(
        found(range(Included(vec![3]), Excluded(vec![6]))),
        [3, 4, 5]
    );
    assert_eq!(
        found(range(Excluded(vec![3]), Included(vec![6]))),
        [4, 5, 6]
    );
    assert_eq!(found(KeyRange::from(vec![8])), [8, 9]);
    assert_eq!(found(KeyRange::up_to(vec![1])), [0, 1]);
    assert_eq!(found(range(Unbounded, Excluded(vec![0]))), [0; 0]);
    assert_eq!(found(range(Included(vec![5]), Excluded(vec![5]))), [0; 0]);
    assert_eq!(found(range(Included(vec![7]), Included(vec![2]))), [0; 0]);
    let mut rows = view.range(Table::Hosted, range(Included(vec![2]), Included(vec![6])));
    let mut ends = Vec::new();
    while let Some(front) = rows.next() {
        ends.push(front.unwrap().0[0]);
        ends.extend(rows.next_back().map(|back| back.unwrap().0[0]));
    }
    assert_eq!(ends, [2, 6, 3, 5, 4], "no row from both ends");
}

pub(crate) fn prefixes_of_any_bytes(world: &dyn World) {
    let mut engine = world.engine();
    let all: [&[u8]; 7] = [
        &[0],
        &[1],
        &[1, 0],
        &[1, 255],
        &[1, 255, 255],
        &[2],
        &[255, 255],
    ];
    let mut writes = RawBatch::default();
    for key in all {
        writes.put(Table::Debt, key, b"x".as_slice());
    }
    engine.commit(&writes).unwrap();
    let view = engine.snapshot();
    for prefix in [&[][..], &[1], &[1, 255], &[255], &[255, 255], &[3]] {
        let wanted: Vec<&[u8]> = all
            .into_iter()
            .filter(|key| key.starts_with(prefix))
            .collect();
        let found = keys(&*view, Table::Debt, KeyRange::prefix(prefix));
        assert_eq!(found, wanted, "prefix {prefix:?}");
    }
}

pub(crate) fn an_empty_batch_is_nothing(world: &dyn World) {
    let mut engine = world.engine();
    engine.commit(&RawBatch::default()).unwrap();
    let view = engine.snapshot();
    for table in Table::ALL {
        assert!(keys(&*view, table, KeyRange::all()).is_empty());
    }
}

/// Random batches against ordered maps, with views of every age.
pub(crate) fn like_ordered_maps(world: &dyn World) {
    let mut dice = Dice(0x5eed);
    let mut engine = world.engine();
    let mut model: BTreeMap<(Table, Vec<u8>), Vec<u8>> = BTreeMap::new();
    let mut remembered = Vec::new();
    for round in 0..120u32 {
        let mut batch = RawBatch::default();
        for _ in 0..dice.below(12) {
            let table = Table::ALL[dice.below(Table::ALL.len() as u64) as usize];
            let key: Vec<u8> = (0..1 + dice.below(3))
                .map(|_| dice.below(4) as u8 * 85)
                .collect();
            match dice.below(3) {
                0 => {
                    batch.delete(table, key.clone());
                    model.remove(&(table, key));
                }
                _ => {
                    let value = round.to_be_bytes().repeat(1 + dice.below(9) as usize);
                    batch.put(table, key.clone(), value.clone());
                    model.insert((table, key), value);
                }
            }
        }
        engine.commit(&batch).unwrap();
        if round % 10 == 0 {
            remembered.push((engine.snapshot(), model.clone()));
        }
    }
    remembered.push((engine.snapshot(), model));
    for (view, model) in remembered {
        for table in Table::ALL {
            let found: Vec<(Vec<u8>, Vec<u8>)> = view
                .range(table, KeyRange::all())
                .map(|row| row.unwrap())
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect();
            let wanted: Vec<(Vec<u8>, Vec<u8>)> = model
                .range((table, Vec::new())..)
                .take_while(|((of, _), _)| *of == table)
                .map(|((_, key), value)| (key.clone(), value.clone()))
                .collect();
            assert_eq!(found, wanted, "{table:?}");
            let mut backwards: Vec<Vec<u8>> = view
                .range(table, KeyRange::all())
                .rev()
                .map(|row| row.unwrap().0.to_vec())
                .collect();
            backwards.reverse();
            assert_eq!(
                backwards,
                wanted.into_iter().map(|row| row.0).collect::<Vec<_>>()
            );
        }
    }
}

pub(crate) fn what_was_committed_is_there_again(world: &dyn World) {
    let mut engine = world.engine();
    for round in 0..20u8 {
        let mut batch = RawBatch::default();
        batch.put(Table::Record, [round], vec![round; 1000]);
        batch.delete(Table::Record, [round.wrapping_sub(5)]);
        engine.commit(&batch).unwrap();
    }
    drop(engine);
    for _ in 0..2 {
        let engine = world.engine();
        let view = engine.snapshot();
        let wanted: Vec<Vec<u8>> = (15..20).map(|key| vec![key]).collect();
        assert_eq!(keys(&*view, Table::Record, KeyRange::all()), wanted);
        assert_eq!(
            *view.get(Table::Record, &[19]).unwrap().unwrap(),
            [19; 1000]
        );
    }
}
