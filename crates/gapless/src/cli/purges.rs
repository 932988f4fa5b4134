//! `gapless purges`: what went for good, and what is left of it.

use serde_json::json;

use super::client::{Client, talk};
use super::table::{or_dash, plain, say};
use super::{Failure, Outcome, Server};
use crate::api::{PurgeAnswer, PurgesPage};

/// Entries asked for at a time.
const PAGE: usize = 1000;

pub fn list(server: &Server, limit: usize) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let mut purges: Vec<PurgeAnswer> = Vec::new();
    let cursor = talk(async {
        let mut cursor: Option<u64> = None;
        while purges.len() < limit {
            let count = (limit - purges.len()).min(PAGE);
            let mut query = vec![("limit", count.to_string())];
            query.extend(cursor.map(|cursor| ("cursor", cursor.to_string())));
            let reply = client.get(client.url(&["v1", "purges"], &query)).await?;
            let page: PurgesPage = reply.read()?;
            purges.extend(page.purges);
            let moved = page.cursor > cursor;
            cursor = page.cursor;
            if cursor.is_none() || !moved {
                break;
            }
        }
        Ok(cursor)
    })?;
    match server.json {
        true => say(&json!({ "purges": purges, "cursor": cursor }).to_string()),
        false => print(&purges, cursor.is_some()),
    }
    Ok(Outcome::Fine)
}

fn print(purges: &[PurgeAnswer], more: bool) {
    for purge in purges {
        say(&plain(&format!("{}  {}", purge.did, purge.state)));
        say(&plain(&format!(
            "    purged   {}, called deleted since {}, lived at {}",
            or_dash(purge.purged_at.as_deref()),
            or_dash(purge.deleted_at.as_deref()),
            or_dash(purge.host.as_deref())
        )));
        say(&plain(&format!(
            "    went     {} records, {} bytes; redacted {} frames, {} rows of the log, {} dead letters",
            purge.records,
            purge.bytes,
            purge.frames_redacted,
            purge.log_rows_redacted,
            purge.dead_letters_redacted
        )));
        if let Some(at) = &purge.finished_at {
            let files = match purge.compacted {
                true => "files written anew",
                false => "large files are left to their own compaction",
            };
            say(&plain(&format!("    finished {at}, {files}")));
        }
    }
    say(&match (purges.len(), more) {
        (0, _) => "Nothing was ever purged.".to_owned(),
        (shown, false) => format!("{shown} purges."),
        (shown, true) => format!("{shown} shown, and there are more: --limit."),
    });
}
