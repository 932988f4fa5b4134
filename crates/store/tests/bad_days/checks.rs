//! Tests the check of a store: a sound store passes, and each kind of damage is found and
//! named.

use gapless_store::Store;
use gapless_store::check::check;
use gapless_store::engine::{Engine, KeyRange, MemoryEngine, RawBatch};
use gapless_store::queue::GroupLimits;
use gapless_store::read_view::ReadView;
use gapless_store::table::Table;
use gapless_store::table::log::{self, LogKind};
use gapless_store::table::meta::{self, Counters};

use crate::load::Load;

/// A store in memory with some hundred events in it.
fn filled() -> MemoryEngine {
    let engine = MemoryEngine::new();
    let store = Store::in_memory(engine.clone(), GroupLimits::default()).unwrap();
    let mut load = Load::resume(&store, 1);
    for _ in 0..400 {
        load.event().write(&store, &load.purges);
    }
    store.close().unwrap();
    engine
}

fn codes(engine: &MemoryEngine) -> Vec<&'static str> {
    let report = check(&ReadView::new(engine.snapshot()), &mut |_| {}).unwrap();
    assert_eq!(report.is_clean(), report.findings.is_empty());
    let mut codes: Vec<_> = report
        .findings
        .iter()
        .map(|finding| finding.code())
        .collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// What is done to a row.
enum Harm {
    Delete,
    /// This byte from the end is flipped.
    Flip(usize),
    Cut,
    Rewrite(fn(&[u8]) -> Vec<u8>),
}

fn harm(engine: &MemoryEngine, table: Table, place: usize, harm: &Harm) {
    let rows: Vec<_> = engine
        .snapshot()
        .range(table, KeyRange::all())
        .map(Result::unwrap)
        .collect();
    let (key, row) = &rows[place % rows.len()];
    let mut row = row.to_vec();
    let mut batch = RawBatch::default();
    match harm {
        Harm::Delete => {
            batch.delete(table, key.to_vec());
            return engine.clone().commit(&batch).unwrap();
        }
        Harm::Flip(from_end) => {
            let at = row.len() - 1 - from_end;
            row[at] ^= 1;
        }
        Harm::Cut => row.truncate(row.len() - 1),
        Harm::Rewrite(change) => row = change(&row),
    }
    batch.put(table, key.to_vec(), row);
    engine.clone().commit(&batch).unwrap();
}

fn longer(row: &[u8]) -> Vec<u8> {
    let mut row = log::decode(row).unwrap();
    row.kind = LogKind::Lost(row.numbers() + 1);
    row.repo = None;
    log::encode(&row)
}

fn of_an_unknown_repo(row: &[u8]) -> Vec<u8> {
    let mut row = log::decode(row).unwrap();
    row.repo = Some(gapless_core::ledger::RepoId(999));
    log::encode(&row)
}

fn fewer(change: fn(&mut Counters)) -> impl Fn(&[u8]) -> Vec<u8> {
    move |row| {
        let mut counters = meta::decode(row).unwrap();
        change(&mut counters);
        meta::encode(&counters)
    }
}

#[test]
fn a_sound_store_passes_and_is_counted() {
    let engine = filled();
    let report = check(&ReadView::new(engine.snapshot()), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    assert!(report.proven > 10 && report.proven <= report.repos);
    assert!(report.records > 500 && report.log_rows >= 400);
    assert!(report.log_numbers > report.log_rows);
}

#[test]
fn each_kind_of_damage_is_found_and_called_by_its_name() {
    let cases: &[(&str, Table, usize, Harm)] = &[
        ("root", Table::Record, 70, Harm::Delete),
        ("record_bytes", Table::Record, 70, Harm::Flip(0)),
        ("row", Table::Record, 70, Harm::Rewrite(|_| vec![9])),
        ("log_gap", Table::Log, 50, Harm::Delete),
        ("log_gap", Table::Log, 0, Harm::Delete),
        ("log_end", Table::Log, usize::MAX, Harm::Delete),
        ("log_overlap", Table::Log, 50, Harm::Rewrite(longer)),
        ("row", Table::Log, 50, Harm::Cut),
        (
            "disagree",
            Table::Log,
            50,
            Harm::Rewrite(of_an_unknown_repo),
        ),
        ("orphans", Table::Repo, 3, Harm::Delete),
        ("row", Table::Repo, 3, Harm::Cut),
        ("disagree", Table::Did, 3, Harm::Delete),
        ("disagree", Table::Did, 3, Harm::Flip(0)),
        ("disagree", Table::Hosted, 3, Harm::Delete),
        ("disagree", Table::Host, 1, Harm::Delete),
        ("disagree", Table::HostName, 1, Harm::Delete),
        ("disagree", Table::HostName, 1, Harm::Flip(0)),
        ("disagree", Table::Debt, 1, Harm::Delete),
        ("row", Table::Debt, 1, Harm::Cut),
        ("row", Table::Version, 9, Harm::Rewrite(|_| vec![1])),
        ("disagree", Table::Version, 9, Harm::Flip(0)),
        (
            "row",
            Table::Parked,
            0,
            Harm::Rewrite(|row| row[..20].to_vec()),
        ),
        (
            "row",
            Table::Dead,
            1,
            Harm::Rewrite(|row| row[..3].to_vec()),
        ),
        ("disagree", Table::Upstream, 0, Harm::Delete),
        ("row", Table::Upstream, 1, Harm::Cut),
    ];
    for (wanted, table, place, damage) in cases {
        let engine = filled();
        let last = engine.snapshot().range(*table, KeyRange::all()).count() - 1;
        harm(&engine, *table, (*place).min(last), damage);
        let found = codes(&engine);
        let name = table.name();
        assert!(
            found.contains(wanted),
            "{name} {place}: {wanted} not in {found:?}"
        );
    }
}

#[test]
fn numbers_that_would_be_given_out_again_are_found() {
    type Case = (&'static str, fn(&mut Counters));
    let cases: [Case; 7] = [
        ("log_end", |counters| counters.next_seq -= 1),
        ("disagree", |counters| counters.next_seq = 0),
        ("not_given_out", |counters| counters.next_repo -= 1),
        ("not_given_out", |counters| counters.next_repo = 0),
        ("not_given_out", |counters| counters.next_host -= 1),
        ("not_given_out", |counters| counters.next_upstream -= 1),
        ("not_given_out", |counters| counters.next_dead -= 1),
    ];
    for (wanted, change) in cases {
        let mut engine = filled();
        let row = engine.get(Table::Meta, meta::KEY).unwrap().unwrap();
        let mut batch = RawBatch::default();
        batch.put(Table::Meta, meta::KEY, fewer(change)(&row));
        engine.commit(&batch).unwrap();
        let found = codes(&engine);
        assert!(found.contains(&wanted), "{wanted} not in {found:?}");
    }
}

#[test]
fn rows_of_a_repository_that_is_not_there_are_found_in_every_table() {
    let engine = filled();
    for table in [
        Table::Record,
        Table::Version,
        Table::Claimed,
        Table::Parked,
        Table::Debt,
    ] {
        let mut batch = RawBatch::default();
        let key = [&7_000_u64.to_be_bytes()[..], b"\0\0\0\0\0\0\0\x05"].concat();
        batch.put(table, key, vec![1]);
        engine.clone().commit(&batch).unwrap();
    }
    let report = check(&ReadView::new(engine.snapshot()), &mut |_| {}).unwrap();
    assert_eq!(report.found, 5);
    assert!(
        report
            .findings
            .iter()
            .all(|finding| finding.code() == "orphans")
    );
}
