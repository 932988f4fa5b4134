//! Decides about one event: the desk decodes and verifies the event, and applies the ledger's
//! rules.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use gapless_atp::frame;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::event::Event;
use gapless_core::ledger::{PriorState, Repo, Time};
use gapless_core::repo_tx::{ReadFrame, RepoTx};
use gapless_store::error::StoreError;
use gapless_store::table::dead::{DeadClass, DeadLetter};

use crate::desk::InboundEvent;
use crate::desk::env::DeskEnv;
use crate::desk::judge::{self, KeyCache, OwnerKey};
use crate::desk::report::{begin_first_sighting, dead_letter};
use crate::desk::route::Item;
use crate::desk::slot::Slot;
use crate::desk::worker::{ItemProgress, Worker};
use crate::failpoints;
use crate::services::Services;
use crate::upstreams::Wire;
use crate::upstreams::sources::{CommitArrival, Proof, SourceTally};

/// A document older than this is read again. Its key is used meanwhile.
const DOCUMENT_FRESH: Duration = Duration::from_secs(24 * 3600);
/// The key of a document older than this is not used.
const DOCUMENT_USABLE: Duration = Duration::from_secs(72 * 3600);

/// Whether the key of a document that was read at `read` is used. A time far in the future
/// comes from a clock that ran ahead, so the age of such a document is not known.
fn is_usable(now: Time, read: Time) -> bool {
    now.since(read).max(read.since(now)) <= DOCUMENT_USABLE
}

/// What the desk decided about an event.
pub(crate) enum EventDecision {
    /// The event must wait until the repository has no flights.
    Wait,
    /// Changes that go to the store together with the event's position.
    Write {
        tx: Option<Box<RepoTx>>,
        dead: Option<DeadLetter>,
    },
    /// The store cannot be read.
    StoreFailed(StoreError),
}

impl EventDecision {
    /// A decision that only moves the cursor.
    pub(crate) fn nothing() -> EventDecision {
        EventDecision::Write {
            tx: None,
            dead: None,
        }
    }
}

impl Worker {
    /// Decides about an event and submits the changes. A panic must not stop other events,
    /// nor occur again after every start: the event becomes a dead letter.
    pub(crate) fn process_event(
        &mut self,
        index: usize,
        mut event: Box<InboundEvent>,
    ) -> ItemProgress {
        let decide = AssertUnwindSafe(|| self.decide_event(index, &event));
        match std::panic::catch_unwind(decide) {
            Ok(EventDecision::Wait) => return ItemProgress::Wait(Item::Event(event)),
            Ok(EventDecision::Write { tx, dead }) => {
                failpoints::here("event.decided");
                let applied = tx.as_ref().filter(|tx| tx.counts.applied > 0);
                event.applied = applied.and_then(|tx| Some(tx.repo.head()?.rev));
                self.submit_event(index, tx.map(|tx| *tx), Some(event), dead);
            }
            Ok(EventDecision::StoreFailed(error)) => self.services.shutdown.fail(error),
            Err(_) => {
                self.services.metrics.faults.inc();
                tracing::error!(
                    did = %event.did, seq = event.seq,
                    "deciding an event ended unexpectedly; it is kept as a dead letter, and the host is asked"
                );
                let what = "deciding this event ended unexpectedly: a fault of Gapless";
                self.bury_event(index, event, what);
            }
        }
        ItemProgress::Done
    }

    /// Decides about an event. Nothing at the desk has changed when this function returns or
    /// panics.
    fn decide_event(&mut self, index: usize, event: &InboundEvent) -> EventDecision {
        let services = self.services.clone();
        let now = services.clock.time();
        let Some(slot) = self.slots.get(index) else {
            return EventDecision::nothing();
        };
        let busy = !slot.flights.is_empty();
        if busy && slot.has_parked {
            return EventDecision::Wait;
        }
        if event.wire == Wire::Jetstream {
            return self.decide_claim(index, event);
        }
        if slot.repo.is_none() && !may_add(&services, event) {
            return EventDecision::nothing();
        }
        let decoded = match frame::decode(&event.bytes) {
            Ok(decoded) => decoded,
            Err(error) => return self.decide_undecodable(index, event, error.to_string()),
        };
        let signing = slot.repo.as_ref().and_then(|repo| repo.signing);
        if signing.is_some_and(|signing| now.passed(signing.at, DOCUMENT_FRESH)) {
            services.schedule.refresh(&event.did);
        }
        update_key(slot, &mut self.keys, now);
        let owner = OwnerKey {
            key: slot.key.as_ref().map(|(_, key)| key),
            signing: signing.as_ref(),
        };
        let size = u32::try_from(event.bytes.len()).unwrap_or(u32::MAX);
        let judged =
            judge::judge_event(&decoded, slot.repo.as_ref(), &owner, event.read, now, size);
        if let Some(tally) = &event.tally {
            note_source(
                &services,
                tally,
                event,
                &decoded,
                judged.frame.event.as_ref(),
                slot,
            );
        }
        let Some(told) = judged.frame.event else {
            services.metrics.events_replayed.inc();
            return EventDecision::nothing();
        };
        let recompute = matches!(
            told,
            Event::Signed {
                before: PriorState::Recompute,
                ..
            }
        );
        if busy && recompute {
            return EventDecision::Wait;
        }
        let tx = match self.begin_tx(index) {
            Ok(tx) => tx,
            Err(error) => return EventDecision::StoreFailed(error),
        };
        let mut tx = tx.unwrap_or_else(|| begin_first_sighting(&services, &event.did));
        note_stray(&services, event, &told, &tx.repo);
        let env = DeskEnv::new(&services, &self.totals);
        tx.event(&env, &services.rules, &event.arrival(), &judged.frame);
        if !tx.parked().is_empty()
            && !busy
            && let Err(error) = tx.unpark(&env, &services.rules)
        {
            return EventDecision::StoreFailed(error);
        }
        failpoints::event_of(&event.did);
        let dead = judged
            .fault
            .map(|(class, error)| dead_letter(event, class, error, tx.id, now));
        EventDecision::Write {
            tx: Some(Box::new(tx)),
            dead,
        }
    }

