//! The rows that a desk has at hand: the newest decided state of a repository,
//! which may not be durable yet. What is on its way stays; the rest goes when
//! there are too many.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use gapless_atp::crypto::PublicKey;
use gapless_atp::syntax::Did;
use gapless_core::ledger::{KeyBytes, Repo, RepoId};

use crate::desk::{Arrived, Item, Then};

/// Rows at hand at one desk, about a kilobyte each. Not many: the store keeps more
/// of them, smaller.
const ROWS: usize = 8_192;

/// A change on its way to the store.
pub struct Flight {
    pub number: u64,
    /// See `Change::stands_on`.
    pub stands_on: u64,
    /// Whether a dead letter goes with it.
    pub letter: bool,
    pub event: Option<Box<Arrived>>,
    pub then: Option<Then>,
}

/// One repository at a desk.
pub struct Slot {
    pub did: Did,
    pub id: Option<RepoId>,
    /// None when the store knows no such repository.
    pub repo: Option<Repo>,
    /// The owner's key, read from its bytes.
    pub key: Option<(KeyBytes, PublicKey)>,
    /// Some of its frames are parked.
    pub has_parked: bool,
    /// Their bytes, as far as they were counted here.
    pub parked_bytes: u64,
    pub flights: VecDeque<Flight>,
    /// What must wait for what is on its way, in order.
    pub lane: VecDeque<Item>,
    /// Something was refused: what is at hand is not what the store has.
    pub broken: bool,
    /// Events whose changes were refused, in the order of the changes.
    pub failed: Vec<(u64, Box<Arrived>)>,
    /// There was no room on the disk: it is tried again after a while.
    pub rests: bool,
    touched: u64,
}

impl Slot {
    /// So many bytes wait for it now; `in_all` is what waits for everybody.
    pub fn count_parked(&mut self, in_all: &AtomicU64, now: u64) {
        let before = std::mem::replace(&mut self.parked_bytes, now);
        match now >= before {
            true => in_all.fetch_add(now - before, Ordering::Relaxed),
            false => in_all.fetch_sub(before - now, Ordering::Relaxed),
        };
    }
}

#[derive(Default)]
pub struct Slots {
    places: HashMap<Did, usize, RandomState>,
    slots: Vec<Option<Box<Slot>>>,
    free: Vec<usize>,
    clock: u64,
    /// More rows than this are too many; more than usual while much is on its way.
    limit: usize,
}

impl Slots {
    pub fn find(&mut self, did: &Did) -> Option<usize> {
        let place = *self.places.get(did)?;
        self.clock += 1;
        if let Some(slot) = &mut self.slots[place] {
            slot.touched = self.clock;
        }
        Some(place)
    }

    pub fn insert(&mut self, did: &Did, found: Option<(RepoId, Repo)>, has_parked: bool) -> usize {
        if self.places.len() >= self.limit.max(ROWS) {
            self.clear_out();
        }
        self.clock += 1;
        let (id, repo) = found.unzip();
        let slot = Box::new(Slot {
            did: did.clone(),
            id,
            repo,
            key: None,
            has_parked,
            parked_bytes: 0,
            flights: VecDeque::new(),
            lane: VecDeque::new(),
            broken: false,
            failed: Vec::new(),
            rests: false,
            touched: self.clock,
        });
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place] = Some(slot);
                place
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        };
        self.places.insert(did.clone(), place);
        place
    }

    pub fn get(&mut self, place: usize) -> Option<&mut Slot> {
        self.slots.get_mut(place)?.as_deref_mut()
    }

    /// Lets go of a row; it is read again when it is needed.
    pub fn forget(&mut self, place: usize) {
        if let Some(slot) = self.slots.get_mut(place).and_then(Option::take) {
            self.places.remove(&slot.did);
            self.free.push(place);
        }
    }

    /// Lets go of the half that was not needed for longest, as far as nothing of
    /// it is on its way.
    fn clear_out(&mut self) {
        let before = self.clock.saturating_sub(ROWS as u64 / 2);
        let old: Vec<usize> = (0..self.slots.len())
            .filter(|place| {
                self.slots[*place].as_ref().is_some_and(|slot| {
                    slot.touched < before && slot.flights.is_empty() && slot.lane.is_empty()
                })
            })
            .collect();
        for place in old {
            self.forget(place);
        }
        self.limit = self.places.len() + ROWS / 4;
    }

    pub fn in_flight(&self) -> usize {
        let slots = self.slots.iter().flatten();
        slots.map(|slot| slot.flights.len()).sum()
    }
}
