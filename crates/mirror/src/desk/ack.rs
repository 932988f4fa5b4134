//! The store's replies: a change is durable, or it is refused.
//!
//! When a change is refused, the flights behind it are refused as well. Once all are
//! answered, the desk reads the row from the store and decides their events again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::{DebtReason, HostId};
use gapless_core::repo_tx::RepoTx;
use gapless_store::error::StoreError;
use gapless_store::table::dead::DeadClass;

use crate::desk::InboundEvent;
use crate::desk::report::{begin_first_sighting, dead_letter};
use crate::desk::route::{Item, StoreReply};
use crate::desk::slot::Flight;
use crate::desk::worker::Worker;
use crate::services::Services;

/// How long to wait before changes that the disk had no room for are tried again.
pub(crate) const FULL_DISK_RETRY: Duration = Duration::from_secs(1);
/// An event whose changes are refused this often becomes a dead letter. Refusals for want of
/// room on the disk do not count.
const MAX_REFUSALS: u32 = 3;

/// Notes that the changes of an event are durable: how long that took, how old the commit is, and
/// the time that its host gave it. `host`: the host of the repository.
fn note_durable(services: &Services, event: &InboundEvent, host: Option<HostId>) {
    let took = event.at.elapsed().as_micros() as u64;
    services.metrics.arrival_to_durable.observe(took);
    let Some(rev) = event.applied else {
        return;
    };
    if let Some(lag) = &event.lag {
        lag.note(services.clock.time(), rev);
    }
    if let Some(host) = host {
        services.clock.note_rev(host, rev);
    }
}

impl Worker {
    /// Handles the store's reply to a change.
    pub(crate) fn handle_reply(&mut self, reply: StoreReply) {
        let StoreReply {
            slot: index,
            number,
            result,
        } = reply;
        let services = self.services.clone();
        let Some(slot) = self.slots.get(index) else {
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
                        self.with_parked.insert(id);
                    }
                }
                if let Some(event) = flight.event {
                    let host = slot.repo.as_ref().and_then(|repo| repo.host);
                    note_durable(&services, &event, host);
                }
                if let Some(reply) = flight.reply {
                    reply(Ok(()));
                }
            }
            Err(error) => self.handle_refusal(index, number, flight, error),
        }
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        if !slot.flights.is_empty() {
            return;
        }
        if slot.stale {
            self.decide_again(index);
        } else if !slot.lane.is_empty() {
            self.ready.push_back(index);
        }
    }

    /// Handles a refused change. The desk's copy of the row is stale afterwards.
    fn handle_refusal(&mut self, index: usize, number: u64, flight: Flight, error: StoreError) {
        let services = self.services.clone();
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        slot.stale = true;
        if flight.letter {
            // The next decision about the event counts the letter again.
            self.totals.resolve_dead_letter();
        }
        let no_room = matches!(error, StoreError::Full(_));
        if let StoreError::Full(full) = &error {
            services.disk.refused(services.clock.time(), full);
        }
        if error.is_final() {
            services.shutdown.fail(error.clone());
        } else if no_room {
            slot.waits_for_disk = true;
        } else {
            services.metrics.refused_changes.inc();
            tracing::error!(did = %slot.did, %error, "the store refused a change; the desk decides its event again");
        }
        if let Some(mut event) = flight.event {
            event.refused += u32::from(!no_room);
            slot.refused.push((number, event));
        }
        if let Some(reply) = flight.reply {
            reply(Err(error));
        }
    }

    /// Reads the row from the store once no flight is left. The refused events go to the front of
    /// the lane.
    fn decide_again(&mut self, index: usize) {
        let services = self.services.clone();
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        let did = slot.did.clone();
        let mut refused = std::mem::take(&mut slot.refused);
        refused.sort_by_key(|(number, _)| *number);
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
        // The refused changes neither parked frames nor removed any.
        slot.set_parked(&parked, &self.totals, &mut self.with_parked);
        slot.stale = false;
        let mut given_up = Vec::new();
        for (_, event) in refused.into_iter().rev() {
            if event.refused < MAX_REFUSALS {
                slot.lane.push_front(Item::Event(event));
            } else {
                given_up.push(event);
            }
        }
        if slot.waits_for_disk {
            self.waiting_for_disk.push(index);
            self.retry_at = Instant::now() + FULL_DISK_RETRY;
        } else if !slot.lane.is_empty() {
            self.ready.push_back(index);
        }
        for event in given_up {
            let what = "the store refused the changes that this event led to several times";
            self.bury_event(index, event, what);
        }
    }

    /// Turns an event that Gapless cannot handle into a dead letter. The repository then owes a
    /// comparison with its host.
    pub(crate) fn bury_event(&mut self, index: usize, event: Box<InboundEvent>, what: &str) {
        let services = self.services.clone();
        let now = services.clock.now();
        let Some(slot) = self.slots.get(index) else {
            return;
        };
        let mut tx = match &slot.repo {
            Some(repo) => RepoTx::row_only(slot.id, repo.clone()),
            None => begin_first_sighting(&services, &slot.did),
        };
        debt::owe(
            now,
            &mut tx.repo,
            DebtKind::Compare,
            DebtReason::BrokenChain,
        );
        let dead = dead_letter(
            &event,
            DeadClass::Refused,
            what.to_owned(),
            slot.id,
            now.time,
        );
        self.submit_event(index, Some(tx), Some(event), Some(dead));
    }
}
