//! What a Jetstream says of a repository: a hint, and a claim where it is owed to look.

use gapless_core::ledger::RepoId;
use gapless_core::ledger::claim::{self, ClaimDecision};
use gapless_core::ledger::event::Event;
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use gapless_store::table::claimed::Claim;

use crate::desk::Arrived;
use crate::desk::env::DeskEnv;
use crate::desk::event::{Decided, brought, may_come};
use crate::desk::report::first_heard;
use crate::desk::worker::Worker;
use crate::desk_totals::{BYTES_OF_ONE, CLAIMS_OF_ONE};
use crate::failpoints;
use crate::jetstream::{self, JetstreamEvent, Operation};
use crate::services::Services;
use crate::upstreams::sources::Proof;
use gapless_core::filter::Keep;
use gapless_core::repo_tx::{ReadFrame, RepoTx};

impl Worker {
    /// Decides a message of a Jetstream. Nothing at the desk has changed when this
    /// returns, or panics.
    pub(crate) fn claim(&mut self, place: usize, event: &Arrived) -> Decided {
        let services = self.services.clone();
        let Some(slot) = self.slots.get(place) else {
            return Decided::nothing();
        };
        // What is claimed already is read from the store.
        if !slot.flights.is_empty() {
            return Decided::Later;
        }
        let unknown = slot.repo.is_none();
        let said = match jetstream::read(&event.bytes) {
            Ok(JetstreamEvent::Other) => return Decided::nothing(),
            _ if unknown && !may_come(&services, event) => return Decided::nothing(),
            Ok(said) => said,
            Err(error) => return self.undecodable(place, event, error),
        };
        if let (JetstreamEvent::Commit { rev, .. }, Some(tally)) = (&said, &event.tally) {
            brought(&services, tally, event, slot, *rev, Proof::Claimed);
        }
        let hint = match &said {
            JetstreamEvent::Other => return Decided::nothing(),
            JetstreamEvent::Identity => Some(Event::Identity),
            JetstreamEvent::Account(state) => Some(Event::Account(*state)),
            JetstreamEvent::Commit { .. } => None,
        };
        let tx = match self.begin_tx(place) {
            Ok(tx) => tx,
            Err(error) => return Decided::Unreadable(error),
        };
        let mut tx = tx.unwrap_or_else(|| first_heard(&services, &event.did));
        if let Some(hint) = hint {
            let frame = ReadFrame::bare(hint);
            let env = DeskEnv::new(&services);
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
                    match keep(&services, &mut tx, event, operation, claim) {
                        Ok(reason) => reason,
                        Err(error) => return Decided::Unreadable(error),
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
        Decided::Made {
            tx: Some(Box::new(tx)),
            dead: None,
        }
    }
}

/// Keeps a claim, or says why not.
fn keep(
    services: &Services,
    tx: &mut RepoTx,
    event: &Arrived,
    operation: Operation,
    claim: Claim,
) -> Result<Option<&'static str>, StoreError> {
    if services.rules.filter.keep(&operation.path) != Keep::Record {
        return Ok(Some("unwanted"));
    }
    let bytes = operation.record.map_or(0, |(_, bytes)| bytes.len() as u64);
    let view = services.store.view();
    if let Some(id) = tx.id
        && let Some(reason) = beside(&view, id, &operation.path, &claim, bytes)?
    {
        return Ok(Some(reason));
    }
    if !services.totals.claims.has_room(bytes, &view)? {
        return Ok(Some("no_room"));
    }
    services.totals.claims.add(bytes);
    let at = services.clock.time();
    tx.claim(at, &event.arrival(), operation.path, claim);
    Ok(None)
}

/// What is claimed of the repository already leaves no place for this.
fn beside(
    view: &ReadView,
    id: RepoId,
    path: &[u8],
    claim: &Claim,
    bytes: u64,
) -> Result<Option<&'static str>, StoreError> {
    let (mut count, mut held) = (0, bytes);
    for row in view.claims(id) {
        let (other, old) = row?;
        if other == path {
            match old.rev >= claim.rev {
                // Of the same rev too: one commit does one thing to a path.
                true => return Ok(Some("old")),
                // It takes the place.
                false => continue,
            }
        }
        count += 1;
        held += old.record.map_or(0, |(_, bytes)| bytes.len() as u64);
    }
    let full = count >= CLAIMS_OF_ONE || held > BYTES_OF_ONE;
    Ok(full.then_some("no_room"))
}
