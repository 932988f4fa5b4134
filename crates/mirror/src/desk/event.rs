//! What one event means for its repository: checked, judged, decided.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use gapless_atp::frame;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::event::Event;
use gapless_core::ledger::{PriorState, Repo, Time};
use gapless_core::repo_tx::{ReadFrame, RepoTx};
use gapless_store::error::StoreError;
use gapless_store::table::dead::{DeadClass, DeadLetter};

use crate::desk::env::DeskEnv;
use crate::desk::judge::{self, Known};
use crate::desk::report::{first_heard, letter};
use crate::desk::slot::Slot;
use crate::desk::worker::{Done, Worker};
use crate::desk::{Arrived, Item};
use crate::failpoints;
use crate::services::Services;
use crate::upstreams::Wire;
use crate::upstreams::sources::{CommitArrival, Proof, SourceTally};

/// A document older than this is read again, and serves meanwhile.
const DOCUMENT_FRESH: Duration = Duration::from_secs(24 * 3600);
/// A document older than this does not serve any more.
const DOCUMENT_USABLE: Duration = Duration::from_secs(72 * 3600);

/// Whether a document that was read then serves still. One from the future was read
/// by a clock that ran ahead: how old it is, nobody knows.
fn is_usable(now: Time, read: Time) -> bool {
    now.since(read).max(read.since(now)) <= DOCUMENT_USABLE
}

/// What an event comes to.
pub(crate) enum Decided {
    /// It must wait until nothing of the repository is on its way.
    Later,
    Made {
        tx: Option<Box<RepoTx>>,
        dead: Option<DeadLetter>,
    },
    /// The store cannot be read.
    Unreadable(StoreError),
}

impl Decided {
    /// The cursor moves, and nothing else.
    pub(crate) fn nothing() -> Decided {
        Decided::Made {
            tx: None,
            dead: None,
        }
    }
}

impl Worker {
    /// Decides an event. A fault of ours that only this event brings out must not
    /// stop the others, nor come again with every start: it becomes a dead letter.
    pub(crate) fn event(&mut self, place: usize, mut event: Box<Arrived>) -> Done {
        let decide = AssertUnwindSafe(|| self.decide(place, &event));
        match std::panic::catch_unwind(decide) {
            Ok(Decided::Later) => return Done::Later(Item::Event(event)),
            Ok(Decided::Made { tx, dead }) => {
                failpoints::here("event.decided");
                let applied = tx.as_ref().filter(|tx| tx.counts.applied > 0);
                event.applied = applied.and_then(|tx| Some(tx.repo.head()?.rev));
                self.finish(place, tx.map(|tx| *tx), Some(event), dead);
            }
            Ok(Decided::Unreadable(error)) => self.services.shutdown.fail(error),
            Err(_) => {
                self.services.metrics.faults.inc();
                tracing::error!(
                    did = %event.did, seq = event.seq,
                    "deciding an event ended unexpectedly; it is kept as a dead letter, and the host is asked"
                );
                let what = "deciding this event ended unexpectedly: a fault of Gapless";
                self.give_up(place, event, what);
            }
        }
        Done::Yes
    }

