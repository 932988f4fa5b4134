//! Answers about purges: what was deleted for good, which host called it deleted, and what is
//! left.

use gapless_store::table::purge::PurgeRow;
use serde::{Deserialize, Serialize};

use crate::api::time::timestamp;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PurgeAnswer {
    /// The first number of the log that the purge took.
    pub number: u64,
    pub did: String,
    /// The host of the repository. This host, or the directory, called the repository
    /// deleted; no other source can cause a purge.
    pub host: Option<String>,
    /// When the deletion was first reported.
    pub deleted_at: Option<String>,
    pub purged_at: Option<String>,
    pub records: u64,
    /// Bytes of records, superseded ones, claims and parked frames.
    pub bytes: u64,
    pub frames_redacted: u64,
    pub log_rows_redacted: u64,
    pub dead_letters_redacted: u64,
    /// deleting, redacting, compacting or finished.
    pub state: String,
    /// When nothing of the repository was left.
    pub finished_at: Option<String>,
    /// Whether the engine's files were rewritten by `finished_at`. Files that are too large to
    /// rewrite at once are rewritten later, by their regular compaction.
    pub compacted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PurgesPage {
    pub purges: Vec<PurgeAnswer>,
    /// The cursor of the next page; null on the last page.
    pub cursor: Option<u64>,
}

impl PurgeAnswer {
    pub fn new(number: u64, purge: &PurgeRow, host: Option<String>) -> PurgeAnswer {
        let state = if purge.finished_at.is_some() {
            "finished"
        } else if purge.deleting.is_some() {
            "deleting"
        } else if purge.is_redacted(number) {
            "compacting"
        } else {
            "redacting"
        };
        PurgeAnswer {
            number,
            did: purge.did.to_string(),
            host,
            deleted_at: purge.deleted_at.and_then(timestamp),
            purged_at: timestamp(purge.purged_at),
            records: purge.records,
            bytes: purge.bytes,
            frames_redacted: purge.frames_redacted,
            log_rows_redacted: purge.rows_redacted,
            dead_letters_redacted: purge.letters_redacted,
            state: state.to_owned(),
            finished_at: purge.finished_at.and_then(timestamp),
            compacted: purge.compacted,
        }
    }
}
