//! One desk at work.
//!
//! Events of a repository are decided on its newest row, durable or not, and the
//! changes follow each other to the store. When one is refused, those behind it
//! stand on nothing: once all are answered, the row is read from the store again
//! and the events are decided anew. What needs to read more than the row (frames
//! that wait, the held keys) waits until nothing is on its way.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::{DebtReason, Repo, RepoId};
use gapless_core::repo_tx::RepoTx;
use gapless_store::cursor::EventPosition;
use gapless_store::error::StoreError;

use crate::desk::judge::KeyCache;
use crate::desk::route::Inbox;
use crate::desk::slot::Slots;
use crate::desk::{Item, Turn, Visit};
use crate::services::Services;

/// How long a desk waits for something to come before it looks around.
const PATIENCE: Duration = Duration::from_millis(500);

pub struct Worker {
    pub(crate) services: Arc<Services>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) slots: Slots,
    pub(crate) keys: KeyCache,
    /// Repositories some of whose frames are parked.
    pub(crate) waiting: HashSet<RepoId>,
    /// Slots whose lanes may go on.
    pub(crate) ready: VecDeque<usize>,
    /// Slots that wait for room on the disk.
    pub(crate) resting: Vec<usize>,
    pub(crate) rest_until: Instant,
    /// Events that were passed over, which the store has not written down yet.
    pub(crate) unpassed: Vec<EventPosition>,
    pub(crate) next_number: u64,
    pub(crate) closed: bool,
}

/// Whether something could be done now.
pub(crate) enum Done {
    Yes,
    /// It must wait until nothing of the repository is on its way.
    Later(Item),
}

impl Worker {
    pub fn new(services: Arc<Services>, inbox: Arc<Inbox>, waiting: Vec<RepoId>) -> Worker {
        Worker {
            services,
            inbox,
            slots: Slots::default(),
            keys: KeyCache::default(),
            waiting: waiting.into_iter().collect(),
            ready: VecDeque::new(),
            resting: Vec::new(),
            rest_until: Instant::now(),
            unpassed: Vec::new(),
            next_number: 0,
            closed: false,
        }
    }

    pub fn run(mut self) {
        loop {
            let taken = self.inbox.take(PATIENCE);
            self.closed |= taken.closed;
            for answer in taken.answers {
                self.answered(answer);
            }
            for item in taken.items {
                if self.closed {
                    // Left for the next start: no cursor has passed it.
                    continue;
                }
                self.come(item);
            }
            self.go_on();
            if self.closed && self.slots.in_flight() == 0 {
                return;
            }
        }
    }

    /// Something came from outside.
    fn come(&mut self, item: Item) {
        match item {
            Item::Skipped(position) => self.pass(position),
            Item::NotSkipped(position, error) => self.not_passed(position, &error),
            Item::Page {
                note,
                lines,
                adopt,
                seen,
                written,
            } => {
                let all = lines
                    .into_iter()
                    .map(|line| self.line(&note, line, adopt, &written))
                    .collect();
                // A sweep that was given up does not listen.
                let _ = seen.send(all);
            }
            Item::Event(event) => {
                let did = event.did.clone();
                self.enter(&did, Item::Event(event));
            }
            Item::Visit { did, visit } => {
                let again = did.clone();
                self.enter(&did, Item::Visit { did: again, visit });
            }
        }
    }

    fn enter(&mut self, did: &Did, item: Item) {
        let Some(place) = self.slot(did) else {
            return;
        };
        let Some(slot) = self.slots.get(place) else {
            return;
        };
        if slot.broken || slot.rests || !slot.lane.is_empty() {
            slot.lane.push_back(item);
            return;
        }
        if let Done::Later(item) = self.act(place, item)
            && let Some(slot) = self.slots.get(place)
        {
            slot.lane.push_back(item);
        }
    }

    /// Lanes whose turn has come.
    fn go_on(&mut self) {
        let rested = Instant::now() >= self.rest_until;
        if rested && !self.unpassed.is_empty() {
            self.pass_again();
        }
        if rested && !self.resting.is_empty() {
            for place in std::mem::take(&mut self.resting) {
                if let Some(slot) = self.slots.get(place) {
                    slot.rests = false;
                    self.ready.push_back(place);
                }
            }
        }
        while let Some(place) = self.ready.pop_front() {
            self.advance(place);
        }
    }

