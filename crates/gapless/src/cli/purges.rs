//! `gapless purges`: what went for good, and what is left of it.

use serde_json::json;

use super::client::Client;
use super::pages::{self, Page};
use super::table::{or_dash, plain, say};
use super::{Failure, Outcome, Server};
use crate::api::{PurgeAnswer, PurgesPage};

impl Page for PurgesPage {
    fn entries(&self) -> usize {
        self.purges.len()
    }

    fn cursor(&self) -> Option<u64> {
        self.cursor
    }
}

pub fn list(server: &Server, limit: usize) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let mut purges: Vec<PurgeAnswer> = Vec::new();
    let cursor = pages::read(&client, "purges", &[], limit, |page: PurgesPage| {
        purges.extend(page.purges);
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
