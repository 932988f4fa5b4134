//! The debts in memory, by payee. At capacity, the payee with the most debts loses its
//! latest one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use gapless_atp::syntax::Did;
use gapless_core::ledger::Time;

use super::Payee;

/// Debts that are kept in memory.
const MAX_DEBTS: usize = 400_000;
/// Classes of cost. At a host: a head, a difference, a whole repository. At the directory:
/// repositories that are held come first.
const COST_CLASSES: usize = 4;

/// The debts of one payee: by class, from cheap to expensive, and then by time.
pub(super) type PayeeQueue = [BTreeSet<(Time, Did)>; COST_CLASSES];

/// The position of a debt.
#[derive(Clone, Copy)]
struct QueuePosition {
    payee: Payee,
    class: usize,
    due_at: Time,
}

/// All debts that are in memory.
#[derive(Default)]
pub(super) struct DebtQueue {
    positions: HashMap<Did, QueuePosition>,
    payees: BTreeMap<Payee, PayeeQueue>,
    /// How many debts each payee has, and the payees by that number.
    sizes: HashMap<Payee, usize>,
    by_size: BTreeSet<(usize, Payee)>,
}

impl DebtQueue {
    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= MAX_DEBTS
    }

    /// Whether less than half of the capacity is used.
    pub(super) fn is_half_empty(&self) -> bool {
        self.len() < MAX_DEBTS / 2
    }

    pub(super) fn contains(&self, did: &Did) -> bool {
        self.positions.contains_key(did)
    }

    /// The payees that have debts.
    pub(super) fn payees(&self) -> impl Iterator<Item = (&Payee, &PayeeQueue)> {
        self.payees.iter()
    }

    /// The payees that have debts, in order, beginning after `last` and ending with `last`.
    pub(super) fn payees_after(
        &self,
        last: Option<Payee>,
    ) -> impl Iterator<Item = (&Payee, &PayeeQueue)> {
        let after = match last {
            None => Bound::Unbounded,
            Some(last) => Bound::Excluded(last),
        };
        let rest = self.payees.range((after, Bound::Unbounded));
        let up_to = last.map(|last| self.payees.range(..=last));
        rest.chain(up_to.into_iter().flatten())
    }

    pub(super) fn insert(&mut self, did: Did, payee: Payee, class: usize, due_at: Time) {
        self.payees.entry(payee).or_default()[class].insert((due_at, did.clone()));
        let position = QueuePosition {
            payee,
            class,
            due_at,
        };
        self.positions.insert(did, position);
        self.resize(payee, |size| size + 1);
    }

    pub(super) fn remove(&mut self, did: &Did) {
        let Some(position) = self.positions.remove(did) else {
            return;
        };
        let payee = position.payee;
        if let Some(queue) = self.payees.get_mut(&payee) {
            queue[position.class].remove(&(position.due_at, did.clone()));
            if queue.iter().all(BTreeSet::is_empty) {
                self.payees.remove(&payee);
            }
        }
        self.resize(payee, |size| size.saturating_sub(1));
    }

    fn resize(&mut self, payee: Payee, change: impl FnOnce(usize) -> usize) {
        let before = self.sizes.remove(&payee).unwrap_or(0);
        self.by_size.remove(&(before, payee));
        let after = change(before);
        if after > 0 {
            self.sizes.insert(payee, after);
            self.by_size.insert((after, payee));
        }
    }

    /// Evicts the latest debt of the payee with the most debts. Returns false, and evicts
    /// nothing, if that payee is the new debt's own and the new debt is due no earlier.
    pub(super) fn evict_for(&mut self, new_payee: Payee, due_at: Time) -> bool {
        let Some((_, largest)) = self.by_size.last().copied() else {
            return true;
        };
        let last = self.payees.get(&largest).and_then(|queue| {
            let dearest = queue.iter().rev().find_map(BTreeSet::last);
            dearest.cloned()
        });
        match last {
            Some((latest, _)) if largest == new_payee && due_at >= latest => false,
            Some((_, did)) => {
                self.remove(&did);
                true
            }
            None => true,
        }
    }
}
