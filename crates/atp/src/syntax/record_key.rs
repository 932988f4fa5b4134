//! Record keys: the names of records within a collection, 1 to 512 bytes.

use std::sync::Arc;

use super::Excerpt;
use crate::limits::RECORD_KEY_BYTES;

/// A record key. Clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey(Arc<str>);

/// Why text is not a record key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} is not a record key: {fault}")]
pub struct RecordKeyError {
    pub fault: RecordKeyFault,
    pub given: Excerpt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordKeyFault {
    #[error("it is empty")]
    Empty,
    #[error("it is longer than {RECORD_KEY_BYTES} bytes")]
    TooLong,
    #[error("only letters, digits and . - _ : ~ are allowed")]
    Character,
    #[error("a single or double dot is not allowed")]
    Dots,
}

/// Checks that text is a record key.
pub fn validate(text: &str) -> Result<(), RecordKeyError> {
    check(text.as_bytes()).map_err(|fault| RecordKeyError {
        fault,
        given: Excerpt::of(text),
    })
}

pub(super) fn check(text: &[u8]) -> Result<(), RecordKeyFault> {
    if text.is_empty() {
        return Err(RecordKeyFault::Empty);
    }
    if text.len() > RECORD_KEY_BYTES {
        return Err(RecordKeyFault::TooLong);
    }
    let legal = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'~')
    };
    if !text.iter().all(legal) {
        return Err(RecordKeyFault::Character);
    }
    if text == b"." || text == b".." {
        return Err(RecordKeyFault::Dots);
    }
    Ok(())
}

impl RecordKey {
    pub fn parse(text: &str) -> Result<RecordKey, RecordKeyError> {
        validate(text)?;
        Ok(RecordKey(text.into()))
    }
}

text_name!(RecordKey, RecordKeyError);
