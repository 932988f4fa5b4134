//! The list of tracked repositories.

use gapless_atp::syntax::Did;

use crate::api::{ApiError, TrackedPage};
use crate::services::Services;

/// The repositories after `after` in the order of DIDs, at most `limit`.
pub(crate) fn tracked_page(
    services: &Services,
    after: Option<&Did>,
    limit: usize,
) -> Result<TrackedPage, ApiError> {
    let mut page = TrackedPage::default();
    for row in services.store.view().tracked() {
        let (did, tracked) = row?;
        if after.is_some_and(|after| did <= *after) {
            continue;
        }
        if page.tracked.len() == limit {
            page.cursor = page.tracked.last().cloned();
            return Ok(page);
        }
        if let Some(collection) = tracked.found {
            page.found.insert(did.to_string(), collection);
        }
        page.tracked.push(did.to_string());
    }
    Ok(page)
}
