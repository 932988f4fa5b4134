//! Tests consumers that follow the log: models that begin at any moment, by a walk or at the first
//! number, while the store changes, loses data and is trimmed, are equal to the store whenever they
//! have read everything.

use std::collections::BTreeSet;

use gapless_core::ledger::Held;
use gapless_core::retain::{Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold, When};
use gapless_store::apply::{is_redactable, log_lost_numbers};
use gapless_store::change::{Change, ConsumerChange, RecordsKind, Redaction, Upkeep};
use gapless_store::engine::{Engine, KeyRange, RawBatch};
use gapless_store::error::{ConsumerError, StoreError};
use gapless_store::log_model::LogModel;
use gapless_store::log_reader::{OpBytes, PageError, PageLimits, Walk, read_bytes, read_page};
use gapless_store::sync_writer::SyncWriter;
use gapless_store::table::log::{self, LogKind, LogRow};
use gapless_store::table::{Table, key};
use gapless_store::tx::Tx;

use crate::access::check_clean;
use crate::owner::{Owner, op, upkeep};
use crate::story::{Dice, Story};
use crate::world::World;

const LIMITS: PageLimits = PageLimits {
    rows: 3,
    operations: 7,
    ..PageLimits::DEFAULT
};
/// Records of one part of a walk: most repositories of the story have more.
const PART_RECORDS: usize = 4;

/// A consumer that is registered, and the model that it keeps.
struct Follower {
    key: ConsumerKey,
    model: LogModel,
    /// The walk that is under way.
    walk: Option<Walk>,
    /// How often it began again because the log was trimmed past it.
    restarts: u32,
    /// The rounds for which it does nothing.
    asleep: u32,
}

fn order(change: ConsumerChange) -> Change {
    Change {
        consumer: Some(change),
        ..Change::default()
    }
}

/// The kind of a row, without its content.
fn name_of(kind: LogKind) -> &'static str {
    match kind {
        LogKind::Live => "live",
        LogKind::Backfill => "backfill",
        LogKind::Repair => "repair",
        LogKind::Claimed(_) => "claimed",
        LogKind::Account(_) => "account",
        LogKind::Identity => "identity",
        LogKind::Lost(_) => "lost",
        LogKind::Redacted(_) => "redacted",
        LogKind::Purged(_) => "purged",
        LogKind::Restated => "restated",
        LogKind::Unclaimed => "unclaimed",
        LogKind::Trimmed(_) => "trimmed",
    }
}

const KINDS: usize = 12;

impl Follower {
    fn register(book: &mut SyncWriter, id: u32, late: bool) -> Follower {
        let key = ConsumerKey {
            class: ConsumerClass::Backup,
            id,
            lane: 0,
        };
        let view = book.view();
        let walk = late.then(|| Walk::begin(&view).unwrap());
        let model = match &walk {
            Some(walk) => LogModel::begin_walk(walk),
            None => LogModel::from_the_beginning(),
        };
        let follower = Follower {
            key,
            model,
            walk,
            restarts: 0,
            asleep: 0,
        };
        follower.register_again(book);
        follower
    }

    fn register_again(&self, book: &mut SyncWriter) {
        let consumer = Consumer {
            name: format!("follower {}", self.key.id),
            next: self.model.next,
            holds_from: self.model.next,
            registered: When::default(),
            moved: When::default(),
            hold: Hold::Always,
            needs: ConsumerNeeds::LogAndVersions,
            overrun: false,
        };
        let register = ConsumerChange::Register {
            key: self.key,
            consumer,
            log: None,
        };
        book.write(order(register)).unwrap();
    }

