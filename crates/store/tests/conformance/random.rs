//! Tests long runs of random changes against a model.

use std::collections::BTreeMap;

use gapless_core::ledger::{Account, Debt, DebtItem, DebtReason, Held, RepoId, Tick, Time};
use gapless_store::Store;
use gapless_store::change::{Change, EntryContent, HostChange, RecordOp, RecordsKind, RepoChange};
use gapless_store::engine::{KeyRange, MemoryEngine};
use gapless_store::error::StoreError;
use gapless_store::queue::GroupLimits;
use gapless_store::read_view::ReadView;
use gapless_store::table::Table;

use crate::owner::{Owner, done, entry, new_upstream, op};
use crate::world::World;

/// Chance, from a seed.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % bound
    }
}

const OWNERS: u32 = 6;

/// Makes changes, and knows what they come to.
struct Story {
    dice: Dice,
    owners: Vec<Owner>,
    /// Numbers that the log must have by now.
    numbers: u64,
    refused: u64,
}

impl Story {
    fn new(seed: u64) -> Story {
        Story {
            dice: Dice(seed),
            owners: (0..OWNERS).map(Owner::new).collect(),
            numbers: 0,
            refused: 0,
        }
    }

    /// One change, and whether it must be refused.
    fn next(&mut self) -> (Change, bool) {
        let who = self.dice.below(OWNERS.into()) as usize;
        match self.dice.below(16) {
            0..=8 => (self.live(who), false),
            9..=10 => (self.snapshot(who), false),
            11 => (self.account(who), false),
            12 => (self.identity(who), false),
            13 => (self.purge(who), false),
            14 => (self.owing(who), false),
            _ => {
                self.refused += 1;
                (self.nonsense(who), true)
            }
        }
    }

    fn live(&mut self, who: usize) -> Change {
        let mut writes = BTreeMap::new();
        for _ in 0..self.dice.below(5) {
            let path = format!("app.c{}/{}", self.dice.below(3), self.dice.below(8));
            let held = self.owners[who].records.contains_key(path.as_bytes());
            let bytes = if held && self.dice.below(3) == 0 {
                None
            } else {
                Some(format!("record {}", self.dice.below(1 << 40)))
            };
            writes.insert(path, bytes);
        }
        let writes: Vec<(&str, Option<&str>)> = writes
            .iter()
            .map(|(path, bytes)| (path.as_str(), bytes.as_deref()))
            .collect();
        self.numbers += (writes.len() as u64).max(1);
        self.owners[who].live(&writes)
    }

    /// The owner rewrites everything, and we get it as a difference.
    fn snapshot(&mut self, who: usize) -> Change {
        let before = self.owners[who].records.clone();
        let owner = &mut self.owners[who];
        owner.records.clear();
        for number in 0..self.dice.below(12) {
            let path = format!("app.c{}/{number}", self.dice.below(3)).into_bytes();
            owner
                .records
                .insert(path, format!("whole {}", owner.rev).into_bytes());
        }
        let mut ops: BTreeMap<Vec<u8>, RecordOp> = BTreeMap::new();
        for path in before.keys() {
            ops.insert(path.clone(), op(path, None));
        }
        for (path, bytes) in &owner.records {
            ops.insert(path.clone(), op(path, Some(bytes)));
        }
        self.numbers += (ops.len() as u64).max(1);
        let head = owner.sign();
        let kind = match owner.row.held {
            Held::Nothing => RecordsKind::Backfill,
            _ => RecordsKind::Repair,
        };
        owner.change(kind, Held::Exactly(head), ops.into_values().collect())
    }

    fn with_entry(&mut self, who: usize, what: EntryContent) -> Change {
        let owner = &self.owners[who];
        Change {
            repo: Some(RepoChange {
                entry: Some(entry(what)),
                ..RepoChange::row(owner.subject(), owner.row.clone())
            }),
            ..Change::default()
        }
    }

    fn account(&mut self, who: usize) -> Change {
        self.numbers += 1;
        self.owners[who].row.account = match self.dice.below(2) {
            0 => Account::Active,
            _ => Account::Deactivated,
        };
        self.with_entry(who, EntryContent::Account)
    }

