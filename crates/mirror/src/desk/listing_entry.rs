//! Decides about one entry of a host's listing.

use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::sweep::{self, PageNote};
use gapless_core::ledger::{Repo, Time, account};
use gapless_core::repo_tx::RepoTx;

use crate::desk::page_ack::PageAck;
use crate::desk::report::begin_first_sighting;
use crate::desk::worker::Worker;
use crate::desk::{EntryOutcome, ListedRepo};

/// How often the document of a hidden repository is read: its host may have closed the
/// account before the document named the new host.
const HIDDEN_FRESH: Duration = Duration::from_secs(7 * 24 * 3600);

impl Worker {
    /// Decides about one entry of a listing. Only the row changes, so the entry does not have
    /// to wait for flights.
    pub(crate) fn compare_entry(
        &mut self,
        note: &PageNote,
        listed: ListedRepo,
        adopt: bool,
        ack: &PageAck,
    ) -> (Did, EntryOutcome) {
        let ListedRepo { did, entry } = listed;
        let Some(index) = self.slot_of(&did) else {
            return (did, EntryOutcome::Passed);
        };
        let services = self.services.clone();
        let Some(slot) = self.slots.get(index) else {
            return (did, EntryOutcome::Passed);
        };
        if slot.stale || slot.waits_for_disk {
            return (did, EntryOutcome::Passed);
        }
        let now = services.clock.now();
        if slot
            .repo
            .as_ref()
            .is_some_and(|repo| may_have_left(repo, now.time))
        {
            services.schedule.refresh(&did);
        }
        if slot.repo.is_none() && !adopt && !services.admission.is_tracked(&did) {
            return (did, EntryOutcome::Unwanted);
        }
        let tx = match &slot.repo {
            None => None,
            Some(repo) => Some(RepoTx::row_only(slot.id, repo.clone())),
        };
        let mut tx = tx.unwrap_or_else(|| begin_first_sighting(&services, &did));
        let repo = &mut tx.repo;
        // A host may list accounts that have left it as closed.
        if repo.host != Some(note.host) && !account::is_hidden(entry.account) {
            services
                .admission
                .strays
                .record_foreign_repo(note.host, &did);
        }
        let verdict = services.decide(now, |context| {
            sweep::judge_entry(context, repo, note, &entry)
        });
        self.submit(index, Some(tx), None, Some(ack.add_entry()), None);
        (did, EntryOutcome::Listed(verdict))
    }
}

/// Whether the document of a hidden repository is due to be read again, because the
/// repository may have moved to another host.
pub(crate) fn may_have_left(repo: &Repo, now: Time) -> bool {
    let old = |at: Time| now.passed(at, HIDDEN_FRESH);
    account::is_hidden(repo.account) && repo.signing.is_some_and(|signing| old(signing.at))
}
