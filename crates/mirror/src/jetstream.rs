//! Decodes messages of a Jetstream (v1), each of which is one JSON object.
//!
//! A record comes as JSON and is hashed as DAG-CBOR. A record whose encoding does not have the CID
//! in the message is not kept: either the record is forged, or JSON could not carry it. Its commit
//! is a hint all the same.

use std::borrow::Cow;
use std::sync::Arc;

use gapless_atp::cbor::from_json;
use gapless_atp::cid::Cid;
use gapless_atp::limits::RECORD_BYTES;
use gapless_atp::syntax::{Nsid, RecordKey, Rev};
use gapless_core::ledger::Account;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::admission::scope::Scope;

/// Bytes of one message. A record has at most a megabyte, and its JSON is larger.
pub(crate) const MESSAGE_BYTES: usize = 4 << 20;

/// The fields of a message that the reader of the stream needs.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    did: Cow<'a, str>,
    time_us: u64,
}

/// The part of a commit message that says where it writes.
#[derive(Deserialize)]
struct CommitEnvelope<'a> {
    #[serde(borrow)]
    commit: CommitTarget<'a>,
}

#[derive(Deserialize)]
struct CommitTarget<'a> {
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow)]
    collection: Cow<'a, str>,
}

/// A whole message.
#[derive(Deserialize)]
struct JetstreamMessage<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    commit: Option<Commit<'a>>,
    #[serde(default, borrow)]
    account: Option<AccountChange<'a>>,
}

#[derive(Deserialize)]
struct Commit<'a> {
    #[serde(borrow)]
    rev: Cow<'a, str>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow)]
    collection: Cow<'a, str>,
    #[serde(borrow)]
    rkey: Cow<'a, str>,
    #[serde(default)]
    record: Option<Json>,
    #[serde(default, borrow)]
    cid: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct AccountChange<'a> {
    active: bool,
    #[serde(default, borrow)]
    status: Option<Cow<'a, str>>,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JetstreamEvent {
    /// A commit: its rev, and its operation or why that operation is not kept.
    Commit {
        rev: Rev,
        said: Result<Operation, JetstreamFault>,
    },
    Identity,
    Account(Account),
    /// A message of a kind that is not known.
    Other,
}

/// A claimed operation: a path and its record, or `None` if the record was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    pub path: Vec<u8>,
    pub record: Option<(Cid, Vec<u8>)>,
}

/// Why an operation is not kept, although its commit is a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JetstreamFault {
    /// The path is not valid.
    Path,
    /// The operation is unknown, or its record and CID are missing or not expected.
    Shape,
    /// The JSON cannot be encoded as a record.
    Record,
    /// The record does not hash to the CID in the message, or that CID is not valid.
    Cid,
    TooLarge,
}

impl JetstreamFault {
    pub(crate) fn name(self) -> &'static str {
        match self {
            JetstreamFault::Path => "path",
            JetstreamFault::Shape => "shape",
            JetstreamFault::Record => "record",
            JetstreamFault::Cid => "cid",
            JetstreamFault::TooLarge => "too_large",
        }
    }
}

/// The time of a message, and the name of its repository.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MessageEnvelope {
    /// The time in microseconds, which numbers the events of a Jetstream.
    pub time_us: u64,
    /// The name as it was sent. It may not be a DID.
    pub did: String,
    /// The wanted collection that the message writes in.
    pub found: Option<Arc<str>>,
}

/// Reads the envelope of a message. The error says why the message has none.
pub(crate) fn read_envelope(message: &[u8], scope: &Scope) -> Result<MessageEnvelope, String> {
    if message.len() > MESSAGE_BYTES {
        let length = message.len();
        return Err(format!(
            "a message of {length} bytes; the limit is {MESSAGE_BYTES}"
        ));
    }
    let envelope: Envelope<'_> = serde_json::from_slice(message)
        .map_err(|error| format!("not a message of a Jetstream: {error}"))?;
    Ok(MessageEnvelope {
        time_us: envelope.time_us,
        did: envelope.did.into_owned(),
        found: wanted_collection(message, scope),
    })
}

/// The wanted collection that a message creates or updates a record in.
fn wanted_collection(message: &[u8], scope: &Scope) -> Option<Arc<str>> {
    if !scope.is_narrow() {
        return None;
    }
    let CommitEnvelope { commit } = serde_json::from_slice(message).ok()?;
    let pattern = scope.finds_in(&commit.collection);
    pattern
        .filter(|_| commit.operation != "delete")
        .map(|pattern| pattern.to_string().into())
}

/// Reads a whole message. Fails if the JSON, the rev or the part for the message's kind cannot be
/// read.
pub(crate) fn read(message: &[u8]) -> Result<JetstreamEvent, String> {
    let message: JetstreamMessage<'_> =
        serde_json::from_slice(message).map_err(|error| error.to_string())?;
    match (&*message.kind, message.commit, message.account) {
        ("commit", Some(commit), _) => {
            let rev = commit.rev.parse::<Rev>();
            let rev = rev.map_err(|error| format!("the rev is none: {error}"))?;
            let said = operation(commit);
            Ok(JetstreamEvent::Commit { rev, said })
        }
        ("identity", ..) => Ok(JetstreamEvent::Identity),
        ("account", _, Some(account)) => Ok(JetstreamEvent::Account(state(&account))),
        ("commit" | "account", ..) => Err(format!("a message of kind {} without it", message.kind)),
        _ => Ok(JetstreamEvent::Other),
    }
}

fn state(account: &AccountChange<'_>) -> Account {
    match (account.active, account.status.as_deref()) {
        (true, _) => Account::Active,
        (false, Some("suspended")) => Account::Suspended,
        (false, Some("takendown")) => Account::Takendown,
        (false, Some("deleted")) => Account::Deleted,
        (false, _) => Account::Deactivated,
    }
}

