//! Decides about messages of a Jetstream: each message is a hint, and a commit of a repository that
//! owes a fetch is also kept as a claim.

use gapless_core::ledger::RepoId;
use gapless_core::ledger::claim::{self, ClaimDecision};
use gapless_core::ledger::event::Event;
use gapless_core::retain::{self, Policies};
use gapless_store::change::ClaimEntry;
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use gapless_store::table::claimed::Claim;

use crate::desk::InboundEvent;
use crate::desk::env::DeskEnv;
use crate::desk::event::{EventDecision, may_add, record_source};
use crate::desk::report::begin_first_sighting;
use crate::desk::totals::{BYTES_OF_ONE, CLAIMS_OF_ONE, DeskTotals};
use crate::desk::worker::Worker;
use crate::failpoints;
use crate::jetstream::{self, JetstreamEvent, Operation};
use crate::services::Services;
use crate::upstreams::sources::Proof;
use gapless_core::filter::Keep;
use gapless_core::repo_tx::{ReadFrame, RepoTx};

impl Worker {
    /// Decides about a message of a Jetstream. Nothing at the desk has changed when this
    /// function returns or panics.
    pub(crate) fn decide_claim(&mut self, index: usize, event: &InboundEvent) -> EventDecision {
        let services = self.services.clone();
        let Some(slot) = self.slots.get(index) else {
            return EventDecision::nothing();
        };
        // The claims of the repository are read from the store.
        if !slot.flights.is_empty() {
            return EventDecision::Wait;
        }
        let unknown = slot.repo.is_none();
        let said = match jetstream::read(&event.bytes) {
            Ok(JetstreamEvent::Other) => return EventDecision::nothing(),
            _ if unknown && !may_add(&services, event) => return EventDecision::nothing(),
            Ok(said) => said,
            Err(error) => return self.decide_undecodable(index, event, error),
        };
        if let (JetstreamEvent::Commit { rev, .. }, Some(tally)) = (&said, &event.tally) {
            record_source(&services, tally, event, slot, *rev, Proof::Claimed);
        }
        let hint = match &said {
            JetstreamEvent::Other => return EventDecision::nothing(),
            JetstreamEvent::Identity => Some(Event::Identity),
            JetstreamEvent::Account(state) => Some(Event::Account(*state)),
            JetstreamEvent::Commit { .. } => None,
        };
        let tx = match self.begin_tx(index) {
            Ok(tx) => tx,
            Err(error) => return EventDecision::StoreFailed(error),
        };
        let mut tx = tx.unwrap_or_else(|| begin_first_sighting(&services, &event.did));
        if let Some(hint) = hint {
            let frame = ReadFrame::bare(hint);
            let env = DeskEnv::new(&services, &self.totals);
            tx.event(&env, &services.rules, &event.arrival(), &frame);
        }
        if let JetstreamEvent::Commit { rev, said } = said {
            let now = services.clock.now();
            let repo = &mut tx.repo;
            let heard = services.decide(now, |context| {
                claim::claim_event(context, repo, event.origin, rev)
            });
            let reason = match (heard, said) {
                (ClaimDecision::Keep, Ok(operation)) => {
                    let claim = Claim {
                        upstream: event.origin.upstream,
                        rev,
                        record: operation.record.clone(),
                    };
                    match keep_claim(&services, &self.totals, &mut tx, event, operation, claim) {
                        Ok(reason) => reason,
                        Err(error) => return EventDecision::StoreFailed(error),
                    }
                }
                (ClaimDecision::Keep, Err(unfit)) => Some(unfit.name()),
                (ClaimDecision::Old, _) => Some("old"),
                (ClaimDecision::Future, _) => Some("future"),
                (ClaimDecision::Hidden, _) => Some("hidden"),
                (ClaimDecision::Covered, _) => Some("covered"),
                (ClaimDecision::TooMany, _) => Some("too_many"),
            };
            match reason {
                None => services.metrics.claims_kept.inc(),
                Some(reason) => services.metrics.claims_passed.inc(reason),
            }
        }
        failpoints::event_of(&event.did);
        EventDecision::Write {
            tx: Some(Box::new(tx)),
            dead: None,
        }
    }
}

/// Adds a claim to the transaction. Returns the reason if the claim is not kept.
fn keep_claim(
    services: &Services,
    totals: &DeskTotals,
    tx: &mut RepoTx,
    event: &InboundEvent,
    operation: Operation,
    claim: Claim,
) -> Result<Option<&'static str>, StoreError> {
    if services.rules.filter.keep(&operation.path) != Keep::Record {
        return Ok(Some("unwanted"));
    }
    let bytes = operation.record.map_or(0, |(_, bytes)| bytes.len() as u64);
    let view = services.store.view();
    let give_way = match tx.id {
        None => Vec::new(),
        Some(id) => match make_room(&view, id, &operation.path, &claim, bytes)? {
            Ok(give_way) => give_way,
            Err(reason) => return Ok(Some(reason)),
        },
    };
    if !totals.claims.has_room(bytes, &view)? {
        return Ok(Some("no_room"));
    }
    totals.claims.add(bytes);
    let at = services.clock.time();
    let entry = ClaimEntry {
        path: operation.path,
        claim,
        give_way,
    };
    tx.claim(at, &event.arrival(), entry);
    Ok(None)
}

/// Returns the paths of the repository's claims that give way to this one, the oldest first, or why
/// this claim is not kept. A claim that a consumer of the log has not read gives way to none.
fn make_room(
    view: &ReadView,
    id: RepoId,
    path: &[u8],
    claim: &Claim,
    bytes: u64,
) -> Result<Result<Vec<Vec<u8>>, &'static str>, StoreError> {
    let (mut held, mut others) = (bytes, Vec::new());
    for row in view.claims(id) {
        let (other, old) = row?;
        if other == path {
            if old.claim.rev >= claim.rev {
                // One commit does one thing to a path, so the same rev is old, too.
                return Ok(Err("old"));
            } else {
                // The new claim replaces the old one.
                continue;
            }
        }
        let size = old.claim.record.map_or(0, |(_, bytes)| bytes.len() as u64);
        held += size;
        others.push((old.seq, size, other));
    }
    let (mut count, mut give_way) = (others.len(), Vec::new());
    if count < CLAIMS_OF_ONE && held <= BYTES_OF_ONE {
        return Ok(Ok(give_way));
    }
    let consumers = view.consumers()?;
    let head = view.counters()?.next_seq;
    let read_by_all = retain::floor(consumers.values(), Policies::NOTHING, head).log;
    others.sort_unstable();
    for (seq, size, other) in others {
        if count < CLAIMS_OF_ONE && held <= BYTES_OF_ONE {
            break;
        }
        if seq < read_by_all {
            count -= 1;
            held -= size;
            give_way.push(other);
        }
    }
    let fits = count < CLAIMS_OF_ONE && held <= BYTES_OF_ONE;
    Ok(fits.then_some(give_way).ok_or("no_room"))
}
