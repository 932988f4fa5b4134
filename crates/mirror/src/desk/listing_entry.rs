//! What one line of a listing means for its repository.

use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::sweep::{self, PageNote};
use gapless_core::ledger::{Repo, Time, account};
use gapless_core::repo_tx::RepoTx;

use crate::desk::page_ack::Written;
use crate::desk::report::first_heard;
use crate::desk::worker::Worker;
use crate::desk::{Line, Seen};

/// How often the document of a hidden repository is read: its host may have closed
/// the account before the document said where it went.
const HIDDEN_FRESH: Duration = Duration::from_secs(7 * 24 * 3600);

impl Worker {
    /// One line of a listing: rows only, so nothing has to wait.
    pub(crate) fn line(
        &mut self,
        note: &PageNote,
        line: Line,
        adopt: bool,
        written: &Written,
    ) -> (Did, Seen) {
        let Line { did, entry } = line;
        let Some(place) = self.slot(&did) else {
            return (did, Seen::Passed);
        };
        let services = self.services.clone();
        let Some(slot) = self.slots.get(place) else {
            return (did, Seen::Passed);
        };
        if slot.broken || slot.rests {
            return (did, Seen::Passed);
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
            return (did, Seen::Unwanted);
        }
        let tx = match &slot.repo {
            None => None,
            Some(repo) => Some(RepoTx::row_only(slot.id, repo.clone())),
        };
        let mut tx = tx.unwrap_or_else(|| first_heard(&services, &did));
        let repo = &mut tx.repo;
        // Whoever has left a host may be closed there.
        if repo.host != Some(note.host) && !account::is_hidden(entry.account) {
            services.admission.strays.brought(note.host, &did);
        }
        let listed = services.decide(now, |context| {
            sweep::judge_entry(context, repo, note, &entry)
        });
        self.submit(place, Some(tx), None, Some(written.line()), None);
        (did, Seen::Listed(listed))
    }
}

/// Whether it is time to look whether it lives elsewhere.
pub fn may_have_left(repo: &Repo, now: Time) -> bool {
    let old = |at: Time| now.passed(at, HIDDEN_FRESH);
    account::is_hidden(repo.account) && repo.signing.is_some_and(|signing| old(signing.at))
}
