//! Decodes frames to events.
//!
//! A header that cannot be read means that the stream is broken. A payload that cannot be
//! read is one bad event; the error carries its sequence number if that could be found,
//! so that the caller can skip the event ([`FrameError::Payload`]).

use crate::cbor::{CborError, Reader};
use crate::cid::Cid;
use crate::limits;
use crate::syntax::Did;

/// Why a message is not a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("frame has {0} bytes, more than {limit}", limit = limits::FRAME_BYTES)]
    Size(usize),
    #[error("frame header cannot be read: {0}")]
    Header(CborError),
    #[error("frame header has no '{0}'")]
    HeaderField(&'static str),
    #[error("frame header has '{0}' twice")]
    HeaderTwice(&'static str),
    #[error("payload of {kind} cannot be read: {error}")]
    Payload {
        kind: &'static str,
        /// The event's number, if it could be read in spite of the error.
        seq: Option<u64>,
        /// The DID that the event names, if it could be read in spite of the error.
        repo: Option<String>,
        error: PayloadError,
    },
}

/// What is wrong with a payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error(transparent)]
    Cbor(#[from] CborError),
    #[error("the field '{0}' is missing")]
    Missing(&'static str),
    #[error("the field '{0}' is repeated")]
    Twice(&'static str),
    #[error("more than {} operations", limits::COMMIT_OPS)]
    Ops,
    #[error("'{0}' is not an action")]
    Action(String),
    #[error("the number {0} is not between 1 and 2^53")]
    Seq(u64),
}

/// One event of the stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    Commit(CommitEvent<'a>),
    Sync(SyncEvent<'a>),
    Identity(IdentityEvent<'a>),
    Account(AccountEvent<'a>),
    Info(InfoEvent<'a>),
    /// An error frame. The server closes the stream after it.
    Error {
        error: &'a str,
        message: Option<&'a str>,
    },
    /// A type or operation that this version does not know. The caller skips it.
    Unknown {
        op: i64,
        kind: Option<&'a str>,
    },
}

impl Event<'_> {
    /// The event's number in its stream.
    pub fn seq(&self) -> Option<u64> {
        match self {
            Event::Commit(event) => Some(event.seq),
            Event::Sync(event) => Some(event.seq),
            Event::Identity(event) => Some(event.seq),
            Event::Account(event) => Some(event.seq),
            Event::Info(_) | Event::Error { .. } | Event::Unknown { .. } => None,
        }
    }
}

/// `#commit`: a repository moved from one signed root to the next.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CommitEvent<'a> {
    pub seq: u64,
    pub repo: &'a str,
    pub time: &'a str,
    pub rev: &'a str,
    pub since: Option<&'a str>,
    pub commit: Option<Cid>,
    pub blocks: &'a [u8],
    pub ops: Vec<RawOp<'a>>,
    pub too_big: bool,
    /// The previous root; absent in first commits and from old producers.
    pub prev_data: Option<Cid>,
}

/// An operation as it was sent. Not every combination of fields makes sense.
#[derive(Debug, Clone, PartialEq)]
pub struct RawOp<'a> {
    pub action: Action,
    pub path: &'a str,
    pub cid: Option<Cid>,
    pub prev: Option<Cid>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Create,
    Update,
    Delete,
}

impl Action {
    pub fn as_str(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Update => "update",
            Action::Delete => "delete",
        }
    }
}

/// `#sync`: the present state of a repository, as its host reports it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SyncEvent<'a> {
    pub seq: u64,
    pub did: &'a str,
    pub time: &'a str,
    pub rev: &'a str,
    pub blocks: &'a [u8],
}

/// `#identity`: something about the DID may have changed. The event is unsigned, so it is
/// a hint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IdentityEvent<'a> {
    pub seq: u64,
    pub did: &'a str,
    pub time: &'a str,
    pub handle: Option<&'a str>,
}

/// `#account`: whether the host serves the account.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AccountEvent<'a> {
    pub seq: u64,
    pub did: &'a str,
    pub time: &'a str,
    pub active: bool,
    pub status: Option<&'a str>,
}

/// `#info`: a message from the server, such as `OutdatedCursor`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InfoEvent<'a> {
    pub name: &'a str,
    pub message: Option<&'a str>,
}

/// Decodes one message.
pub fn decode(message: &[u8]) -> Result<Event<'_>, FrameError> {
    let (op, kind, reader) = header(message)?;
    match (op, kind) {
        (-1, _) => payload("error", reader, error_frame),
        (1, None) => Err(FrameError::HeaderField("t")),
        (1, Some("#commit")) => payload("#commit", reader, commit),
        (1, Some("#sync")) => payload("#sync", reader, sync),
        (1, Some("#identity")) => payload("#identity", reader, identity),
        (1, Some("#account")) => payload("#account", reader, account),
        (1, Some("#info")) => payload("#info", reader, info),
        (op, kind) => Ok(Event::Unknown { op, kind }),
    }
}

/// The number of an event and the repository it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub seq: u64,
    pub did: Did,
}