    fn advance(&mut self, place: usize) {
        while !self.closed {
            let Some(slot) = self.slots.get(place) else {
                return;
            };
            if slot.broken || slot.rests {
                return;
            }
            let Some(item) = slot.lane.pop_front() else {
                return;
            };
            if let Done::Later(item) = self.act(place, item) {
                if let Some(slot) = self.slots.get(place) {
                    slot.lane.push_front(item);
                }
                return;
            }
        }
    }

    /// The slot of a repository, with its row read. None when the store cannot be
    /// read: then the program ends.
    pub(crate) fn slot(&mut self, did: &Did) -> Option<usize> {
        if let Some(place) = self.slots.find(did) {
            return Some(place);
        }
        match self.read(did) {
            Ok(found) => {
                let id = found.as_ref().map(|(id, _)| *id);
                let parked = id.filter(|id| self.waiting.contains(id));
                let place = self.slots.insert(did, found, parked.is_some());
                // They are in the count already.
                match parked.map_or(Ok(0), |id| self.parked_bytes(id)) {
                    Ok(bytes) => {
                        if let Some(slot) = self.slots.get(place) {
                            slot.parked_bytes = bytes;
                        }
                    }
                    Err(error) => self.services.shutdown.fail(error),
                }
                Some(place)
            }
            Err(error) => {
                self.services.shutdown.fail(error);
                None
            }
        }
    }

    fn read(&self, did: &Did) -> Result<Option<(RepoId, Repo)>, StoreError> {
        self.services.store.view().repo_by_did(did)
    }

    fn parked_bytes(&self, id: RepoId) -> Result<u64, StoreError> {
        let parked = self.services.store.view().parked(id)?;
        Ok(parked.values().map(|one| u64::from(one.bytes)).sum())
    }

    fn act(&mut self, place: usize, item: Item) -> Done {
        match item {
            Item::Event(event) => self.event(place, event),
            Item::Visit { did, visit } => self.visit(place, did, visit),
            Item::Skipped(_) | Item::NotSkipped(..) | Item::Page { .. } => Done::Yes,
        }
    }

    /// Begins a transaction on the repository of a slot, with the frames that wait for it.
    pub(crate) fn begin_tx(&mut self, place: usize) -> Result<Option<RepoTx>, StoreError> {
        let view = self.services.store.view();
        let Some(slot) = self.slots.get(place) else {
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

    fn visit(&mut self, place: usize, did: Did, visit: Visit) -> Done {
        let services = self.services.clone();
        let Some(slot) = self.slots.get(place) else {
            return Done::Yes;
        };
        if !slot.flights.is_empty() {
            return Done::Later(Item::Visit { did, visit });
        }
        let tx = match self.begin_tx(place) {
            Ok(tx) => tx,
            Err(error) => {
                services.shutdown.fail(error);
                return Done::Yes;
            }
        };
        let view = services.store.view();
        let mut turn = Turn {
            services: &services,
            view: &view,
            tx,
            did: &did,
            then: None,
            fault: false,
        };
        visit(&mut turn);
        let Turn {
            mut tx,
            then,
            fault,
            ..
        } = turn;
        if fault {
            tx = self.after_fault(place, &did);
        }
        self.submit(place, tx, None, then, None);
        Done::Yes
    }

    /// A fault of ours that only this repository brings out must not stop the others,
    /// nor come again at once. Nothing at the desk has changed. Frames that wait may be
    /// the cause, for they are judged in most visits: they go, and what the host says
    /// takes their place.
    fn after_fault(&mut self, place: usize, did: &Did) -> Option<RepoTx> {
        self.services.metrics.faults.inc();
        tracing::error!(
            %did,
            "deciding about a repository ended unexpectedly; what waits for it is dropped, and the host is asked"
        );
        let mut tx = match self.begin_tx(place) {
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
