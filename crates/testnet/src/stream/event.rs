//! An event before it has a number, and its encoding as a frame.
//!
//! Faults change drafts; feeds number and encode them. The relay takes the same drafts
//! and gives them its own numbers.

use bytes::Bytes;
use gapless_atp::cid::Cid;
use gapless_atp::frame::{
    AccountEvent, Action, CommitEvent, IdentityEvent, RawOp, SyncEvent, encode_account,
    encode_commit, encode_identity, encode_sync,
};
use gapless_atp::syntax::Did;

use crate::world::Change;

/// An event without a number.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub did: Did,
    pub time: String,
    pub body: Body,
}

/// The contents of an event.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    Commit(CommitBody),
    Sync {
        rev: String,
        blocks: Bytes,
    },
    Identity {
        handle: Option<String>,
    },
    Account {
        active: bool,
        status: Option<String>,
    },
    /// Bytes that cannot be read: not even a header.
    BrokenHeader,
    /// A `#commit` whose payload lacks required fields but has its number.
    BrokenPayload,
    /// A `#commit` whose payload lacks required fields but has its number and its DID.
    BrokenRest,
}

#[derive(Debug, Clone)]
pub(crate) struct CommitBody {
    pub rev: String,
    pub since: Option<String>,
    pub commit: Cid,
    pub blocks: Bytes,
    pub ops: Vec<Change>,
    pub prev_data: Option<Cid>,
    pub too_big: bool,
    /// Whether to encode the event as a producer did before `prevData` and `prev`
    /// existed.
    pub legacy: bool,
}

impl Draft {
    pub(crate) fn is_account(&self) -> bool {
        matches!(self.body, Body::Account { .. })
    }

    /// The WebSocket message of the event with the number `seq`.
    pub(crate) fn encode(&self, seq: u64) -> Bytes {
        let (did, time) = (self.did.as_str(), self.time.as_str());
        let frame = match &self.body {
            Body::Commit(body) => body.encode(seq, did, time),
            Body::Sync { rev, blocks } => encode_sync(&SyncEvent {
                seq,
                did,
                time,
                rev,
                blocks,
            }),
            Body::Identity { handle } => encode_identity(&IdentityEvent {
                seq,
                did,
                time,
                handle: handle.as_deref(),
            }),
            Body::Account { active, status } => encode_account(&AccountEvent {
                seq,
                did,
                time,
                active: *active,
                status: status.as_deref(),
            }),
            Body::BrokenHeader => b"\xff\x00this is no frame".to_vec(),
            Body::BrokenPayload => broken_payload(seq, None),
            Body::BrokenRest => broken_payload(seq, Some(did)),
        };
        Bytes::from(frame)
    }
}

impl CommitBody {
    fn encode(&self, seq: u64, did: &str, time: &str) -> Vec<u8> {
        let ops = self.ops.iter().map(|op| RawOp {
            action: match (op.cid, op.prev) {
                (Some(_), None) => Action::Create,
                (Some(_), Some(_)) => Action::Update,
                (None, _) => Action::Delete,
            },
            path: &op.path,
            cid: op.cid,
            prev: op.prev.filter(|_| !self.legacy),
        });
        encode_commit(&CommitEvent {
            seq,
            repo: did,
            time,
            rev: &self.rev,
            since: self.since.as_deref(),
            commit: Some(self.commit),
            blocks: &self.blocks,
            ops: ops.collect(),
            prev_data: self.prev_data.filter(|_| !self.legacy),
            too_big: self.too_big,
        })
    }
}

/// A valid header, then a payload with a number, optionally a DID, and no other required
/// field of a `#commit`.
fn broken_payload(seq: u64, did: Option<&str>) -> Vec<u8> {
    let mut writer = gapless_atp::cbor::Writer::new();
    writer.map(2).text("t").text("#commit").text("op").uint(1);
    match did {
        None => writer.map(1).text("seq").uint(seq),
        Some(did) => writer.map(2).text("seq").uint(seq).text("repo").text(did),
    };
    writer.into_bytes()
}