    /// Decides about an event of which only the DID can be read.
    pub(crate) fn decide_undecodable(
        &mut self,
        index: usize,
        event: &InboundEvent,
        error: String,
    ) -> EventDecision {
        let services = self.services.clone();
        let tx = match self.begin_tx(index) {
            Ok(tx) => tx,
            Err(error) => return EventDecision::StoreFailed(error),
        };
        let mut tx = tx.unwrap_or_else(|| begin_first_sighting(&services, &event.did));
        let frame = ReadFrame::bare(Event::Unsigned);
        let env = DeskEnv::new(&services, &self.totals);
        tx.event(&env, &services.rules, &event.arrival(), &frame);
        let now = services.clock.time();
        let dead = dead_letter(event, DeadClass::Undecodable, error, tx.id, now);
        EventDecision::Write {
            tx: Some(Box::new(tx)),
            dead: Some(dead),
        }
    }
}

/// Sets the slot's key to the key of the newest document, or to none if that document is too
/// old to be used.
fn update_key(slot: &mut Slot, keys: &mut KeyCache, now: Time) {
    let signing = slot.repo.as_ref().and_then(|repo| repo.signing);
    let usable = signing.is_some_and(|signing| is_usable(now, signing.at));
    let bytes = signing.and_then(|signing| signing.key).filter(|_| usable);
    if slot.key.as_ref().map(|(bytes, _)| *bytes) != bytes {
        slot.key = bytes.and_then(|bytes| Some((bytes, keys.decode(&bytes)?)));
    }
}

/// Whether this event may add its repository to the store. An event that may not is counted
/// in `newcomers_passed`.
pub(crate) fn may_add(services: &Services, event: &InboundEvent) -> bool {
    let upstream = event.origin.upstream;
    let may = services.admission.is_tracked(&event.did)
        || services.admission.newcomers.admit(upstream, &event.did);
    if !may {
        services.metrics.newcomers_passed.inc();
    }
    may
}

/// Records a stray: a host's own stream brings a commit of a repository that lives on
/// another host, as far as Gapless knows.
fn note_stray(services: &Services, event: &InboundEvent, told: &Event, repo: &Repo) {
    // A repository that has left a host may get account events from it.
    let commit = matches!(told, Event::Signed { .. } | Event::Unresolved { .. });
    if !commit || repo.cover == Some(event.origin.upstream) {
        return;
    }
    let host = services.upstreams.read().host_of(event.origin.upstream);
    if let Some(host) = host.filter(|host| repo.host != Some(*host)) {
        services
            .admission
            .strays
            .record_foreign_repo(host, &event.did);
    }
}

/// Counts which upstream brought the commit of an event, and whether it was the first.
fn note_source(
    services: &Services,
    tally: &SourceTally,
    event: &InboundEvent,
    decoded: &frame::Event<'_>,
    told: Option<&Event>,
    slot: &Slot,
) {
    let (rev, proof) = match (decoded, told) {
        (_, Some(Event::Signed { head, .. })) => (Some(head.rev), Proof::Signed),
        (_, Some(Event::Unresolved { claimed, .. })) => (Some(claimed.rev), Proof::Claimed),
        (frame::Event::Commit(commit), None) => (commit.rev.parse().ok(), Proof::Replay),
        (frame::Event::Sync(sync), None) => (sync.rev.parse().ok(), Proof::Replay),
        _ => return,
    };
    if let Some(rev) = rev {
        record_source(services, tally, event, slot, rev, proof);
    }
}

/// Counts which upstream brought a commit that is known by its rev.
pub(crate) fn record_source(
    services: &Services,
    tally: &SourceTally,
    event: &InboundEvent,
    slot: &Slot,
    rev: Rev,
    proof: Proof,
) {
    let repo = slot.repo.as_ref();
    let sight = CommitArrival {
        did: &event.did,
        rev,
        host: repo.and_then(|repo| repo.host),
        cover: repo.and_then(|repo| repo.cover),
        tracked: repo.is_some_and(|repo| repo.tracked),
        proof,
        at: event.at,
    };
    services.upstreams.sources.brought(tally, &sight);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_from_far_ahead_is_used_no_longer_than_an_old_one() {
        let hour = Duration::from_secs(3600);
        let now = Time(0).after(1_000 * hour);
        for (read, usable) in [
            (Time(0).after(1_000 * hour), true),
            (Time(0).after(928 * hour), true),
            (Time(0).after(927 * hour), false),
            (Time(0).after(1_001 * hour), true),
            (Time(0).after(1_073 * hour), false),
        ] {
            assert_eq!(is_usable(now, read), usable, "{read:?}");
        }
    }
}
