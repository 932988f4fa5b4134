//! Reads a list of the API page by page, up to a limit.

use serde::de::DeserializeOwned;

use super::CommandError;
use super::client::{Client, run_requests};

/// Entries per request.
const PAGE_ENTRIES: usize = 1000;

/// One page of a list.
pub(crate) trait Page: DeserializeOwned {
    fn entries(&self) -> usize;
    /// The cursor of the next page; `None` on the last page.
    fn cursor(&self) -> Option<u64>;
}

/// Reads pages of `/v1/LIST`, passes each to `take`, and stops after `limit` entries or
/// on the last page. Returns the cursor of the next page, if there is one.
pub(crate) fn read_pages<P: Page>(
    client: &Client,
    list: &str,
    query: &[(&str, String)],
    limit: usize,
    mut take: impl FnMut(P),
) -> Result<Option<u64>, CommandError> {
    run_requests(async {
        let (mut entries, mut cursor) = (0, None);
        while entries < limit {
            let count = (limit - entries).min(PAGE_ENTRIES);
            let mut query = query.to_vec();
            query.push(("limit", count.to_string()));
            query.extend(cursor.map(|cursor: u64| ("cursor", cursor.to_string())));
            let reply = client.get(client.url(&["v1", list], &query)).await?;
            let page: P = reply.read()?;
            entries += page.entries();
            // A server whose cursor does not grow would be asked for ever.
            let moved = page.cursor() > cursor;
            cursor = page.cursor();
            take(page);
            if cursor.is_none() || !moved {
                break;
            }
        }
        Ok(cursor)
    })
}
