//! The envelope of a frame: the number of its event and the DID it is about, without the
//! rest of the payload.
//!
//! The reader of a stream needs no more to give an event its place and its desk, and the
//! desk decodes the frame once. [`envelope()`] answers only where it agrees with
//! [`decode()`](super::decode()): if the frame decodes, number and DID are those of the
//! event, and if the payload turns out to be broken, they are those that
//! [`FrameError::Payload`](super::FrameError::Payload) reports. Every other frame has no
//! envelope and must be decoded to know what it is.

use crate::cbor::Reader;
use crate::syntax::Did;

use super::decode::{header, seq};

/// The number of an event and the repository it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub seq: u64,
    pub did: Did,
}

/// Reads the envelope of a `#commit`, `#sync`, `#identity` or `#account` frame.
pub fn envelope(message: &[u8]) -> Option<Envelope> {
    let (op, kind, mut payload) = header(message).ok()?;
    let (name, other) = match (op, kind?) {
        (1, "#commit") => ("repo", "did"),
        (1, "#sync" | "#identity" | "#account") => ("did", "repo"),
        _ => return None,
    };
    fields(&mut payload, name, other)
}

/// Reads up to the number and the DID. A field called `other` ahead of the DID would be
/// taken for the DID if the payload is broken, so such a frame has no envelope.
fn fields(payload: &mut Reader<'_>, name: &str, other: &str) -> Option<Envelope> {
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
