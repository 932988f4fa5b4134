//! Shared by the tests: clients over real sockets, and a mirror made of maps.
//!
//! Every wait has a deadline and says what it waited for.
#![allow(dead_code)] // Each test binary uses its own part.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use gapless_atp::car::read_blocks;
use gapless_atp::cid::Cid;
use gapless_atp::crypto::PublicKey;
use gapless_atp::frame::{Action, CommitEvent, Event, decode};
use gapless_atp::identity::DidDocument;
use gapless_atp::mst::{Op, OpAction, empty_root, invert};
use gapless_atp::repo::{Commit, ImportError, RepoCar};
use gapless_atp::syntax::Did;
use gapless_testnet::{Config, Testnet};
use serde_json::Value as Json;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) async fn start(config: Config) -> Testnet {
    Testnet::start(config).await.expect("the network starts")
}

/// Status, headers and body of a GET; redirects are not followed.
pub(crate) async fn get(url: &str) -> (u16, reqwest::header::HeaderMap, Vec<u8>) {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    let answer = timeout(DEADLINE, client.get(url).send());
    let answer = answer.await.expect("an answer in time").unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let body = timeout(DEADLINE, answer.bytes()).await;
    (
        status,
        headers,
        body.expect("a body in time").unwrap().to_vec(),
    )
}

pub(crate) async fn get_json(url: &str) -> (u16, Json) {
    let (status, _, body) = get(url).await;
    let json = serde_json::from_slice(&body);
    let text = || String::from_utf8_lossy(&body).into_owned();
    (status, json.unwrap_or_else(|_| panic!("{url}: {}", text())))
}

pub(crate) async fn post_json(url: &str, body: Json) -> (u16, Json) {
    let client = reqwest::Client::new();
    let answer = client.post(url).json(&body).send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap())
}

/// A DID as a parameter: a did:web with a port has a percent sign of its own.
pub(crate) fn did_param(did: &Did) -> String {
    format!("did={}", did.as_str().replace('%', "%25"))
}

pub(crate) fn xrpc(base: &str, method: &str, query: &str) -> String {
    format!("{base}/xrpc/com.atproto.sync.{method}?{query}")
}

/// A subscriber of an event stream.
pub(crate) struct Consumer(pub WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Consumer {
    pub(crate) async fn connect(base: &str, cursor: Option<u64>) -> Consumer {
        let base = base.replace("http://", "ws://");
        let cursor = cursor.map_or(String::new(), |cursor| format!("cursor={cursor}"));
        Consumer::dial(&xrpc(&base, "subscribeRepos", &cursor)).await
    }

    pub(crate) async fn dial(url: &str) -> Consumer {
        let dialled = timeout(DEADLINE, connect_async(url)).await;
        Consumer(dialled.expect("a handshake in time").unwrap().0)
    }

    /// The next message; `None` when the server closed.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let message = timeout(DEADLINE, self.0.next()).await;
            match message.expect("a message or an end in time")? {
                Ok(Message::Binary(bytes)) => return Some(bytes.to_vec()),
                Ok(Message::Text(text)) => return Some(text.as_bytes().to_vec()),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => (),
            }
        }
    }

    /// Whether a message comes within a moment.
    pub(crate) async fn hears(&mut self, moment: Duration) -> bool {
        timeout(moment, self.next()).await.is_ok()
    }

    /// All messages up to the event with this number.
    pub(crate) async fn until(&mut self, seq: u64) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await;
            let frame = frame.unwrap_or_else(|| panic!("the stream ended before {seq}"));
            let last = seq_of(&frame) == Some(seq);
            frames.push(frame);
            if last {
                return frames;
            }
        }
    }

    pub(crate) async fn send(&mut self, message: Message) {
        self.0.send(message).await.unwrap();
    }
}

pub(crate) fn seq_of(frame: &[u8]) -> Option<u64> {
    decode(frame).ok()?.seq()
}

