//! A list, page by page, up to as many entries as were asked for.

use serde::de::DeserializeOwned;

use super::Failure;
use super::client::{Client, talk};

/// Entries asked for at a time.
const PAGE: usize = 1000;

/// One page of a list.
pub trait Page: DeserializeOwned {
    fn entries(&self) -> usize;
    /// Where the next page begins; none on the last one.
    fn cursor(&self) -> Option<u64>;
}

/// Reads pages of `/v1/LIST` until there are so many entries, or no more, and hands
/// each to `take`. Where the next page would begin, if there is one.
pub fn read<P: Page>(
    client: &Client,
    list: &str,
    query: &[(&str, String)],
    limit: usize,
    mut take: impl FnMut(P),
) -> Result<Option<u64>, Failure> {
    talk(async {
        let (mut entries, mut cursor) = (0, None);
        while entries < limit {
            let count = (limit - entries).min(PAGE);
            let mut query = query.to_vec();
            query.push(("limit", count.to_string()));
            query.extend(cursor.map(|cursor: u64| ("cursor", cursor.to_string())));
            let reply = client.get(client.url(&["v1", list], &query)).await?;
            let page: P = reply.read()?;
            entries += page.entries();
            // A server that goes round in circles is not followed.
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
