//! The lists of dead letters and of purges.

use gapless_store::table::dead::Resolution;

use crate::api::{ApiError, DeadAnswer, DeadPage, PurgeAnswer, PurgesPage};
use crate::services::Services;

/// The open dead letters with numbers above `after`, at most `limit`.
pub(crate) fn dead_page(
    services: &Services,
    after: Option<u64>,
    limit: usize,
) -> Result<DeadPage, ApiError> {
    let view = services.store.view();
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

/// The purges with numbers above `after`, at most `limit`.
pub(crate) fn purges_page(
    services: &Services,
    after: Option<u64>,
    limit: usize,
) -> Result<PurgesPage, ApiError> {
    let view = services.store.view();
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