/// Reads the envelope of a `#commit`, `#sync`, `#identity` or `#account` frame.
///
/// There is an envelope only where it agrees with [`decode`]: if the frame decodes, number
/// and DID are those of the event, and if the payload is broken, they are those that
/// [`FrameError::Payload`] reports. Every other frame must be decoded to know what it is.
pub fn envelope(message: &[u8]) -> Option<Envelope> {
    let (op, kind, mut payload) = header(message).ok()?;
    let (name, other) = match (op, kind?) {
        (1, "#commit") => ("repo", "did"),
        (1, "#sync" | "#identity" | "#account") => ("did", "repo"),
        _ => return None,
    };
    envelope_fields(&mut payload, name, other)
}

/// Reads up to the number and the DID. A field called `other` ahead of the DID would be
/// taken for the DID if the payload is broken, so such a frame has no envelope.
fn envelope_fields(payload: &mut Reader<'_>, name: &str, other: &str) -> Option<Envelope> {
    let (mut number, mut did) = (None, None);
    for _ in 0..payload.map().ok()? {
        let key = payload.key().ok()?;
        if key == "seq" && number.is_none() {
            number = Some(seq(payload).ok()?);
        } else if key == name && did.is_none() {
            did = Some(Did::parse(payload.text().ok()?).ok()?);
        } else if key == other && did.is_none() {
            return None;
        } else {
            payload.skip().ok()?;
        }
        if let (Some(seq), Some(_)) = (number, &did) {
            return did.map(|did| Envelope { seq, did });
        }
    }
    None
}

/// Reads the header of a frame: its operation, its type, and a reader of its payload.
fn header(message: &[u8]) -> Result<(i64, Option<&str>, Reader<'_>), FrameError> {
    if message.len() > limits::FRAME_BYTES {
        return Err(FrameError::Size(message.len()));
    }
    let mut reader = Reader::new(message);
    let (mut op, mut kind) = (None, None);
    let pairs = reader.map().map_err(FrameError::Header)?;
    for _ in 0..pairs {
        match reader.key().map_err(FrameError::Header)? {
            "op" if op.is_some() => return Err(FrameError::HeaderTwice("op")),
            "t" if kind.is_some() => return Err(FrameError::HeaderTwice("t")),
            "op" => op = Some(reader.int().map_err(FrameError::Header)?),
            "t" => kind = Some(reader.text().map_err(FrameError::Header)?),
            _ => reader.skip().map_err(FrameError::Header)?,
        }
    }
    let op = op.ok_or(FrameError::HeaderField("op"))?;
    Ok((op, kind, reader))
}

fn payload<'a>(
    kind: &'static str,
    reader: Reader<'a>,
    read: fn(&mut Reader<'a>) -> Result<Event<'a>, PayloadError>,
) -> Result<Event<'a>, FrameError> {
    let mut attempt = reader.clone();
    let result = read(&mut attempt).and_then(|event| {
        attempt.finish()?;
        Ok(event)
    });
    result.map_err(|error| FrameError::Payload {
        kind,
        seq: find(reader.clone(), &["seq"], |reader| seq(reader).ok()),
        repo: find(reader, &["repo", "did"], |reader| {
            reader.text().ok().map(str::to_owned)
        }),
        error,
    })
}

/// Searches for a field in a payload that could not be read as a whole.
fn find<'a, T>(
    mut reader: Reader<'a>,
    names: &[&str],
    read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
) -> Option<T> {
    for _ in 0..reader.map().ok()? {
        if names.contains(&reader.key().ok()?) {
            return read(&mut reader);
        }
        reader.skip().ok()?;
    }
    None
}

/// The names of the fields that were read.
#[derive(Default)]
struct Seen(Vec<&'static str>);

impl Seen {
    fn once(&mut self, name: &'static str) -> Result<(), PayloadError> {
        if self.0.contains(&name) {
            return Err(PayloadError::Twice(name));
        }
        self.0.push(name);
        Ok(())
    }

    fn require(&self, names: &[&'static str]) -> Result<(), PayloadError> {
        match names.iter().find(|name| !self.0.contains(name)) {
            Some(name) => Err(PayloadError::Missing(name)),
            None => Ok(()),
        }
    }
}

/// Reads a map. `field` reads the value of a known key and returns its name; it returns
/// `None` for an unknown key, whose value is then skipped.
fn fields<'a>(
    reader: &mut Reader<'a>,
    required: &[&'static str],
    mut field: impl FnMut(&'a str, &mut Reader<'a>) -> Result<Option<&'static str>, PayloadError>,
) -> Result<(), PayloadError> {
    let mut seen = Seen::default();
    for _ in 0..reader.map()? {
        let key = reader.key()?;
        match field(key, reader)? {
            Some(name) => seen.once(name)?,
            None => reader.skip()?,
        }
    }
    seen.require(required)
}

/// Stores a value and returns the name of its field.
macro_rules! known {
    ($name:literal, $place:expr, $value:expr) => {{
        $place = $value?;
        Ok(Some($name))
    }};
}

fn seq(reader: &mut Reader<'_>) -> Result<u64, PayloadError> {
    match reader.uint()? {
        seq if (1..1 << 53).contains(&seq) => Ok(seq),
        seq => Err(PayloadError::Seq(seq)),
    }
}

fn text_or_null<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a str>, CborError> {
    if reader.null() {
        Ok(None)
    } else {
        reader.text().map(Some)
    }
}

fn commit<'a>(reader: &mut Reader<'a>) -> Result<Event<'a>, PayloadError> {
    let mut event = CommitEvent::default();
    let required = ["seq", "repo", "rev", "commit", "blocks", "ops"];
    fields(reader, &required, |key, reader| match key {
        "seq" => known!("seq", event.seq, seq(reader)),
        "repo" => known!("repo", event.repo, reader.text()),
        "time" => known!("time", event.time, reader.text()),
        "rev" => known!("rev", event.rev, reader.text()),
        "since" => known!("since", event.since, text_or_null(reader)),
        "commit" => known!("commit", event.commit, reader.cid_or_null()),
        "blocks" => known!("blocks", event.blocks, reader.bytes()),
        "tooBig" => known!("tooBig", event.too_big, reader.bool()),
        "prevData" => known!("prevData", event.prev_data, reader.cid_or_null()),
        "ops" => known!("ops", event.ops, ops(reader)),
        _ => Ok(None),
    })?;
    Ok(Event::Commit(event))
}