/// The key that a DID's document names, asked for over HTTP.
pub(crate) async fn key_of(testnet: &Testnet, did: &Did) -> PublicKey {
    let url = match did.web_host() {
        Some(host) => format!("http://{host}/.well-known/did.json"),
        None => format!("{}/{did}", testnet.urls().plc),
    };
    let (status, _, body) = get(&url).await;
    assert_eq!(status, 200, "{url}");
    let document = DidDocument::parse(&body, did).unwrap();
    document.usable_key().expect("a key").clone()
}

/// Checks everything that a `#commit` proves: hashes, signature, operations.
pub(crate) fn check_commit(event: &CommitEvent<'_>, key: &PublicKey) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| format!("{} {}: {error}", event.repo, event.rev);
    let blocks = read_blocks(event.blocks).and_then(|blocks| blocks.into_map());
    let blocks = blocks.map_err(|error| text(&error))?;
    let cid = event.commit.ok_or("no commit")?;
    if blocks.roots() != [cid] {
        return Err(text(&"another root"));
    }
    let block = blocks.get(&cid).ok_or("no commit block")?;
    let commit = Commit::decode(block).map_err(|error| text(&error))?;
    commit.verify(key).map_err(|error| text(&error))?;
    if (commit.did, commit.rev.to_string().as_str()) != (event.repo, event.rev) {
        return Err(text(&"another DID or rev"));
    }
    let mut ops = Vec::new();
    for op in &event.ops {
        let action = match (op.action, op.cid, op.prev) {
            (Action::Create, Some(cid), None) => OpAction::Create { cid },
            (Action::Update, Some(cid), Some(prev)) => OpAction::Update { cid, prev },
            (Action::Delete, None, Some(prev)) => OpAction::Delete { prev },
            _ => return Err(text(&"an operation without its CIDs")),
        };
        if let Some(cid) = action.cid() {
            blocks
                .get(cid)
                .ok_or_else(|| text(&"a record is missing"))?;
        }
        ops.push(Op {
            path: op.path,
            action,
        });
    }
    let before = match (event.since, event.prev_data) {
        (_, Some(before)) => before,
        (None, None) => empty_root(),
        (Some(_), None) => return Err(text(&"no prevData")),
    };
    invert(commit.data, before, &ops, &blocks).map_err(|error| text(&error))
}

/// What a consumer would hold: DID to path to CID.
pub(crate) type Fold = BTreeMap<String, BTreeMap<String, Cid>>;

pub(crate) fn fold(held: &mut Fold, event: &CommitEvent<'_>) {
    let repo = held.entry(event.repo.to_owned()).or_default();
    for op in &event.ops {
        match op.cid {
            Some(cid) => repo.insert(op.path.to_owned(), cid),
            None => repo.remove(op.path),
        };
    }
}

/// A CAR of a whole repository, checked but for its signature: its records.
pub(crate) fn import(car: &[u8]) -> Result<BTreeMap<String, (Cid, Vec<u8>)>, ImportError> {
    let mut records = BTreeMap::new();
    RepoCar::read(car)?.records::<ImportError>(|path, cid, bytes| {
        let path = String::from_utf8(path.to_vec()).unwrap();
        records.insert(path, (cid, bytes.to_vec()));
        Ok(())
    })?;
    Ok(records)
}

/// A name for each event, for comparing streams at a glance.
pub(crate) fn kind(frame: &[u8]) -> String {
    match decode(frame) {
        Ok(Event::Commit(event)) => format!("commit({})", event.ops.len()),
        Ok(Event::Sync(_)) => "sync".to_owned(),
        Ok(Event::Identity(_)) => "identity".to_owned(),
        Ok(Event::Account(event)) => format!("account({})", event.status.unwrap_or("active")),
        Ok(Event::Info(event)) => format!("info({})", event.name),
        Ok(Event::Error { error, .. }) => format!("error({error})"),
        Ok(Event::Unknown { .. }) => "unknown".to_owned(),
        Err(_) => "unreadable".to_owned(),
    }
}
