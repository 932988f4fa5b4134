//! Writes in the background: creates, updates and deletes, to everybody but the
//! accounts that the script keeps for itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_testnet::{Write, encode_record};

use crate::demo::script::CAST;
use crate::demo::stage::{HOSTS, Stage};

/// Commits a second.
const COMMITS_PER_SECOND: u64 = 30;
/// Records that the traffic has made of one account and not deleted again, at most.
const KEPT: usize = 20;

/// Makes every path another one.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// A path that nobody has used.
pub fn new_path() -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("app.bsky.feed.post/demo{number:08}")
}

pub fn record(text: &str) -> Vec<u8> {
    let json = serde_json::json!({ "$type": "app.bsky.feed.post", "text": text });
    // Two short texts always make a record.
    encode_record(&json).unwrap_or_default()
}

/// Writes until it is aborted. An account that does not take a write (its host has
/// lost it) is passed over.
pub async fn run(stage: Arc<Stage>) {
    let dids = stage.net.truth().dids();
    let busy: Vec<Did> = dids.into_iter().skip(CAST * HOSTS).collect();
    let mut made: BTreeMap<Did, Vec<String>> = BTreeMap::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(1000 / COMMITS_PER_SECOND));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for turn in 0_usize.. {
        ticks.tick().await;
        let many = busy.len().max(1);
        let Some(did) = busy.get(turn % many) else {
            return;
        };
        let paths = made.entry(did.clone()).or_default();
        // Everybody does everything in time.
        let write = match (turn + turn / many) % 4 {
            1 if !paths.is_empty() => Write::Update {
                path: paths[turn % paths.len()].clone(),
                record: record(&format!("changed in turn {turn}")),
            },
            _ if paths.len() >= KEPT => Write::Delete {
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
