//! Settles a fetch that is owed because the filter has changed, if every record that the
//! new filter wants is held already. This needs a repository of which all keys are held.

use gapless_atp::syntax::Did;
use gapless_core::ledger::fetch::{self, Note};
use gapless_core::ledger::{DebtReason, NamedHead};
use gapless_store::error::StoreError;

use crate::failpoints;
use crate::repair::worker::Fetcher;
use crate::services::Services;
use crate::store_io::blocking;
use gapless_core::filter::Keep;

impl Fetcher {
    /// Settles a debt for a changed filter without a fetch, if the host has just named the
    /// held head and all wanted records are held. Returns whether the debt is settled.
    pub(super) async fn settle_filter_debt(
        &self,
        did: &Did,
        note: Note,
        named: NamedHead,
    ) -> Result<bool, StoreError> {
        if note.head.is_none_or(|head| head.commit != named.commit) {
            return Ok(false);
        }
        let (services, checked) = (self.services.clone(), did.clone());
        let check = move || holds_all_wanted(&services, &checked, named);
        let work = "checking held records against the filter";
        if !blocking(&self.services.metrics, work, check).await? {
            return Ok(false);
        }
        let change = self.desks.with_repo(did, move |turn| {
            let now = turn.services.clock.now();
            let Some(tx) = turn.tx.as_mut() else {
                return false;
            };
            fetch::filter_walked(now, &mut tx.repo, &note, named.commit)
        });
        change.await
    }
}

/// Whether every wanted record is held with its bytes, at the head `named`.
fn holds_all_wanted(services: &Services, did: &Did, named: NamedHead) -> Result<bool, StoreError> {
    failpoints::pass("filter_check", did);
    let view = services.store.view();
    let Some((id, repo)) = view.repo_by_did(did)? else {
        return Ok(false);
    };
    let for_filter = repo
        .debt
        .fetch
        .is_some_and(|owed| owed.why == DebtReason::FilterChanged);
    let same_head = repo.head().is_some_and(|head| head.commit == named.commit);
    if !for_filter || !same_head || !repo.filter.holds_all_keys() {
        return Ok(false);
    }
    for record in view.records(id) {
        let record = record?;
        let wanted = services.rules.filter.keep(record.path()) == Keep::Record;
        if wanted && record.bytes().is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
