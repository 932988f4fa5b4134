//! One message: whose event is it, and which number has it? No more than that is
//! read here; the desk reads the rest.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gapless_atp::frame::{self, Action, FrameError, RawOp};
use gapless_atp::limits;
use gapless_atp::syntax::Did;
use xxhash_rust::xxh3::xxh3_128;

use crate::admission::scope::Scope;
use crate::jetstream;

/// A frame as it was read, before the stream has looked at it.
pub struct Frame {
    pub bytes: Bytes,
    pub at: Instant,
    pub what: Kind,
}

pub enum Kind {
    /// Somebody's event.
    Event {
        seq: u64,
        did: Did,
        /// A collection that is looked for, and that something is written in.
        found: Option<Arc<str>>,
    },
    /// An event of a name that can be nobody's.
    Nobody {
        seq: u64,
        error: String,
    },
    /// Not even the DID, or the number, can be read.
    Unreadable {
        seq: Option<u64>,
        error: String,
    },
    Outdated,
    FutureCursor,
    /// The host says why it closes.
    Closing {
        error: String,
    },
    /// From the future, or of no interest.
    Ignored,
}

/// The beginning of a hash, to know the event again by.
pub fn tag(bytes: &[u8]) -> [u8; 16] {
    xxh3_128(bytes).to_be_bytes()
}

/// With what is looked for by collection, if anything is.
pub fn read_frame(bytes: Bytes, scope: &Scope) -> Frame {
    let what = kind_of(&bytes, scope);
    Frame {
        bytes,
        at: Instant::now(),
        what,
    }
}

/// The same of a message of a Jetstream.
pub fn read_line(bytes: Bytes, scope: &Scope) -> Frame {
    let what = jetstream::whose(&bytes, scope);
    Frame {
        bytes,
        at: Instant::now(),
        what,
    }
}

/// A message that is none of this wire.
pub fn unreadable(bytes: Bytes, error: &str) -> Frame {
    Frame {
        bytes,
        at: Instant::now(),
        what: Kind::Unreadable {
            seq: None,
            error: error.to_owned(),
        },
    }
}

fn kind_of(bytes: &[u8], scope: &Scope) -> Kind {
    let mut found = None;
    let (seq, name) = match frame::decode(bytes) {
        Ok(frame::Event::Commit(event)) => {
            if scope.is_narrow() {
                found = find(&event.ops, scope);
            }
            (event.seq, event.repo)
        }
        Ok(frame::Event::Sync(event)) => (event.seq, event.did),
        Ok(frame::Event::Identity(event)) => (event.seq, event.did),
        Ok(frame::Event::Account(event)) => (event.seq, event.did),
        Ok(frame::Event::Info(event)) => {
            return match event.name {
                "OutdatedCursor" => Kind::Outdated,
                _ => Kind::Ignored,
            };
        }
        Ok(frame::Event::Error { error, message }) => {
            return match error {
                "FutureCursor" => Kind::FutureCursor,
                other => Kind::Closing {
                    error: format!("the host says {other}: {}", message.unwrap_or("")),
                },
            };
        }
        Ok(frame::Event::Unknown { .. }) => return Kind::Ignored,
        Err(error) => return broken(error),
    };
    whose(seq, name, found)
}

/// The first collection that is looked for and that an operation writes in.
fn find(ops: &[RawOp<'_>], scope: &Scope) -> Option<Arc<str>> {
    let mut written = ops.iter().filter(|op| op.action != Action::Delete);
    let pattern = written.find_map(|op| scope.finds(op.path))?;
    Some(pattern.to_string().into())
}

fn whose(seq: u64, name: &str, found: Option<Arc<str>>) -> Kind {
    match Did::parse(name) {
        Ok(did) => Kind::Event { seq, did, found },
        Err(error) => Kind::Nobody {
            seq,
            error: error.to_string(),
        },
    }
}

/// What can still be told of a frame that cannot be read.
fn broken(error: FrameError) -> Kind {
    let FrameError::Payload { seq, repo, .. } = &error else {
        return Kind::Unreadable {
            seq: None,
            error: error.to_string(),
        };
    };
    match (seq, repo) {
        (Some(seq), Some(name)) if name.len() <= limits::DID_BYTES && Did::parse(name).is_ok() => {
            whose(*seq, name, None)
        }
        (seq, _) => Kind::Unreadable {
            seq: *seq,
            error: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gapless_core::filter::Pattern;

    #[test]
    fn nonsense_is_nobodys_and_never_panics() {
        assert!(matches!(
            kind_of(b"\xff\xff", &Scope::default()),
            Kind::Unreadable { seq: None, .. }
        ));
        let nothing = kind_of(b"", &Scope::default());
        assert!(matches!(nothing, Kind::Unreadable { seq: None, .. }));
        assert!(matches!(
            whose(3, "did:key:z6Mk", None),
            Kind::Nobody { seq: 3, .. }
        ));
    }

    #[test]
    fn who_writes_in_a_collection_is_found_and_who_deletes_is_not() {
        let scope = Scope {
            collections: Pattern::parse("com.example.*").into_iter().collect(),
            ..Scope::default()
        };
        let op = |action, path| RawOp {
            action,
            path,
            cid: None,
            prev: None,
        };
        let thing = "com.example.thing/1";
        let other = op(Action::Create, "app.bsky.feed.post/1");
        for (action, found) in [
            (Action::Create, Some("com.example.*")),
            (Action::Update, Some("com.example.*")),
            (Action::Delete, None),
        ] {
            let ops = [other.clone(), op(action, thing)];
            assert_eq!(find(&ops, &scope).as_deref(), found, "{action:?}");
        }
        assert_eq!(find(&[other], &scope), None);
    }
}
