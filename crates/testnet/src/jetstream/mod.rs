//! A Jetstream server, version 1: the relay's stream as JSON, one operation per message,
//! with cursors in microseconds and without signatures.

mod serve;

pub(crate) use serve::answer;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gapless_atp::cbor::{Value, to_json};
use gapless_atp::syntax::Did;
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use crate::stream::{Body, CommitBody, Draft};
use crate::world::{BlockStore, Change};

/// One message, with the fields that filters use.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub time_us: u64,
    pub did: Did,
    /// `None` for messages that pass every filter of collections.
    pub collection: Option<String>,
    pub text: Arc<str>,
}

#[derive(Debug, Default)]
struct Kept {
    messages: VecDeque<Message>,
    /// Position of the first message.
    base: u64,
    last_us: u64,
}

/// The messages that are kept, shared with the readers.
#[derive(Debug)]
pub(crate) struct Log {
    kept: Mutex<Kept>,
    window: usize,
    pub changed: watch::Sender<u64>,
}

/// A Jetstream server.
pub(crate) struct Jetstream {
    pub log: Arc<Log>,
}

impl Jetstream {
    pub(crate) fn new(window: usize) -> Jetstream {
        let log = Log {
            kept: Mutex::default(),
            window,
            changed: watch::Sender::new(0),
        };
        Jetstream { log: Arc::new(log) }
    }

    /// Adds an event that the relay passed on.
    pub(crate) fn hear(&mut self, seq: u64, draft: &Draft, now_micros: u64, blocks: &BlockStore) {
        match &draft.body {
            Body::Commit(body) if !body.too_big => {
                for change in &body.ops {
                    self.hear_change(draft, body, change, now_micros, blocks);
                }
            }
            Body::Identity { handle } => {
                let identity = json!({
                    "did": draft.did.as_str(), "handle": handle, "seq": seq, "time": draft.time,
                });
                self.add(draft, now_micros, None, "identity", identity);
            }
            Body::Account { active, status } => {
                let mut account = json!({
                    "did": draft.did.as_str(), "active": active, "seq": seq, "time": draft.time,
                });
                if let Some(status) = status {
                    account["status"] = status.as_str().into();
                }
                self.add(draft, now_micros, None, "account", account);
            }
            // A #sync has no form in this version.
            _ => (),
        }
    }

    fn hear_change(
        &mut self,
        draft: &Draft,
        body: &CommitBody,
        change: &Change,
        now_micros: u64,
        blocks: &BlockStore,
    ) {
        let Some((collection, rkey)) = change.path.split_once('/') else {
            return;
        };
        let operation = match (change.cid, change.prev) {
            (Some(_), None) => "create",
            (Some(_), Some(_)) => "update",
            (None, _) => "delete",
        };
        let mut commit = json!({
            "rev": body.rev,
            "operation": operation,
            "collection": collection,
            "rkey": rkey,
        });
        if let Some(cid) = &change.cid {
            let record = blocks.get(cid).and_then(|block| Value::decode(block).ok());
            commit["record"] = record.map_or(Json::Null, |(value, _)| to_json(&value));
            commit["cid"] = cid.to_string().into();
        }
        let collection = Some(collection.to_owned());
        self.add(draft, now_micros, collection, "commit", commit);
    }

    fn add(
        &mut self,
        draft: &Draft,
        now_micros: u64,
        collection: Option<String>,
        kind: &str,
        body: Json,
    ) {
        let mut kept = self.log.kept();
        // Every message has its own time, so that a cursor is exact.
        let time_us = now_micros.max(kept.last_us + 1);
        kept.last_us = time_us;
        let text = json!({
            "did": draft.did.as_str(), "time_us": time_us, "kind": kind, kind: body,
        });
        kept.messages.push_back(Message {
            time_us,
            did: draft.did.clone(),
            collection,
            text: text.to_string().into(),
        });
        while kept.messages.len() > self.log.window {
            kept.messages.pop_front();
            kept.base += 1;
        }
        drop(kept);
        self.log.changed.send_modify(|count| *count += 1);
    }
}

impl Log {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first position at or after a time. Without a time, or with a time in the
    /// future, the end.
    pub(crate) fn position(&self, cursor: Option<u64>) -> u64 {
        let kept = self.kept();
        let end = kept.base + kept.messages.len() as u64;
        match cursor {
            None => end,
            Some(cursor) => {
                let before = |message: &Message| message.time_us < cursor;
                kept.base + kept.messages.partition_point(before) as u64
            }
        }
    }

    /// At most `count` messages from a position, and the next position. Messages that
    /// have left the window are skipped silently, as the real server does.
    pub(crate) fn read(&self, position: u64, count: usize) -> (Vec<Message>, u64) {
        let kept = self.kept();
        let from = position.saturating_sub(kept.base) as usize;
        let to = from.saturating_add(count).min(kept.messages.len());
        let messages = kept.messages.range(from.min(to)..to).cloned().collect();
        (messages, kept.base + to as u64)
    }
}