    fn identity(&mut self, who: usize) -> Change {
        self.numbers += 1;
        self.owners[who].row.document += 1;
        self.with_entry(who, EntryContent::Identity)
    }

    fn purge(&mut self, who: usize) -> Change {
        let owner = &mut self.owners[who];
        self.numbers += (owner.records.len() as u64).max(1);
        owner.records.clear();
        owner.row.held = Held::Nothing;
        owner.row.lineage += 1;
        self.with_entry(who, EntryContent::Purge)
    }

    fn owing(&mut self, who: usize) -> Change {
        let owes = self.dice.below(2) == 0;
        let owner = &mut self.owners[who];
        owner.row.debt = Debt {
            fetch: owes.then_some(DebtItem {
                at: Tick(owner.rev),
                why: DebtReason::BrokenChain,
            }),
            ..Debt::default()
        };
        owner.row_change()
    }

    /// Something that no decision could come to. The owner forgets it.
    fn nonsense(&mut self, who: usize) -> Change {
        let owner = &mut self.owners[who];
        let (records, row, rev) = (owner.records.clone(), owner.row.clone(), owner.rev);
        let mut change = owner.live(&[("app.c9/new", Some("x")), ("app.c9/none", None)]);
        change.tick = Tick(1 << 50);
        change.host = Some(HostChange::Named("nowhere.example.org".to_owned()));
        (owner.records, owner.row, owner.rev) = (records, row, rev);
        change
    }

    /// Everything the store holds is what the story says.
    fn check(&self, view: &ReadView) {
        let mut held = 0;
        for owner in &self.owners {
            let Some((id, row)) = view.repo_by_did(&owner.did).unwrap() else {
                assert!(owner.records.is_empty());
                continue;
            };
            assert_eq!(row, owner.row);
            assert_eq!(view.root(id).unwrap(), owner.root());
            if let Some(head) = row.head() {
                assert_eq!(head.data, owner.root(), "what is held is what was signed");
            }
            for (path, bytes) in &owner.records {
                let record = view.record(id, path).unwrap().unwrap();
                assert_eq!(record.bytes(), Some(bytes.as_slice()));
            }
            held += owner.records.len() as u64;
        }
        let counts = view.counts().unwrap();
        assert_eq!(counts.records, held);
        let owing = self
            .owners
            .iter()
            .filter(|owner| !owner.row.debt.is_empty());
        assert_eq!(counts.debts, owing.count() as u64);
        assert_eq!(counts.hosts, 0, "of a refused change nothing is left");
        assert_eq!(view.counters().unwrap().last_tick, Tick(0));
        self.check_log(view);
    }

    /// Dense, in order, and it tells the same story.
    fn check_log(&self, view: &ReadView) {
        let mut next = 1;
        let mut replayed: BTreeMap<RepoId, BTreeMap<Vec<u8>, _>> = BTreeMap::new();
        for row in view.log_from(0).unwrap() {
            let (first, row) = row.unwrap();
            assert_eq!(first, next, "dense");
            next = first + row.numbers();
            assert_eq!(row.at, Time(77));
            let records = replayed.entry(row.repo.unwrap()).or_default();
            for op in row.ops {
                let previous = op.previous.map(|previous| previous.cid);
                assert_eq!(records.get(&op.path).copied(), previous);
                match op.cid {
                    Some(cid) => records.insert(op.path, cid),
                    None => records.remove(&op.path),
                };
            }
        }
        assert_eq!(next, self.numbers + 1);
        assert_eq!(view.counters().unwrap().next_seq, next);
        for (id, records) in replayed {
            let held: BTreeMap<Vec<u8>, _> = view
                .records(id)
                .map(|record| record.unwrap())
                .map(|record| (record.path().to_vec(), record.cid))
                .collect();
            assert_eq!(records, held, "replaying the log gives what is held");
        }
    }
}

pub(crate) fn many_random_changes(world: &dyn World) {
    let mut story = Story::new(0xa11ce);
    let mut book = world.book();
    let upstream = new_upstream(&mut book);
    let mut seq = 0;
    for round in 0..60u64 {
        let mut group = Vec::new();
        let mut wanted = Vec::new();
        for _ in 0..story.dice.below(12) {
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
