//! Dead letters: listed for a person, and settled by one. And what was purged,
//! listed likewise.

use futures_util::{StreamExt, TryStreamExt, stream};
use gapless_store::change::{Change, DeadChange};
use gapless_store::error::StoreError;
use gapless_store::table::dead::{DeadLetter, Resolution};

use crate::Mirror;
use crate::api::{ApiError, DeadAnswer, DeadPage, DeadResolved, PurgeAnswer, PurgesPage};
use crate::store_io::write;

/// Letters that are on their way to the store at a time.
const AT_A_TIME: usize = 256;

impl Mirror {
    pub(crate) fn dead_page(&self, after: Option<u64>, limit: usize) -> Result<DeadPage, ApiError> {
        let view = self.services.store.view();
        let upstreams = view.upstreams()?;
        let mut page = DeadPage::default();
        for row in view.dead_letters() {
            let (number, letter) = row?;
            if after.is_some_and(|after| number <= after) || letter.resolution != Resolution::Open {
                continue;
            }
            if page.dead.len() == limit {
                page.cursor = page.dead.last().map(|last| last.number);
                return Ok(page);
            }
            let repo = match letter.repo {
                Some(id) => view.repo(id)?,
                None => None,
            };
            let did = repo.map(|repo| repo.did.to_string());
            let source = letter
                .source
                .and_then(|source| upstreams.get(&source.upstream));
            let upstream = source.map(|row| row.url.clone());
            page.dead
                .push(DeadAnswer::new(number, &letter, did, upstream));
        }
        Ok(page)
    }

    pub(crate) fn purges_page(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<PurgesPage, ApiError> {
        let view = self.services.store.view();
        let mut page = PurgesPage::default();
        let from = after.map_or(0, |after| after.saturating_add(1));
        for row in view.purges(from) {
            let (number, purge) = row?;
            if page.purges.len() == limit {
                page.cursor = page.purges.last().map(|last| last.number);
                return Ok(page);
            }
            let host = match purge.host {
                Some(id) => view.host(id)?,
                None => None,
            };
            let host = host.map(|host| host.name);
            page.purges.push(PurgeAnswer::new(number, &purge, host));
        }
        Ok(page)
    }

    /// Settles one letter, or all that are open now: an operator has looked.
    pub(crate) fn settle_dead(&self, number: Option<u64>) -> Result<DeadResolved, ApiError> {
        let mut open = Vec::new();
        for row in self.services.store.view().dead_letters() {
            let (at, letter) = row?;
            if letter.resolution == Resolution::Open && number.is_none_or(|number| number == at) {
                open.push((at, letter));
            }
        }
        if let Some(number) = number
            && open.is_empty()
        {
            return Err(ApiError::NotFound(format!(
                "there is no open dead letter {number}; `gapless dead list` shows them"
            )));
        }
        let resolved = open.len() as u64;
        let settled = stream::iter(open)
            .map(|(number, letter)| self.settle_letter(number, letter))
            .buffer_unordered(AT_A_TIME)
            .try_for_each(|()| async { Ok(()) });
        self.handle.block_on(settled)?;
        Ok(DeadResolved { resolved })
    }

    /// What it was and why stays; its bytes go, so that letters that somebody has
    /// looked at take no room.
    async fn settle_letter(&self, number: u64, letter: DeadLetter) -> Result<(), StoreError> {
        let letter = DeadLetter {
            resolution: Resolution::Dropped,
            payload: Vec::new(),
            ..letter
        };
        let change = Change {
            tick: self.services.clock.now().tick,
            dead: Some(DeadChange::Row(number, letter)),
            ..Change::default()
        };
        write(&self.services.store, change).await?;
        self.services.totals.resolve_dead_letter();
        Ok(())
    }
}