    /// Nothing at the desk has changed when this returns, or panics.
    fn decide(&mut self, place: usize, event: &Arrived) -> Decided {
        let services = self.services.clone();
        let now = services.clock.time();
        let Some(slot) = self.slots.get(place) else {
            return Decided::nothing();
        };
        let busy = !slot.flights.is_empty();
        if busy && slot.has_parked {
            return Decided::Later;
        }
        if event.wire == Wire::Jetstream {
            return self.claim(place, event);
        }
        if slot.repo.is_none() && !may_come(&services, event) {
            return Decided::nothing();
        }
        let decoded = match frame::decode(&event.bytes) {
            Ok(decoded) => decoded,
            Err(error) => return self.undecodable(place, event, error.to_string()),
        };
        let signing = slot.repo.as_ref().and_then(|repo| repo.signing);
        if signing.is_some_and(|signing| now.passed(signing.at, DOCUMENT_FRESH)) {
            services.schedule.refresh(&event.did);
        }
        let usable = signing.is_some_and(|signing| is_usable(now, signing.at));
        let bytes = signing.and_then(|signing| signing.key).filter(|_| usable);
        if slot.key.as_ref().map(|(bytes, _)| *bytes) != bytes {
            let keys = &mut self.keys;
            slot.key = bytes.and_then(|bytes| Some((bytes, keys.decode(&bytes)?)));
        }
        let known = Known {
            key: slot.key.as_ref().map(|(_, key)| key),
            signing: signing.as_ref(),
        };
        let size = u32::try_from(event.bytes.len()).unwrap_or(u32::MAX);
        let judged = judge::judge(&decoded, slot.repo.as_ref(), &known, event.read, now, size);
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
            return Decided::nothing();
        };
        let recompute = matches!(
            told,
            Event::Signed {
                before: PriorState::Recompute,
                ..
            }
        );
        if busy && recompute {
            return Decided::Later;
        }
        let tx = match self.begin_tx(place) {
            Ok(tx) => tx,
            Err(error) => return Decided::Unreadable(error),
        };
        let mut tx = tx.unwrap_or_else(|| first_heard(&services, &event.did));
        note_stray(&services, event, &told, &tx.repo);
        let env = DeskEnv::new(&services);
        tx.event(&env, &services.rules, &event.arrival(), &judged.frame);
        if !tx.parked().is_empty()
            && !busy
            && let Err(error) = tx.unpark(&env, &services.rules)
        {
            return Decided::Unreadable(error);
        }
        failpoints::event_of(&event.did);
        let dead = judged
            .fault
            .map(|(class, error)| letter(event, class, error, tx.id, now));
        Decided::Made {
            tx: Some(Box::new(tx)),
            dead,
        }
    }

    /// Its DID can be read, and nothing else.
    pub(crate) fn undecodable(&mut self, place: usize, event: &Arrived, error: String) -> Decided {
        let services = self.services.clone();
        let tx = match self.begin_tx(place) {
            Ok(tx) => tx,
            Err(error) => return Decided::Unreadable(error),
        };
        let mut tx = tx.unwrap_or_else(|| first_heard(&services, &event.did));
        let frame = ReadFrame::bare(Event::Unsigned);
        let env = DeskEnv::new(&services);
        tx.event(&env, &services.rules, &event.arrival(), &frame);
        let now = services.clock.time();
        let dead = letter(event, DeadClass::Undecodable, error, tx.id, now);
        Decided::Made {
            tx: Some(Box::new(tx)),
            dead: Some(dead),
        }
    }
}

/// Whether somebody of whom nobody has heard may be written down for this event; if not,
/// it is counted as passed over.
pub(crate) fn may_come(services: &Services, event: &Arrived) -> bool {
    let upstream = event.origin.upstream;
    let may = services.admission.is_tracked(&event.did)
        || services.admission.newcomers.admit(upstream, &event.did);
    if !may {
        services.metrics.newcomers_passed.inc();
    }
    may
}

/// A host's own stream brings a commit of a repository that does not live there, as far
/// as we know.
fn note_stray(services: &Services, event: &Arrived, told: &Event, repo: &Repo) {
    // Whoever has left a host may be closed there.
    let commit = matches!(told, Event::Signed { .. } | Event::Unresolved { .. });
    if !commit || repo.cover == Some(event.origin.upstream) {
        return;
    }
    let host = services.upstreams.read().host_of(event.origin.upstream);
    if let Some(host) = host.filter(|host| repo.host != Some(*host)) {
        services.admission.strays.brought(host, &event.did);
    }
}

/// Counts who brought a commit, before or after others.
fn note_source(
    services: &Services,
    tally: &SourceTally,
    event: &Arrived,
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
        brought(services, tally, event, slot, rev, proof);
    }
}

/// Counts who brought a commit, as far as it can be told that it is one.
pub(crate) fn brought(
    services: &Services,
    tally: &SourceTally,
    event: &Arrived,
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
    fn a_document_from_far_ahead_serves_no_longer_than_an_old_one() {
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
