//! Background traffic: creates, updates and deletes in all repositories except those that
//! the acts reserve.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_testnet::{Write, encode_record};

use crate::demo::acts::{CAST, HOSTS};
use crate::demo::stage::Stage;

/// Commits per second.
const COMMITS_PER_SECOND: u64 = 30;
/// Records of one account that the traffic has created and not deleted, at most.
const MAX_OWN_RECORDS: usize = 20;

/// Makes each path unique.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// Returns an unused path.
pub fn new_path() -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("app.bsky.feed.post/demo{number:08}")
}

pub fn record(text: &str) -> Vec<u8> {
    let json = serde_json::json!({ "$type": "app.bsky.feed.post", "text": text });
    // Two short texts always encode as a record.
    encode_record(&json).unwrap_or_default()
}

/// Writes until the task is aborted. Skips an account that does not accept a write because
/// its host has lost it.
pub async fn run(stage: Arc<Stage>) {
    let dids = stage.net.truth().dids();
    let busy: Vec<Did> = dids.into_iter().skip(CAST * HOSTS).collect();
    let mut created_paths: BTreeMap<Did, Vec<String>> = BTreeMap::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(1000 / COMMITS_PER_SECOND));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for turn in 0_usize.. {
        ticks.tick().await;
        let many = busy.len().max(1);
        let Some(did) = busy.get(turn % many) else {
            return;
        };
        let paths = created_paths.entry(did.clone()).or_default();
        // Over time, each account gets every kind of write.
        let write = match (turn + turn / many) % 4 {
            1 if !paths.is_empty() => Write::Update {
                path: paths[turn % paths.len()].clone(),
                record: record(&format!("changed in turn {turn}")),
            },
            _ if paths.len() >= MAX_OWN_RECORDS => Write::Delete {
                path: paths.remove(turn % paths.len()),
            },
            3 if !paths.is_empty() => Write::Delete {
                path: paths.remove(turn % paths.len()),
            },
            _ => {
                let path = new_path();
                let record = record(&path);
                Write::Create { path, record }
            }
        };
        let created = match &write {
            Write::Create { path, .. } => Some(path.clone()),
            _ => None,
        };
        if stage.net.write(did, &[write]).is_ok() {
            paths.extend(created);
        }
    }
}
