//! Tests consumers that follow the log: models that begin at any moment, by a walk or at the first
//! number, while the store changes and the log is trimmed, end equal to the store.

use gapless_core::ledger::{Lived, Time};
use gapless_core::retain::{Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold, When};
use gapless_store::change::{Change, ConsumerChange, Upkeep};
use gapless_store::error::StoreError;
use gapless_store::log_model::LogModel;
use gapless_store::log_reader::{OpBytes, PageError, PageLimits, Walk, read_bytes, read_page};
use gapless_store::sync_writer::SyncWriter;

use crate::owner::Owner;
use crate::random::{Dice, Story};
use crate::world::World;

const LIMITS: PageLimits = PageLimits {
    rows: 3,
    operations: 7,
};

/// A consumer that is registered, and the model that it keeps.
struct Follower {
    key: ConsumerKey,
    model: LogModel,
    /// The walk that is under way.
    walk: Option<Walk>,
    /// How often it began again because the log was trimmed past it.
    restarts: u32,
}

fn now() -> When {
    When {
        time: Time(0),
        lived: Lived(0),
    }
}

fn order(book: &mut SyncWriter, change: ConsumerChange) {
    let change = Change {
        consumer: Some(change),
        ..Change::default()
    };
    book.write(change).unwrap();
}

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
        let consumer = Consumer {
            name: format!("follower {id}"),
            next: model.next,
            holds_from: model.next,
            registered: now(),
            moved: now(),
            hold: Hold::Always,
            needs: ConsumerNeeds::LogAndVersions,
            overrun: false,
        };
        order(
            book,
            ConsumerChange::Register {
                key,
                consumer,
                log: None,
            },
        );
        Follower {
            key,
            model,
            walk,
            restarts: 0,
        }
    }

    /// Takes one part of its walk, or reads one page.
    fn step(&mut self, book: &mut SyncWriter) {
        let view = book.view();
        if let Some(walk) = &mut self.walk {
            match walk.next_part(&view).unwrap() {
                Some(part) => self.model.take_part(&part),
                None => self.walk = None,
            }
            return;
        }
        match self.model.follow(&view, LIMITS) {
            Ok(_) => {
                let (key, next) = (self.key, self.model.next);
                let (holds_from, log, at) = (next, None, now());
                order(
                    book,
                    ConsumerChange::Move {
                        key,
                        next,
                        holds_from,
                        log,
                        at,
                    },
                );
            }
            Err(PageError::Trimmed { .. }) => {
                let walk = Walk::begin(&view).unwrap();
                self.model = LogModel::begin_walk(&walk);
                self.walk = Some(walk);
                self.restarts += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn catch_up(&mut self, book: &mut SyncWriter) {
        while self.walk.is_some() || self.model.next < book.view().counters().unwrap().next_seq {
            self.step(book);
        }
    }
}

fn run(world: &dyn World, seed: u64, rounds: u32) -> u32 {
    let mut story = Story::new(seed);
    let mut dice = Dice(seed ^ 0x5eed);
    let mut book = world.book();
    let mut followers = vec![Follower::register(&mut book, 0, false)];
    for round in 0..rounds {
        for _ in 0..dice.below(6) {
            let (change, refused) = story.next();
            let answer = book.write(change);
            assert_eq!(matches!(answer, Err(StoreError::Refused(_))), refused);
        }
        let which = dice.below(followers.len() as u64) as usize;
        match dice.below(12) {
            0 => followers.push(Follower::register(&mut book, round + 1, true)),
            // It holds nothing until it moves again.
            1 => order(
                &mut book,
                ConsumerChange::Overrun {
                    key: followers[which].key,
                    at: now(),
                },
            ),
            2..=3 => {
                let below = dice.below(book.head().next_seq + 1);
                let upkeep = Some(Upkeep::Trim {
                    below,
                    lived: Lived(0),
                });
                book.write(Change {
                    upkeep,
                    ..Change::default()
                })
                .unwrap();
            }
            4 => {
                drop(book);
                book = world.book();
            }
            _ => followers[which].step(&mut book),
        }
    }
    let mut restarts = 0;
    for follower in &mut followers {
        follower.catch_up(&mut book);
        let difference = follower.model.difference(&book.view()).unwrap();
        assert_eq!(difference, None, "seed {seed}, {}", follower.key.id);
        restarts += follower.restarts;
    }
    restarts
}

pub(crate) fn models_that_begin_at_any_moment_end_equal(world: &dyn World) {
    let restarts = run(world, 0xf0110, 900);
    assert!(restarts > 0, "no follower was ever trimmed past");
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
            lived: Lived(0),
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
