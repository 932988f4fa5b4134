//! One desk at work.
//!
//! Events of a repository are decided on its newest row, durable or not, and the
//! changes follow each other to the store. When one is refused, those behind it
//! stand on nothing: once all are answered, the row is read from the store again
//! and the events are decided anew. What needs to read more than the row (frames
//! that wait, the held keys) waits until nothing is on its way.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gapless_atp::frame;
use gapless_atp::syntax::Did;
use gapless_core::ledger::event::Event;
use gapless_core::ledger::sweep::{self, PageNote};
use gapless_core::ledger::{Before, Repo, RepoId};
use gapless_store::change::{Change, DeadChange};
use gapless_store::cursor::Position;
use gapless_store::error::StoreError;
use gapless_store::table::dead::{DeadClass, DeadLetter};

use super::inbox::{Answer, Inbox};
use super::report::{first_heard, letter, report};
use super::slot::{Flight, Slots};
use super::{Arrived, Item, Line, Seen, Then, Turn, Visit};
use crate::ingest::decide::Arrival;
use crate::ingest::draft::Draft;
use crate::ingest::judge::{self, Known};
use crate::net::public_key;
use crate::shared::Shared;

/// How long a desk waits for something to come before it looks around.
const PATIENCE: Duration = Duration::from_millis(500);
/// A document older than this is read again, and serves meanwhile.
const DOCUMENT_FRESH: Duration = Duration::from_secs(24 * 3600);
/// A document older than this does not serve any more.
const DOCUMENT_USABLE: Duration = Duration::from_secs(72 * 3600);

pub struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) slots: Slots,
    /// Repositories some of whose frames are parked.
    pub(super) waiting: HashSet<RepoId>,
    /// Slots whose lanes may go on.
    pub(super) ready: VecDeque<usize>,
    /// Slots that wait for room on the disk.
    pub(super) resting: Vec<usize>,
    pub(super) rest_until: Instant,
    pub(super) next_number: u64,
    pub(super) closed: bool,
}

/// Whether something could be done now.
enum Done {
    Yes,
    /// It must wait until nothing of the repository is on its way.
    Later(Item),
}

