//! `gapless purges`: lists the purged repositories and what is left of each.

use serde_json::json;

use super::client::Client;
use super::pages::{self, Page};
use super::{CommandError, CommandOutcome, Server};
use crate::terminal::{or_dash, print_line, sanitize};
use gapless_mirror::api::{PurgeAnswer, PurgesPage};

impl Page for PurgesPage {
    fn entries(&self) -> usize {
        self.purges.len()
    }

    fn cursor(&self) -> Option<u64> {
        self.cursor
    }
}

pub(crate) fn list_purges(server: &Server, limit: usize) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let mut purges: Vec<PurgeAnswer> = Vec::new();
    let cursor = pages::read_pages(&client, "purges", &[], limit, |page: PurgesPage| {
        purges.extend(page.purges);
    })?;
    if server.json {
        print_line(&json!({ "purges": purges, "cursor": cursor }).to_string());
    } else {
        print_purges(&purges, cursor.is_some());
    }
    Ok(CommandOutcome::Fine)
}

fn print_purges(purges: &[PurgeAnswer], more: bool) {
    for purge in purges {
        print_line(&sanitize(&format!("{}  {}", purge.did, purge.state)));
        print_line(&sanitize(&format!(
            "    purged   {}, deleted since {}, last host {}",
            or_dash(purge.purged_at.as_deref()),
            or_dash(purge.deleted_at.as_deref()),
            or_dash(purge.host.as_deref())
        )));
        print_line(&sanitize(&format!(
            "    removed  {} records, {} bytes; redacted {} frames, {} rows of the log, {} dead letters",
            purge.records,
            purge.bytes,
            purge.frames_redacted,
            purge.log_rows_redacted,
            purge.dead_letters_redacted
        )));
        if let Some(at) = &purge.finished_at {
            let files = if purge.compacted {
                "files rewritten"
            } else {
                "large files are left to their own compaction"
            };
            print_line(&sanitize(&format!("    finished {at}, {files}")));
        }
    }
    print_line(&match (purges.len(), more) {
        (0, _) => "No repository was ever purged.".to_owned(),
        (shown, false) => format!("{shown} purges."),
        (shown, true) => format!("{shown} shown; there are more. Show more with --limit."),
    });
}