fn operation(commit: Commit<'_>) -> Result<Operation, JetstreamFault> {
    let collection = Nsid::parse(&commit.collection).map_err(|_| JetstreamFault::Path)?;
    let rkey = RecordKey::parse(&commit.rkey).map_err(|_| JetstreamFault::Path)?;
    let path = format!("{}/{}", collection.as_str(), rkey.as_str()).into_bytes();
    let record = match (&*commit.operation, commit.record, commit.cid) {
        ("delete", None, None) => None,
        ("create" | "update", Some(record), Some(cid)) => {
            let cid: Cid = cid.parse().map_err(|_| JetstreamFault::Cid)?;
            let value = from_json(&record).map_err(|_| JetstreamFault::Record)?;
            let bytes = value.encode().ok_or(JetstreamFault::Record)?;
            if bytes.len() > RECORD_BYTES {
                return Err(JetstreamFault::TooLarge);
            }
            if !cid.matches(&bytes) {
                return Err(JetstreamFault::Cid);
            }
            Some((cid, bytes))
        }
        _ => return Err(JetstreamFault::Shape),
    };
    Ok(Operation { path, record })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DID: &str = "did:plc:z72i7hdynmk6r22z27h6tvur";

    fn record() -> Json {
        json!({
            "$type": "app.bsky.feed.post",
            "text": "a \u{1f41f}",
            "size": 12,
            "blob": {"$bytes": "AQID"},
            "of": {"$link": Cid::dag_cbor(b"other").to_string()},
        })
    }

    fn line(commit: Json) -> Vec<u8> {
        let line = json!({"did": DID, "time_us": 7, "kind": "commit", "commit": commit});
        line.to_string().into_bytes()
    }

    fn commit(operation: &str, record: Option<Json>, cid: Option<String>) -> Json {
        let mut commit = json!({
            "rev": "3jzfcijpj2z2a", "operation": operation,
            "collection": "app.bsky.feed.post", "rkey": "abc",
        });
        if let Some(record) = record {
            commit["record"] = record;
        }
        if let Some(cid) = cid {
            commit["cid"] = cid.into();
        }
        commit
    }

    fn said(commit: Json) -> Result<Operation, JetstreamFault> {
        match read(&line(commit)) {
            Ok(JetstreamEvent::Commit { said, .. }) => said,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_is_kept_as_the_bytes_that_its_cid_names() {
        let bytes = from_json(&record())
            .expect("a record")
            .encode()
            .expect("it can");
        let cid = Cid::dag_cbor(&bytes);
        let kept = said(commit("create", Some(record()), Some(cid.to_string())));
        let expected = Operation {
            path: b"app.bsky.feed.post/abc".to_vec(),
            record: Some((cid, bytes)),
        };
        assert_eq!(kept, Ok(expected));
        let gone = said(commit("delete", None, None)).expect("it is one");
        assert_eq!(gone.record, None);
        let forged = Some(Cid::dag_cbor(b"forged").to_string());
        let kept = said(commit("update", Some(record()), forged));
        assert_eq!(kept, Err(JetstreamFault::Cid));
    }

    #[test]
    fn what_cannot_be_a_record_is_refused_and_its_commit_heard() {
        let cid = || Some(Cid::dag_cbor(b"x").to_string());
        for (commit, why) in [
            (commit("create", None, cid()), JetstreamFault::Shape),
            (
                commit("create", Some(record()), None),
                JetstreamFault::Shape,
            ),
            (
                commit("delete", Some(record()), cid()),
                JetstreamFault::Shape,
            ),
            (commit("rename", None, None), JetstreamFault::Shape),
            (
                commit("create", Some(json!(["x"])), cid()),
                JetstreamFault::Record,
            ),
            (
                commit("create", Some(json!({"a": 1.5})), cid()),
                JetstreamFault::Record,
            ),
            (
                commit("create", Some(record()), Some("x".to_owned())),
                JetstreamFault::Cid,
            ),
        ] {
            assert_eq!(said(commit.clone()), Err(why), "{commit}");
        }
        let mut path = commit("delete", None, None);
        path["rkey"] = "a/b".into();
        assert_eq!(said(path), Err(JetstreamFault::Path));
    }

    #[test]
    fn hostile_messages_are_errors_and_never_panics() {
        let deep = format!(
            "{{\"did\":\"{DID}\",\"time_us\":1,\"x\":{}",
            "[".repeat(100_000)
        );
        let twice = format!("{{\"did\":\"{DID}\",\"did\":\"{DID}\",\"time_us\":1}}");
        let large = format!("{{\"x\":\"{}\"}}", "a".repeat(MESSAGE_BYTES));
        for text in [
            "",
            "null",
            "[]",
            "{}",
            "{\"did\":1,\"time_us\":2}",
            &deep,
            &twice,
            &large,
        ] {
            assert!(read_envelope(text.as_bytes(), &Scope::default()).is_err());
        }
        let negative = format!("{{\"did\":\"{DID}\",\"time_us\":-1}}");
        assert!(read_envelope(negative.as_bytes(), &Scope::default()).is_err());
        for text in [
            r#"{"kind":"commit"}"#,
            r#"{"kind":"commit","commit":{"rev":"x","operation":"delete","collection":"a.b.c","rkey":"d"}}"#,
            r#"{"kind":"commit","commit":{"rev":7}}"#,
            r#"{"kind":"account","account":{}}"#,
            r#"{"kind":7}"#,
            "\u{0}",
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
        let other = read(br#"{"kind":"labels","commit":null}"#);
        assert_eq!(other, Ok(JetstreamEvent::Other));
    }
}
