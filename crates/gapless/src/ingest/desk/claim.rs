//! What a Jetstream says of a repository: a hint, and a claim where it is owed to look.

use gapless_core::ledger::RepoId;
use gapless_core::ledger::claim::{self, Heard};
use gapless_core::ledger::event::Event;
use gapless_store::contents::Contents;
use gapless_store::error::StoreError;
use gapless_store::table::claimed::Claim;

use super::Arrived;
use super::event::{Decided, brought, may_come};
use super::report::first_heard;
use super::worker::Worker;
use crate::claims::{BYTES_OF_ONE, CLAIMS_OF_ONE};
use crate::filter::Keep;
use crate::ingest::draft::Draft;
use crate::ingest::lines::{self, Operation, Said};
use crate::ingest::sources::Proof;
use crate::shared::Shared;
use crate::stop;

impl Worker {
    /// Decides a message of a Jetstream. Nothing at the desk has changed when this
    /// returns, or panics.
    pub(super) fn claim(&mut self, place: usize, event: &Arrived) -> Decided {
        let shared = self.shared.clone();
        let Some(slot) = self.slots.get(place) else {
            return Decided::nothing();
        };
        // What is claimed already is read from the store.
        if !slot.flights.is_empty() {
            return Decided::Later;
        }
        let unknown = slot.repo.is_none();
        let said = match lines::read(&event.bytes) {
            Ok(Said::Other) => return Decided::nothing(),
            _ if unknown && !may_come(&shared, event) => return Decided::nothing(),
            Ok(said) => said,
            Err(error) => return self.undecodable(place, event, error),
        };
        if let (Said::Commit { rev, .. }, Some(tally)) = (&said, &event.tally) {
            brought(&shared, tally, event, slot, *rev, Proof::Claimed);
        }
        let hint = match &said {
            Said::Other => return Decided::nothing(),
            Said::Identity => Some(Event::Identity),
            Said::Account(state) => Some(Event::Account(*state)),
            Said::Commit { .. } => None,
        };
        let draft = match self.draft(place) {
            Ok(draft) => draft,
            Err(error) => return Decided::Unreadable(error),
        };
        let mut draft = draft.unwrap_or_else(|| first_heard(&shared, &event.did));
        if let Some(hint) = hint {
            draft.event(&shared, &event.arrival(), &hint, &[], &[]);
        }
        if let Said::Commit { rev, said } = said {
            let now = shared.clock.now();
            let repo = &mut draft.repo;
            let heard = shared.decide(now, |context| {
                claim::claimed(context, repo, event.origin, rev)
            });
            let reason = match (heard, said) {
                (Heard::Keep, Ok(operation)) => {
                    let claim = Claim {
                        upstream: event.origin.upstream,
                        rev,
                        record: operation.record.clone(),
                    };
                    match keep(&shared, &mut draft, event, operation, claim) {
                        Ok(reason) => reason,
                        Err(error) => return Decided::Unreadable(error),
                    }
                }
                (Heard::Keep, Err(unfit)) => Some(unfit.name()),
                (Heard::Old, _) => Some("old"),
                (Heard::Future, _) => Some("future"),
                (Heard::Hidden, _) => Some("hidden"),
                (Heard::Covered, _) => Some("covered"),
                (Heard::TooMany, _) => Some("too_many"),
            };
            match reason {
                None => shared.metrics.claims_kept.inc(),
                Some(reason) => shared.metrics.claims_passed.inc(reason),
            }
        }
        stop::event_of(&event.did);
        Decided::Made {
            draft: Some(Box::new(draft)),
            dead: None,
        }
    }
}

/// Keeps a claim, or says why not.
fn keep(
    shared: &Shared,
    draft: &mut Draft,
    event: &Arrived,
    operation: Operation,
    claim: Claim,
) -> Result<Option<&'static str>, StoreError> {
    if shared.filter.keep(&operation.path) != Keep::Record {
        return Ok(Some("unwanted"));
    }
    let bytes = operation.record.map_or(0, |(_, bytes)| bytes.len() as u64);
    let view = shared.store.view();
    if let Some(id) = draft.id
        && let Some(reason) = beside(&view, id, &operation.path, &claim, bytes)?
    {
        return Ok(Some(reason));
    }
    if !shared.claims.has_room(bytes, &view)? {
        return Ok(Some("no_room"));
    }
    shared.claims.add(bytes);
    let at = shared.clock.time();
    draft.claim(at, &event.arrival(), operation.path, claim);
    Ok(None)
}

/// What is claimed of the repository already leaves no place for this.
fn beside(
    view: &Contents,
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
