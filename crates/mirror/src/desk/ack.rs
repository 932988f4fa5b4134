//! What the store answers: durable, or refused.
//!
//! When a change is refused, those behind it stand on nothing: once all are
//! answered, the row is read from the store again and the events are decided anew.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gapless_core::ledger::DebtReason;
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::repo_tx::RepoTx;
use gapless_store::error::StoreError;
use gapless_store::table::dead::DeadClass;

use crate::desk::report::{first_heard, letter};
use crate::desk::route::Answer;
use crate::desk::slot::Flight;
use crate::desk::worker::Worker;
use crate::desk::{Arrived, Item};

/// How long until changes are tried again that there was no room for.
pub(crate) const NO_ROOM_PAUSE: Duration = Duration::from_secs(1);
/// An event whose changes were refused so often, room apart, is a fault of ours.
const REFUSALS: u32 = 3;

impl Worker {
    /// The store has answered.
    pub(crate) fn answered(&mut self, answer: Answer) {
        let Answer {
            slot: place,
            number,
            result,
        } = answer;
        let services = self.services.clone();
        let Some(slot) = self.slots.get(place) else {
            return;
        };
        let Some(at) = slot.flights.iter().position(|one| one.number == number) else {
            return;
        };
        let Some(flight) = slot.flights.remove(at) else {
            return;
        };
        match result {
            Ok(ack) => {
                services.metrics.dead_letters.add(u64::from(flight.letter));
                if slot.id.is_none() && ack.repo.is_some() {
                    slot.id = ack.repo;
                    if slot.has_parked
                        && let Some(id) = ack.repo
                    {
                        self.waiting.insert(id);
                    }
                }
                if let Some(event) = flight.event {
                    let took = event.at.elapsed().as_micros() as u64;
                    services.metrics.arrival_to_durable.observe(took);
                    if let (Some(rev), Some(lag)) = (event.applied, &event.lag) {
                        lag.note(services.clock.time(), rev);
                    }
                }
                if let Some(then) = flight.then {
                    then(Ok(()));
                }
            }
            Err(error) => self.refused(place, number, flight, error),
        }
        let Some(slot) = self.slots.get(place) else {
            return;
        };
        if !slot.flights.is_empty() {
            return;
        }
        match slot.broken {
            true => self.begin_anew(place),
            false if !slot.lane.is_empty() => self.ready.push_back(place),
            false => {}
        }
    }

    /// A change was refused: nothing that stands on it counts.
    fn refused(&mut self, place: usize, number: u64, flight: Flight, error: StoreError) {
        let services = self.services.clone();
        let Some(slot) = self.slots.get(place) else {
            return;
        };
        slot.broken = true;
        if flight.letter {
            // It is written with whatever the event leads to next.
            services.totals.resolve_dead_letter();
        }
        let no_room = matches!(error, StoreError::Full(_));
        if let StoreError::Full(full) = &error {
            services.disk.refused(services.clock.time(), full);
        }
        if error.is_final() {
            services.shutdown.fail(error.clone());
        } else if no_room {
            slot.rests = true;
        } else {
            services.metrics.refused_changes.inc();
            tracing::error!(did = %slot.did, %error, "the store refuses a change; it is decided anew");
        }
        if let Some(mut event) = flight.event {
            event.refused += u32::from(!no_room);
            slot.failed.push((number, event));
        }
        if let Some(then) = flight.then {
            then(Err(error));
        }
    }

    /// Nothing is on its way any more: the row is read again, and the events that
    /// were refused come first.
    fn begin_anew(&mut self, place: usize) {
        let services = self.services.clone();
        let Some(slot) = self.slots.get(place) else {
            return;
        };
        let did = slot.did.clone();
        let mut failed = std::mem::take(&mut slot.failed);
        failed.sort_by_key(|(number, _)| *number);
        let found = match services.store.view().repo_by_did(&did) {
            Ok(found) => found,
            Err(error) => {
                services.shutdown.fail(error);
                return;
            }
        };
        let parked = match &found {
            None => Ok(BTreeMap::new()),
            Some((id, _)) => services.store.view().parked(*id),
        };
        let parked = match parked {
            Ok(parked) => parked,
            Err(error) => {
                services.shutdown.fail(error);
                return;
            }
        };
        if let Some((_, repo)) = &found {
            services.schedule.note(services.clock.time(), repo);
        }
        let (id, repo) = found.unzip();
        slot.id = id;
        slot.repo = repo;
        slot.has_parked = !parked.is_empty();
        // What was refused has not come, and what it took away has not gone.
        let bytes = parked.values().map(|one| u64::from(one.bytes)).sum();
        slot.count_parked(&services.totals.parked_bytes, bytes);
        if let Some(id) = id {
            match slot.has_parked {
                true => self.waiting.insert(id),
                false => self.waiting.remove(&id),
            };
        }
        slot.broken = false;
        let mut given_up = Vec::new();
        for (_, event) in failed.into_iter().rev() {
            match event.refused < REFUSALS {
                true => slot.lane.push_front(Item::Event(event)),
                false => given_up.push(event),
            }
        }
        if slot.rests {
            self.resting.push(place);
            self.rest_until = Instant::now() + NO_ROOM_PAUSE;
        } else if !slot.lane.is_empty() {
            self.ready.push_back(place);
        }
        for event in given_up {
            let what = "the store refused what this event led to, again and again";
            self.give_up(place, event, what);
        }
    }

    /// A fault of our own: the event becomes a dead letter, and its host is asked.
    pub(crate) fn give_up(&mut self, place: usize, event: Box<Arrived>, what: &str) {
        let services = self.services.clone();
        let now = services.clock.now();
        let Some(slot) = self.slots.get(place) else {
            return;
        };
        let mut tx = match &slot.repo {
            Some(repo) => RepoTx::row_only(slot.id, repo.clone()),
            None => first_heard(&services, &slot.did),
        };
        debt::owe(
            now,
            &mut tx.repo,
            DebtKind::Compare,
            DebtReason::BrokenChain,
        );
        let dead = letter(
            &event,
            DeadClass::Refused,
            what.to_owned(),
            slot.id,
            now.time,
        );
        self.finish(place, Some(tx), Some(event), Some(dead));
    }
}