    /// Takes one part of its walk, or reads one page. Notes the kinds of the rows that it reads.
    fn step(&mut self, book: &mut SyncWriter, met: &mut BTreeSet<&'static str>) {
        let view = book.view();
        if let Some(walk) = &mut self.walk {
            match walk.next_part_of(&view, PART_RECORDS).unwrap() {
                Some(part) => self.model.take_part(&part),
                None => self.walk = None,
            }
            return;
        }
        if let Ok(page) = read_page(&view, self.model.next, LIMITS) {
            met.extend(page.rows.iter().map(|(_, row)| name_of(row.kind)));
        }
        match self.model.follow(&view, LIMITS) {
            Ok(_) => {
                let next = self.model.next;
                let moved = order(ConsumerChange::Move {
                    key: self.key,
                    next,
                    holds_from: next,
                    log: None,
                    at: When::default(),
                });
                match book.write(moved) {
                    // The store lost the registration.
                    Err(StoreError::Consumer(ConsumerError::Unknown { .. })) => {
                        self.register_again(book);
                    }
                    moved => drop(moved.unwrap()),
                }
            }
            Err(PageError::Trimmed { .. }) => {
                met.insert("trimmed");
                let walk = Walk::begin(&view).unwrap();
                self.model = LogModel::begin_walk(&walk);
                self.walk = Some(walk);
                self.restarts += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn is_at_head(&self, book: &SyncWriter) -> bool {
        self.walk.is_none() && self.model.next == book.head().next_seq
    }

    /// If it has read everything, it is equal to the store.
    fn compare(&self, book: &SyncWriter) {
        if self.is_at_head(book) {
            let difference = self.model.difference(&book.view()).unwrap();
            assert_eq!(difference, None, "follower {}", self.key.id);
            assert_eq!(self.model.spoilt, 0);
        }
    }
}

/// All rows of a store.
type Dump = Vec<(Table, Vec<u8>, Vec<u8>)>;

fn dump(engine: &dyn Engine) -> Dump {
    let mut all = Dump::new();
    for table in Table::ALL {
        for row in engine.snapshot().range(table, KeyRange::all()) {
            let (place, row) = row.unwrap();
            all.push((table, place.to_vec(), row.to_vec()));
        }
    }
    all
}

/// Sets a store back to what it was, as after a loss, and covers the lost numbers as a repair does.
fn lose_everything_since(engine: &mut dyn Engine, before: &Dump) {
    let head = gapless_store::tx::counters(&*engine.snapshot()).unwrap();
    let mut batch = RawBatch::default();
    for (table, place, _) in dump(engine) {
        batch.delete(table, place);
    }
    engine.commit(&batch).unwrap();
    let mut batch = RawBatch::default();
    for (table, place, row) in before {
        batch.put(*table, place.clone(), row.clone());
    }
    engine.commit(&batch).unwrap();
    cover_lost(engine, head.batch, head.next_seq + 1);
}

fn cover_lost(engine: &mut dyn Engine, batch: u64, next_seq: u64) {
    let mut tx = Tx::new(engine.snapshot()).unwrap();
    let at = tx.counters().last_stamp;
    log_lost_numbers(&mut tx, batch, next_seq, at);
    engine.commit(&tx.finish().0).unwrap();
}

/// Replaces one row of the log by a `lost` row, as a repair does with a damaged row.
fn lose_row(engine: &mut dyn Engine, dice: &mut Dice) {
    let rows: Vec<_> = engine
        .snapshot()
        .range(Table::Log, KeyRange::all())
        .collect();
    let (place, row) = rows[dice.below(rows.len() as u64) as usize]
        .clone()
        .unwrap();
    let row = log::decode(&row).unwrap();
    if !matches!(row.kind, LogKind::Trimmed(_)) {
        let lost = LogRow {
            stamp: row.stamp,
            ..LogRow::new(LogKind::Lost(row.numbers()), row.at)
        };
        let mut batch = RawBatch::default();
        batch.put(Table::Log, place.to_vec(), log::encode(&lost));
        engine.commit(&batch).unwrap();
    }
    let head = gapless_store::tx::counters(&*engine.snapshot()).unwrap();
    cover_lost(engine, head.batch, head.next_seq + 1);
}

/// A store that changes while followers read, and may lose data.
struct Run<'w> {
    world: &'w dyn World,
    story: Story,
    dice: Dice,
    book: Option<SyncWriter>,
    /// What the store was at an earlier moment, and the story then.
    before: Option<(Dump, Story)>,
    losses: u32,
}

impl Run<'_> {
    fn book(&mut self) -> &mut SyncWriter {
        self.book.get_or_insert_with(|| self.world.book())
    }

    fn write_some(&mut self) {
        for _ in 0..self.dice.below(6) {
            let (change, refused) = self.story.next();
            let answer = self.book().write(change);
            assert_eq!(matches!(answer, Err(StoreError::Refused(_))), refused);
            // Followers hold claims, so fewer give way than the story expects.
            self.story.numbers = self.book().head().next_seq - 1;
        }
    }

    fn trim(&mut self) {
        let head = self.book().head().next_seq;
        let below = self.dice.below(head + 1);
        let at = When::default();
        self.book()
            .write(upkeep(Upkeep::Trim { below, at }))
            .unwrap();
    }

    fn expire(&mut self) {
        let view = self.book().view();
        let keys = view.superseded_keys(b"").take(200);
        let keys = keys.map(|row| row.unwrap().0).collect();
        let (below, at) = (u64::MAX, When::default());
        let expire = Upkeep::Expire { keys, below, at };
        self.book().write(upkeep(expire)).unwrap();
    }

    /// Redacts what the purges of the past left behind.
    fn redact(&mut self) {
        let view = self.book().view();
        for purge in view.purges(0) {
            let (purge, row) = purge.unwrap();
            let mut rows = Vec::new();
            for found in view.log_from(row.upto).unwrap() {
                let (first, found) = found.unwrap();
                let own = first < purge || matches!(found.kind, LogKind::Purged(_));
                let of_purge = found.repo == Some(row.repo) && own && first < row.rows_end;
                if of_purge && is_redactable(found.kind) {
                    rows.push(first);
                }
            }
            let redaction = Redaction {
                purge,
                rows,
                upto: row.rows_end,
                overdue: self.dice.below(4) == 0,
                ..Redaction::default()
            };
            if row.deleting.is_none() && !row.is_redacted(purge) {
                self.book()
                    .write(upkeep(Upkeep::Redact(redaction)))
                    .unwrap();
            }
        }
    }

    /// Opens the store again, perhaps after a loss.
    fn reopen(&mut self) {
        self.book = None;
        let mut engine = self.world.engine();
        match self.dice.below(8) {
            0..=2 => self.before = Some((dump(&*engine), self.story.clone())),
            3 => {
                if let Some((before, story)) = self.before.take() {
                    lose_everything_since(&mut *engine, &before);
                    self.story = story;
                    self.losses += 1;
                }
            }
            4 => lose_row(&mut *engine, &mut self.dice),
            5 => {
                drop(engine);
                let view = self.book().view();
                let lost = self.story.lose_record(&view);
                drop(view);
                self.book = None;
                engine = self.world.engine();
                if let Some((id, path)) = lost {
                    let mut batch = RawBatch::default();
                    batch.delete(Table::Record, key::path(id, &path).to_vec());
                    engine.commit(&batch).unwrap();
                    // It is not back after a later loss.
                    self.before = None;
                }
            }
            _ => {}
        }
        drop(engine);
        self.story.numbers = self.book().head().next_seq - 1;
        check_clean(self.book());
    }
}

fn run(world: &dyn World, seed: u64, rounds: u32) {
    let mut run = Run {
        world,
        story: Story::new(seed),
        dice: Dice(seed ^ 0x5eed),
        book: None,
        before: None,
        losses: 0,
    };
    let mut met = BTreeSet::new();
    let mut followers = vec![Follower::register(run.book(), 0, false)];
    for round in 0..rounds {
        run.write_some();
        let which = run.dice.below(followers.len() as u64) as usize;
        match run.dice.below(16) {
            0 if followers.len() < 12 => {
                followers.push(Follower::register(run.book(), round + 1, true));
            }
            // It holds nothing until it moves again.
            1 => {
                followers[which].asleep = 60;
                let (key, at) = (followers[which].key, When::default());
                match run.book().write(order(ConsumerChange::Overrun { key, at })) {
                    Ok(_) | Err(StoreError::Consumer(ConsumerError::Unknown { .. })) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            2..=3 => run.trim(),
            4 => run.reopen(),
            5 => run.expire(),
            6 => run.redact(),
            _ => {}
        }
        for follower in &mut followers {
            if follower.asleep > 0 {
                follower.asleep -= 1;
                continue;
            }
            for _ in 0..run.dice.below(4) {
                follower.step(run.book(), &mut met);
                follower.compare(run.book());
            }
        }
    }
    for follower in &mut followers {
        while !follower.is_at_head(run.book()) {
            follower.step(run.book(), &mut met);
        }
        follower.compare(run.book());
    }
    let restarts: u32 = followers.iter().map(|follower| follower.restarts).sum();
    assert!(restarts > 0, "no follower was ever trimmed past");
    assert!(run.losses > 0, "the store never went back");
    assert_eq!(met.len(), KINDS, "some kind was never met: {met:?}");
}

pub(crate) fn models_that_begin_at_any_moment_end_equal(world: &dyn World) {
    // Long enough to meet every kind of row; the engine on disk takes its time to open.
    run(world, 0xf0110, 260);
}

/// Runs the followers with as many seeds as the environment says.
#[test]
fn models_end_equal_with_many_seeds() {
    let seeds = std::env::var("GAPLESS_FOLLOWER_SEEDS").map_or(3, |text| text.parse().unwrap());
    for seed in 0..seeds {
        println!("seed {seed}");
        run(&crate::Memory::fresh(), seed, 900);
    }
}

pub(crate) fn an_operation_has_its_bytes_or_says_why_not(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    for text in ["one", "two", "three"] {
        book.write(alice.live(&[("app.a/1", Some(text))])).unwrap();
    }
    book.write(alice.live(&[("app.a/1", None)])).unwrap();
    let read = |book: &SyncWriter| -> Vec<Option<OpBytes>> {
        let view = book.view();
        let page = read_page(&view, 1, PageLimits::default()).unwrap();
        let ops = page
            .rows
            .iter()
            .flat_map(|(_, row)| row.ops.iter().map(move |op| (row, op)));
        ops.map(|(row, op)| read_bytes(&view, row, op).unwrap())
            .collect()
    };
    let record = |text: &str| Some(OpBytes::Record(text.as_bytes().to_vec()));
    assert_eq!(
        read(&book),
        [record("one"), record("two"), record("three"), None]
    );
    let keys: Vec<Vec<u8>> = book
        .view()
        .superseded_keys(b"")
        .map(|row| row.unwrap().0)
        .collect();
    let expire = |keys: Vec<Vec<u8>>| Change {
        upkeep: Some(Upkeep::Expire {
            keys,
            below: u64::MAX,
            at: When::default(),
        }),
        ..Change::default()
    };
    book.write(expire(keys)).unwrap();
    let gone = |by| Some(OpBytes::Superseded { by });
    assert_eq!(read(&book), [gone(None), gone(None), gone(None), None]);
    book.write(alice.live(&[("app.a/1", Some("again"))]))
        .unwrap();
    assert_eq!(
        read(&book),
        [
            gone(Some(5)),
            gone(Some(5)),
            gone(Some(5)),
            None,
            record("again")
        ]
    );
}

pub(crate) fn a_page_ends_at_its_limits_and_at_the_head(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let two = [("app.a/1", Some("x")), ("app.a/2", Some("y"))];
    book.write(alice.live(&two)).unwrap();
    for text in ["a", "b", "c"] {
        book.write(alice.live(&[("app.b/1", Some(text))])).unwrap();
    }
    let view = book.view();
    let one_row = PageLimits {
        rows: 1,
        ..PageLimits::default()
    };
    let page = read_page(&view, 2, one_row).unwrap();
    assert_eq!((page.rows[0].0, page.next, page.more), (1, 3, true));
    let page = read_page(&view, 3, PageLimits::default()).unwrap();
    assert_eq!((page.rows.len(), page.next, page.more), (3, 6, false));
    let page = read_page(&view, 6, PageLimits::default()).unwrap();
    assert_eq!((page.rows.len(), page.next, page.more), (0, 6, false));
    let beyond = read_page(&view, 7, PageLimits::default());
    assert!(matches!(
        beyond,
        Err(PageError::Missing { number: 7, head: 6 })
    ));
}

pub(crate) fn bytes_that_are_not_there_say_why(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let ack = book.write(alice.live(&[("app.a/1", Some("one"))])).unwrap();
    let id = ack.repo.unwrap();
    alice.records.insert(b"app.a/2".to_vec(), b"two".to_vec());
    let head = Held::Exactly(alice.sign());
    let mut key_only = op(b"app.a/2", Some(b"two"));
    key_only.put.as_mut().unwrap().bytes = None;
    let change = alice.change(RecordsKind::Live, head, vec![key_only]);
    book.write(change).unwrap();
    let rows = read_page(&book.view(), 1, PageLimits::default())
        .unwrap()
        .rows;
    let read = |book: &SyncWriter, row: usize| {
        let row = &rows[row].1;
        read_bytes(&book.view(), row, &row.ops[0]).unwrap().unwrap()
    };
    assert_eq!(read(&book, 1), OpBytes::KeyOnly);
    book.write(alice.live(&[("app.a/2", None)])).unwrap();
    assert_eq!(
        read(&book, 1),
        OpBytes::KeyOnly,
        "also once it is superseded"
    );
    drop(book);
    // The disk changes a byte of the record.
    let mut engine = world.engine();
    let place = key::path(id, b"app.a/1").to_vec();
    let mut row = engine.get(Table::Record, &place).unwrap().unwrap().to_vec();
    *row.last_mut().unwrap() ^= 1;
    let mut batch = RawBatch::default();
    batch.put(Table::Record, place, row);
    engine.commit(&batch).unwrap();
    drop(engine);
    let mut book = world.book();
    assert_eq!(read(&book, 0), OpBytes::Spoilt);
    book.write(alice.purge()).unwrap();
    assert_eq!(read(&book, 0), OpBytes::Redacted, "not between two parts");
}

pub(crate) fn a_page_below_a_trimmed_log_is_refused(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    for text in ["one", "two", "three"] {
        book.write(alice.live(&[("app.a/1", Some(text))])).unwrap();
    }
    let (below, at) = (3, When::default());
    book.write(upkeep(Upkeep::Trim { below, at })).unwrap();
    drop(book);
    let book = world.book();
    for next in [1, 2] {
        let page = read_page(&book.view(), next, PageLimits::default());
        let gone = PageError::Trimmed { next, first: 3 };
        assert_eq!(page.unwrap_err().to_string(), gone.to_string());
    }
    let page = read_page(&book.view(), 3, PageLimits::default()).unwrap();
    assert_eq!((page.rows.len(), page.next), (1, 4));
    assert_eq!(book.view().first_log_number().unwrap(), 3);
}

pub(crate) fn a_failed_row_is_read_again(world: &dyn World) {
    let mut book = world.book();
    let mut alice = Owner::new(1);
    let mut id = None;
    for path in ["app.a/1", "app.a/2", "app.a/3"] {
        id = book.write(alice.live(&[(path, Some("x"))])).unwrap().repo;
    }
    drop(book);
    let place = key::path(id.unwrap(), b"app.a/2").to_vec();
    let put = |row: Vec<u8>| {
        let mut engine = world.engine();
        let before = engine.get(Table::Record, &place).unwrap().unwrap();
        let mut batch = RawBatch::default();
        batch.put(Table::Record, place.clone(), row);
        engine.commit(&batch).unwrap();
        before.to_vec()
    };
    let sound = put(vec![99]);
    let mut model = LogModel::from_the_beginning();
    let view = world.book().view();
    model.follow(&view, PageLimits::default()).unwrap_err();
    assert_eq!(model.next, 2, "neither processed nor skipped");
    drop(view);
    put(sound);
    let view = world.book().view();
    model.follow(&view, PageLimits::default()).unwrap();
    assert_eq!((model.next, model.difference(&view).unwrap()), (4, None));
}
