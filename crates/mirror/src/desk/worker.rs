//! The thread of one desk.
//!
//! Events of a repository are decided on its newest row, durable or not, and their changes
//! follow each other to the store. When the store refuses a change, the flights behind it
//! are refused as well; once all are answered, the desk reads the row from the store and
//! decides the events again. An item that needs more than the row, such as parked frames or
//! the held keys, waits in the lane until the repository has no flights.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::{DebtReason, RepoId};
use gapless_core::repo_tx::RepoTx;
use gapless_store::cursor::EventPosition;
use gapless_store::error::StoreError;

use crate::desk::judge::KeyCache;
use crate::desk::route::{Inbox, Item};
use crate::desk::slot::Slots;
use crate::desk::totals::DeskTotals;
use crate::desk::{RepoTurn, RepoWork};
use crate::services::Services;

/// How long a desk waits for an item before it looks for lanes that may go on.
const IDLE_WAIT: Duration = Duration::from_millis(500);

/// One desk: its inbox, its slots, and what they wait for.
pub(super) struct Worker {
    pub(crate) services: Arc<Services>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) totals: Arc<DeskTotals>,
    pub(crate) slots: Slots,
    pub(crate) keys: KeyCache,
    /// Repositories that have parked frames.
    pub(crate) with_parked: HashSet<RepoId>,
    /// Slots whose lanes may go on.
    pub(crate) ready: VecDeque<usize>,
    /// Slots that wait for room on the disk.
    pub(crate) waiting_for_disk: Vec<usize>,
    /// When the lanes and skips that wait for room on the disk are tried again.
    pub(crate) retry_at: Instant,
    /// Skips that the store refused.
    pub(crate) refused_skips: Vec<EventPosition>,
    pub(crate) next_number: u64,
    pub(crate) closed: bool,
}

/// Whether an item is done.
pub(crate) enum ItemProgress {
    Done,
    /// The item must wait until the repository has no flights.
    Wait(Item),
}

impl Worker {
    /// Creates a desk without slots. `with_parked` lists its repositories that have parked frames.
    pub(super) fn new(
        services: Arc<Services>,
        inbox: Arc<Inbox>,
        totals: Arc<DeskTotals>,
        with_parked: Vec<RepoId>,
    ) -> Worker {
        Worker {
            services,
            inbox,
            totals,
            slots: Slots::default(),
            keys: KeyCache::default(),
            with_parked: with_parked.into_iter().collect(),
            ready: VecDeque::new(),
            waiting_for_disk: Vec::new(),
            retry_at: Instant::now(),
            refused_skips: Vec::new(),
            next_number: 0,
            closed: false,
        }
    }

    /// Works until the inbox is closed and no change is in flight.
    pub(super) fn run(mut self) {
        loop {
            let batch = self.inbox.take_all(IDLE_WAIT);
            self.closed |= batch.closed;
            for reply in batch.replies {
                self.handle_reply(reply);
            }
            for item in batch.items {
                if self.closed {
                    // The next start reads the event again: no cursor has passed it.
                    continue;
                }
                self.accept_item(item);
            }
            self.run_lanes();
            if self.closed && self.slots.in_flight() == 0 {
                return;
            }
        }
    }

    fn accept_item(&mut self, item: Item) {
        match item {
            Item::Skip(position) => self.submit_skip(position),
            Item::SkipFailed(position, error) => self.note_refused_skip(position, &error),
            Item::Page {
                note,
                entries,
                adopt,
                reply,
                ack,
            } => {
                let outcomes = entries
                    .into_iter()
                    .map(|listed| self.compare_entry(&note, listed, adopt, &ack))
                    .collect();
                // The sweep may have been given up.
                let _ = reply.send(outcomes);
            }
            Item::Event(event) => {
                let did = event.did.clone();
                self.process_in_order(&did, Item::Event(event));
            }
            Item::Work { did, work } => {
                let again = did.clone();
                self.process_in_order(&did, Item::Work { did: again, work });
            }
        }
    }

    /// Processes an item, or appends it to the lane if it has to wait.
    fn process_in_order(&mut self, did: &Did, item: Item) {
        let Some(index) = self.slot_of(did) else {
            return;
        };
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        if slot.stale || slot.waits_for_disk || !slot.lane.is_empty() {
            slot.lane.push_back(item);
            return;
        }
        if let ItemProgress::Wait(item) = self.process(index, item)
            && let Some(slot) = self.slots.get(index)
        {
            slot.lane.push_back(item);
        }
    }

    /// Runs the lanes that may go on, and retries what waits for room on the disk.
    fn run_lanes(&mut self) {
        let due = Instant::now() >= self.retry_at;
        if due && !self.refused_skips.is_empty() {
            self.retry_skips();
        }
        if due && !self.waiting_for_disk.is_empty() {
            for index in std::mem::take(&mut self.waiting_for_disk) {
                if let Some(slot) = self.slots.get(index) {
                    slot.waits_for_disk = false;
                    self.ready.push_back(index);
                }
            }
        }
        while let Some(index) = self.ready.pop_front() {
            self.run_lane(index);
        }
    }