fn ops<'a>(reader: &mut Reader<'a>) -> Result<Vec<RawOp<'a>>, PayloadError> {
    if reader.null() {
        // Go producers write an empty list as null.
        return Ok(Vec::new());
    }
    let count = reader.array()?;
    if count > limits::COMMIT_OPS {
        return Err(PayloadError::Ops);
    }
    let mut ops = Vec::with_capacity(count);
    for _ in 0..count {
        let mut op = RawOp {
            action: Action::Create,
            path: "",
            cid: None,
            prev: None,
        };
        fields(reader, &["action", "path"], |key, reader| match key {
            "action" => known!("action", op.action, action(reader)),
            "path" => known!("path", op.path, reader.text()),
            "cid" => known!("cid", op.cid, reader.cid_or_null()),
            "prev" => known!("prev", op.prev, reader.cid_or_null()),
            _ => Ok(None),
        })?;
        ops.push(op);
    }
    Ok(ops)
}

fn action(reader: &mut Reader<'_>) -> Result<Action, PayloadError> {
    match reader.text()? {
        "create" => Ok(Action::Create),
        "update" => Ok(Action::Update),
        "delete" => Ok(Action::Delete),
        other => Err(PayloadError::Action(other.chars().take(40).collect())),
    }
}

fn sync<'a>(reader: &mut Reader<'a>) -> Result<Event<'a>, PayloadError> {
    let mut event = SyncEvent::default();
    let required = ["seq", "did", "rev", "blocks"];
    fields(reader, &required, |key, reader| match key {
        "seq" => known!("seq", event.seq, seq(reader)),
        "did" => known!("did", event.did, reader.text()),
        "time" => known!("time", event.time, reader.text()),
        "rev" => known!("rev", event.rev, reader.text()),
        "blocks" => known!("blocks", event.blocks, reader.bytes()),
        _ => Ok(None),
    })?;
    Ok(Event::Sync(event))
}

fn identity<'a>(reader: &mut Reader<'a>) -> Result<Event<'a>, PayloadError> {
    let mut event = IdentityEvent::default();
    fields(reader, &["seq", "did"], |key, reader| match key {
        "seq" => known!("seq", event.seq, seq(reader)),
        "did" => known!("did", event.did, reader.text()),
        "time" => known!("time", event.time, reader.text()),
        "handle" => known!("handle", event.handle, text_or_null(reader)),
        _ => Ok(None),
    })?;
    Ok(Event::Identity(event))
}

fn account<'a>(reader: &mut Reader<'a>) -> Result<Event<'a>, PayloadError> {
    let mut event = AccountEvent::default();
    fields(reader, &["seq", "did", "active"], |key, reader| match key {
        "seq" => known!("seq", event.seq, seq(reader)),
        "did" => known!("did", event.did, reader.text()),
        "time" => known!("time", event.time, reader.text()),
        "active" => known!("active", event.active, reader.bool()),
        "status" => known!("status", event.status, text_or_null(reader)),
        _ => Ok(None),
    })?;
    Ok(Event::Account(event))
}

fn info<'a>(reader: &mut Reader<'a>) -> Result<Event<'a>, PayloadError> {
    let mut event = InfoEvent::default();
    fields(reader, &["name"], |key, reader| match key {
        "name" => known!("name", event.name, reader.text()),
        "message" => known!("message", event.message, text_or_null(reader)),
        _ => Ok(None),
    })?;
    Ok(Event::Info(event))
}

fn error_frame<'a>(reader: &mut Reader<'a>) -> Result<Event<'a>, PayloadError> {
    let (mut error, mut message) = ("", None);
    fields(reader, &["error"], |key, reader| match key {
        "error" => known!("error", error, reader.text()),
        "message" => known!("message", message, text_or_null(reader)),
        _ => Ok(None),
    })?;
    Ok(Event::Error { error, message })
}