impl Worker {
    pub fn new(shared: Arc<Shared>, inbox: Arc<Inbox>, waiting: Vec<RepoId>) -> Worker {
        Worker {
            shared,
            inbox,
            slots: Slots::default(),
            waiting: waiting.into_iter().collect(),
            ready: VecDeque::new(),
            resting: Vec::new(),
            rest_until: Instant::now(),
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
            Item::Page {
                note,
                lines,
                adopt,
                seen,
            } => {
                let all = lines
                    .into_iter()
                    .map(|line| self.line(&note, line, adopt))
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
        if !self.resting.is_empty() && Instant::now() >= self.rest_until {
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
    fn slot(&mut self, did: &Did) -> Option<usize> {
        if let Some(place) = self.slots.find(did) {
            return Some(place);
        }
        match self.read(did) {
            Ok(found) => {
                let id = found.as_ref().map(|(id, _)| *id);
                let has_parked = id.is_some_and(|id| self.waiting.contains(&id));
                Some(self.slots.insert(did, found, has_parked))
            }
            Err(error) => {
                self.shared.end.fail(error);
                None
            }
        }
    }

    fn read(&self, did: &Did) -> Result<Option<(RepoId, Repo)>, StoreError> {
        self.shared.store.view().repo_by_did(did)
    }

    fn act(&mut self, place: usize, item: Item) -> Done {
        match item {
            Item::Event(event) => self.event(place, event),
            Item::Visit { did, visit } => self.visit(place, did, visit),
            Item::Skipped(_) | Item::Page { .. } => Done::Yes,
        }
    }

    fn event(&mut self, place: usize, event: Box<Arrived>) -> Done {
        let shared = self.shared.clone();
        let now = shared.clock.time();
        let Some(slot) = self.slots.get(place) else {
            return Done::Yes;
        };
        let busy = !slot.flights.is_empty();
        if busy && slot.has_parked {
            return Done::Later(Item::Event(event));
        }
        let decoded = match frame::decode(&event.bytes) {
            Ok(decoded) => decoded,
            Err(error) => {
                let error = error.to_string();
                self.undecodable(place, event, error);
                return Done::Yes;
            }
        };
        let signing = slot.repo.as_ref().and_then(|repo| repo.signing);
        let age = signing.map(|signing| now.since(signing.at));
        if age.is_some_and(|age| age > DOCUMENT_FRESH) {
            shared.schedule.refresh(&event.did);
        }
        let usable = age.is_some_and(|age| age <= DOCUMENT_USABLE);
        let bytes = signing.and_then(|signing| signing.key).filter(|_| usable);
        if slot.key.as_ref().map(|(bytes, _)| *bytes) != bytes {
            slot.key = bytes.and_then(|bytes| Some((bytes, public_key(&bytes)?)));
        }
        let known = Known {
            key: slot.key.as_ref().map(|(_, key)| key),
            signing: signing.as_ref(),
        };
        let size = u32::try_from(event.bytes.len()).unwrap_or(u32::MAX);
        let judged = judge::judge(&decoded, slot.repo.as_ref(), &known, event.read, now, size);
        let Some(told) = judged.event else {
            shared.metrics.events_replayed.inc();
            self.finish(place, None, Some(event), None);
            return Done::Yes;
        };
        let recompute = matches!(
            told,
            Event::Signed {
                before: Before::Recompute,
                ..
            }
        );
        if busy && recompute {
            return Done::Later(Item::Event(event));
        }
        let draft = match self.draft(place) {
            Ok(draft) => draft,
            Err(error) => {
                shared.end.fail(error);
                return Done::Yes;
            }
        };
        let mut draft = draft.unwrap_or_else(|| first_heard(&shared, &event.did));
        let arrival = Arrival {
            origin: event.origin,
            seq: event.seq,
            bytes: &event.bytes,
        };
        draft.event(&shared, &arrival, &told, &judged.ops, judged.block);
        if !draft.parked.is_empty() && !busy {
            let view = shared.store.view();
            if let Err(error) = draft.unpark(&shared, &view) {
                shared.end.fail(error);
                return Done::Yes;
            }
        }
        let dead = judged.fault.map(|(class, error)| {
            let repo = draft.id;
            letter(&event, class, error, repo, now)
        });
        drop(decoded);
        self.finish(place, Some(draft), Some(event), dead);
        Done::Yes
    }

    /// Its DID can be read, and nothing else.
    fn undecodable(&mut self, place: usize, event: Box<Arrived>, error: String) {
        let shared = self.shared.clone();
        let draft = match self.draft(place) {
            Ok(draft) => draft,
            Err(error) => {
                shared.end.fail(error);
                return;
            }
        };
        let mut draft = draft.unwrap_or_else(|| first_heard(&shared, &event.did));
        let arrival = Arrival {
            origin: event.origin,
            seq: event.seq,
            bytes: &event.bytes,
        };
        draft.event(&shared, &arrival, &Event::Unsigned, &[], &[]);
        let now = shared.clock.time();
        let dead = letter(&event, DeadClass::Undecodable, error, draft.id, now);
        self.finish(place, Some(draft), Some(event), Some(dead));
    }

    fn visit(&mut self, place: usize, did: Did, visit: Visit) -> Done {
        let shared = self.shared.clone();
        let Some(slot) = self.slots.get(place) else {
            return Done::Yes;
        };
        if !slot.flights.is_empty() {
            return Done::Later(Item::Visit { did, visit });
        }
        let draft = match self.draft(place) {
            Ok(draft) => draft,
            Err(error) => {
                shared.end.fail(error);
                return Done::Yes;
            }
        };
        let view = shared.store.view();
        let mut turn = Turn {
            shared: &shared,
            view: &view,
            draft,
            did: &did,
            then: None,
        };
        visit(&mut turn);
        let Turn { draft, then, .. } = turn;
        self.submit(place, draft, None, then, None);
        Done::Yes
    }

    /// One line of a listing: rows only, so nothing has to wait.
    fn line(&mut self, note: &PageNote, line: Line, adopt: bool) -> (Did, Seen) {
        let Line { did, entry } = line;
        let Some(place) = self.slot(&did) else {
            return (did, Seen::Passed);
        };
        let shared = self.shared.clone();
        let Some(slot) = self.slots.get(place) else {
            return (did, Seen::Passed);
        };
        if slot.broken || slot.rests {
            return (did, Seen::Passed);
        }
        if slot.repo.is_none() && !adopt && !shared.is_tracked(&did) {
            return (did, Seen::Unwanted);
        }
        let draft = match &slot.repo {
            None => None,
            Some(repo) => Some(Draft::rows_only(slot.id, repo.clone())),
        };
        let mut draft = draft.unwrap_or_else(|| first_heard(&shared, &did));
        let now = shared.clock.now();
        let repo = &mut draft.repo;
        let listed = shared.decide(now, |context| sweep::listed(context, repo, note, &entry));
        self.submit(place, Some(draft), None, None, None);
        (did, Seen::Listed(listed))
    }

    /// The repository of a slot, with the frames that wait for it.
    fn draft(&mut self, place: usize) -> Result<Option<Draft>, StoreError> {
        let view = self.shared.store.view();
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
        Ok(Some(Draft::new(slot.id, repo.clone(), parked)))
    }

    /// An event is decided: its changes go to the store.
    pub(super) fn finish(
        &mut self,
        place: usize,
        draft: Option<Draft>,
        event: Option<Box<Arrived>>,
        dead: Option<DeadLetter>,
    ) {
        let dead = dead.filter(|_| self.shared.take_dead_letter());
        self.submit(place, draft, event, None, dead);
    }

    fn submit(
        &mut self,
        place: usize,
        draft: Option<Draft>,
        event: Option<Box<Arrived>>,
        then: Option<Then>,
        dead: Option<DeadLetter>,
    ) {
        let shared = self.shared.clone();
        let now = shared.clock.now();
        let position = event.as_ref().and_then(|event| event.position);
        let mut changes = match draft {
            None => Vec::new(),
            Some(draft) => self.take_over(place, draft, now),
        };
        if let Some(letter) = dead {
            changes.push(Change {
                tick: now.tick,
                dead: Some(DeadChange::New(letter)),
                ..Change::default()
            });
        }
        if let Some(done) = position {
            match changes.last_mut() {
                Some(last) => last.done = Some(done),
                None => changes.push(Change {
                    done: Some(done),
                    ..Change::default()
                }),
            }
        }
        if changes.is_empty() {
            if let Some(then) = then {
                then(Ok(()));
            }
            return;
        }
        let last = changes.len() - 1;
        let mut carried = Some((event, then));
        for (count, change) in changes.into_iter().enumerate() {
            let (event, then) = match count == last {
                true => carried.take().unwrap_or_default(),
                false => (None, None),
            };
            self.next_number += 1;
            let number = self.next_number;
            if let Some(slot) = self.slots.get(place) {
                slot.flights.push_back(Flight {
                    number,
                    event,
                    then,
                });
            }
            let inbox = self.inbox.clone();
            shared.store.submit(change, move |result| {
                inbox.answer(Answer {
                    slot: place,
                    number,
                    result,
                });
            });
        }
    }

    /// The draft's row becomes the one at hand; its notices are counted.
    fn take_over(
        &mut self,
        place: usize,
        mut draft: Draft,
        now: gapless_core::ledger::Now,
    ) -> Vec<Change> {
        let shared = &self.shared;
        let notices = std::mem::take(&mut draft.notices);
        report(shared, &draft.repo, &notices);
        let metrics = &shared.metrics;
        metrics.events_applied.add(draft.counts.applied);
        metrics.operations_applied.add(draft.counts.operations);
        metrics.events_parked.add(draft.counts.parked);
        metrics.events_unparked.add(draft.counts.unparked);
        let parked_now: u64 = draft.parked.values().map(|one| u64::from(one.bytes)).sum();
        let has_parked = !draft.parked.is_empty();
        let complete_view = draft.knows_parked;
        let (changes, repo) = draft.into_changes(now);
        let Some(slot) = self.slots.get(place) else {
            return changes;
        };
        if complete_view {
            let before = slot.parked_bytes;
            slot.parked_bytes = parked_now;
            if parked_now >= before {
                shared
                    .parked_bytes
                    .fetch_add(parked_now - before, Ordering::Relaxed);
            } else {
                shared
                    .parked_bytes
                    .fetch_sub(before - parked_now, Ordering::Relaxed);
            }
            slot.has_parked = has_parked;
            if let Some(id) = slot.id {
                match has_parked {
                    true => self.waiting.insert(id),
                    false => self.waiting.remove(&id),
                };
            }
        }
        let owed = slot.repo.as_ref().map(|repo| repo.debt);
        if owed != Some(repo.debt) || slot.repo.as_ref().map(|repo| repo.host) != Some(repo.host) {
            shared.schedule.note(now.time, &repo);
        }
        if !changes.is_empty() {
            slot.repo = Some(repo);
        }
        changes
    }

    /// Only the cursor moves.
    fn pass(&mut self, position: Position) {
        let shared = self.shared.clone();
        let change = Change {
            done: Some(position),
            ..Change::default()
        };
        self.shared.store.submit(change, move |answer| {
            // For want of room: a later one moves the cursor.
            if let Err(error) = answer
                && error.is_final()
            {
                shared.end.fail(error);
            }
        });
    }
}