    fn run_lane(&mut self, index: usize) {
        while !self.closed {
            let Some(slot) = self.slots.get(index) else {
                return;
            };
            if slot.stale || slot.waits_for_disk {
                return;
            }
            let Some(item) = slot.lane.pop_front() else {
                return;
            };
            if let ItemProgress::Wait(item) = self.process(index, item) {
                if let Some(slot) = self.slots.get(index) {
                    slot.lane.push_front(item);
                }
                return;
            }
        }
    }

    /// The slot of a repository, with its row. `None` if the store cannot be read: then the
    /// program ends.
    pub(crate) fn slot_of(&mut self, did: &Did) -> Option<usize> {
        if let Some(index) = self.slots.find(did) {
            return Some(index);
        }
        match self.services.store.view().repo_by_did(did) {
            Ok(found) => {
                let id = found.as_ref().map(|(id, _)| *id);
                let parked = id.filter(|id| self.with_parked.contains(id));
                let index = self.slots.insert(did, found, parked.is_some());
                // The total has these bytes already.
                match parked.map_or(Ok(0), |id| self.read_parked_bytes(id)) {
                    Ok(bytes) => {
                        if let Some(slot) = self.slots.get(index) {
                            slot.parked_bytes = bytes;
                        }
                    }
                    Err(error) => self.services.shutdown.fail(error),
                }
                Some(index)
            }
            Err(error) => {
                self.services.shutdown.fail(error);
                None
            }
        }
    }

    fn read_parked_bytes(&self, id: RepoId) -> Result<u64, StoreError> {
        let parked = self.services.store.view().parked(id)?;
        Ok(parked.values().map(|one| u64::from(one.bytes)).sum())
    }

    fn process(&mut self, index: usize, item: Item) -> ItemProgress {
        match item {
            Item::Event(event) => self.process_event(index, event),
            Item::Work { did, work } => self.run_work(index, did, work),
            Item::Skip(_) | Item::SkipFailed(..) | Item::Page { .. } => ItemProgress::Done,
        }
    }

    /// Begins a transaction on the repository of a slot, with its parked frames. `None` if
    /// the store does not know the repository.
    pub(crate) fn begin_tx(&mut self, index: usize) -> Result<Option<RepoTx>, StoreError> {
        let view = self.services.store.view();
        let Some(slot) = self.slots.get(index) else {
            return Ok(None);
        };
        let Some(repo) = &slot.repo else {
            return Ok(None);
        };
        let parked = match (slot.has_parked, slot.id) {
            (true, Some(id)) => view.parked(id)?,
            _ => BTreeMap::new(),
        };
        Ok(Some(RepoTx::new(slot.id, repo.clone(), parked)))
    }

    fn run_work(&mut self, index: usize, did: Did, work: RepoWork) -> ItemProgress {
        let (services, totals) = (self.services.clone(), self.totals.clone());
        let Some(slot) = self.slots.get(index) else {
            return ItemProgress::Done;
        };
        if !slot.flights.is_empty() {
            return ItemProgress::Wait(Item::Work { did, work });
        }
        let tx = match self.begin_tx(index) {
            Ok(tx) => tx,
            Err(error) => {
                services.shutdown.fail(error);
                return ItemProgress::Done;
            }
        };
        let view = services.store.view();
        let mut turn = RepoTurn {
            services: &services,
            view: &view,
            totals: &totals,
            tx,
            did: &did,
            reply: None,
            fault: false,
        };
        work(&mut turn);
        let RepoTurn {
            mut tx,
            reply,
            fault,
            ..
        } = turn;
        if fault {
            tx = self.begin_after_fault(index, &did);
        }
        self.submit(index, tx, None, reply, None);
        ItemProgress::Done
    }

    /// Begins the transaction that follows a panic in [`RepoWork`]. The panic must not stop
    /// other repositories, nor occur again at once. Nothing at the desk has changed. The
    /// parked frames may be the cause, because most work judges them: they are dropped, and
    /// the host is asked instead.
    fn begin_after_fault(&mut self, index: usize, did: &Did) -> Option<RepoTx> {
        self.services.metrics.faults.inc();
        tracing::error!(
            %did,
            "deciding about a repository ended unexpectedly; its parked frames are dropped, and its host is asked"
        );
        let mut tx = match self.begin_tx(index) {
            Ok(tx) => tx?,
            Err(error) => {
                self.services.shutdown.fail(error);
                return None;
            }
        };
        let now = self.services.clock.now();
        tx.drop_frames(DropReason::Superseded);
        debt::owe(
            now,
            &mut tx.repo,
            DebtKind::Compare,
            DebtReason::BrokenChain,
        );
        debt::attempt_failed(now, &mut tx.repo, None);
        Some(tx)
    }
}
