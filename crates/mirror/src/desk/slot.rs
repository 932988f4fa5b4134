//! What a desk has in memory of its repositories: the newest decided row of each, which may
//! not be durable yet. A slot with flights or waiting items stays; of the others, the least
//! recently used half is evicted when there are too many.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use gapless_atp::crypto::PublicKey;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{KeyBytes, Parked, Repo, RepoId};

use crate::desk::route::Item;
use crate::desk::totals::DeskTotals;
use crate::desk::{DurableReply, InboundEvent};

/// Slots of one desk, about a kilobyte each. The store's row cache holds more rows, in a
/// smaller form.
const SLOTS: usize = 8_192;

/// A submitted change that the store has not acknowledged yet.
pub(super) struct Flight {
    pub number: u64,
    /// The store's count of refusals when the first of the slot's flights was submitted: see
    /// `Change::refusals_seen`.
    pub refusals_seen: u64,
    /// Whether the change brings a dead letter.
    pub letter: bool,
    pub event: Option<Box<InboundEvent>>,
    pub reply: Option<DurableReply>,
}

/// One repository at a desk.
pub(super) struct Slot {
    pub did: Did,
    pub id: Option<RepoId>,
    /// `None` if the store does not know the repository.
    pub repo: Option<Repo>,
    /// The owner's key, with the bytes that it was decoded from.
    pub key: Option<(KeyBytes, PublicKey)>,
    /// Whether the repository has parked frames.
    pub has_parked: bool,
    /// The bytes of the parked frames, as the total counts them.
    pub parked_bytes: u64,
    pub flights: VecDeque<Flight>,
    /// Items that wait for the flights, in order.
    pub lane: VecDeque<Item>,
    /// Whether a change was refused, so that this row differs from the row in the store.
    pub stale: bool,
    /// Events whose changes were refused, with the numbers of the changes.
    pub refused: Vec<(u64, Box<InboundEvent>)>,
    /// Whether the disk had no room: the lane waits for the next try.
    pub waits_for_disk: bool,
    touched: u64,
}

impl Slot {
    /// Records the parked frames in the slot, among the repositories with parked frames, and in the
    /// total of all repositories.
    pub(super) fn set_parked(
        &mut self,
        parked: &BTreeMap<Rev, Parked>,
        totals: &DeskTotals,
        with_parked: &mut HashSet<RepoId>,
    ) {
        let bytes = parked.values().map(|one| u64::from(one.bytes)).sum();
        self.count_parked(&totals.parked_bytes, bytes);
        self.has_parked = !parked.is_empty();
        if let Some(id) = self.id {
            if self.has_parked {
                with_parked.insert(id);
            } else {
                with_parked.remove(&id);
            }
        }
    }

    fn count_parked(&mut self, total: &AtomicU64, now: u64) {
        let before = std::mem::replace(&mut self.parked_bytes, now);
        if now >= before {
            total.fetch_add(now - before, Ordering::Relaxed);
        } else {
            total.fetch_sub(before - now, Ordering::Relaxed);
        }
    }
}

/// The slots of one desk.
#[derive(Default)]
pub(super) struct Slots {
    indexes: HashMap<Did, usize, RandomState>,
    slots: Vec<Option<Box<Slot>>>,
    free: Vec<usize>,
    clock: u64,
    /// The number of slots at which some are evicted. Above [`SLOTS`] while many slots have
    /// flights.
    limit: usize,
}

impl Slots {
    pub(super) fn find(&mut self, did: &Did) -> Option<usize> {
        let index = *self.indexes.get(did)?;
        self.clock += 1;
        if let Some(slot) = &mut self.slots[index] {
            slot.touched = self.clock;
        }
        Some(index)
    }

    pub(super) fn insert(
        &mut self,
        did: &Did,
        found: Option<(RepoId, Repo)>,
        has_parked: bool,
    ) -> usize {
        if self.indexes.len() >= self.limit.max(SLOTS) {
            self.evict_old();
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
            stale: false,
            refused: Vec::new(),
            waits_for_disk: false,
            touched: self.clock,
        });
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index] = Some(slot);
                index
            }
            None => {
                self.slots.push(Some(slot));
                self.slots.len() - 1
            }
        };
        self.indexes.insert(did.clone(), index);
        index
    }

    pub(super) fn get(&mut self, index: usize) -> Option<&mut Slot> {
        self.slots.get_mut(index)?.as_deref_mut()
    }

    fn evict(&mut self, index: usize) {
        if let Some(slot) = self.slots.get_mut(index).and_then(Option::take) {
            self.indexes.remove(&slot.did);
            self.free.push(index);
        }
    }

    /// Evicts the least recently used half of the slots, except those that have flights or
    /// waiting items.
    fn evict_old(&mut self) {
        let before = self.clock.saturating_sub(SLOTS as u64 / 2);
        let old: Vec<usize> = (0..self.slots.len())
            .filter(|index| {
                self.slots[*index].as_ref().is_some_and(|slot| {
                    slot.touched < before && slot.flights.is_empty() && slot.lane.is_empty()
                })
            })
            .collect();
        for index in old {
            self.evict(index);
        }
        self.limit = self.indexes.len() + SLOTS / 4;
    }

    /// The number of flights of all slots.
    pub(super) fn in_flight(&self) -> usize {
        let slots = self.slots.iter().flatten();
        slots.map(|slot| slot.flights.len()).sum()
    }
}
