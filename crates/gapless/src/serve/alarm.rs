//! What is held is not what its owner signed: told, counted, and fetched anew. It is
//! not served meanwhile.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Head, Held, Now, Repo, Why, debt};
use gapless_store::error::StoreError;

use super::Serving;
use crate::ingest::desk::Turn;

/// The held keys or bytes are not those of this state, which the row says they are.
pub fn distrust(now: Now, repo: &mut Repo, head: &Head) {
    repo.held = Held::Damaged {
        from: Some(head.rev),
    };
    repo.proven = None;
    debt::owe_fetch(now, repo, Why::StoreRepaired);
}

impl Serving {
    /// Raises the alarm, if it is still that state that is held.
    pub async fn alarm(&self, did: &Did, head: Head, why: &str) {
        self.shared.metrics.damaged.inc();
        tracing::error!(%did, rev = %head.rev, why, "what is held is not what was signed; nothing of it is served, and it is fetched anew");
        let visit = self.fetcher.desks.visit(did, move |turn: &mut Turn<'_>| {
            let now = turn.shared.clock.now();
            if let Some(draft) = turn.draft.as_mut()
                && draft.repo.head() == Some(&head)
            {
                distrust(now, &mut draft.repo, &head);
            }
        });
        if let Err(error) = visit.await
            && !matches!(error, StoreError::Closed)
        {
            tracing::error!(%did, %error, "that could not be written down; it is found again when it is next asked for");
        }
    }
}
