//! At-identifiers, which name an account in a request: a DID or a handle.

use std::fmt;
use std::str::FromStr;

use super::{Did, DidError, Handle, HandleError};

/// A DID of a supported method, or a handle.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AtIdentifier {
    Did(Did),
    Handle(Handle),
}

/// Why text does not name an account. Text that begins with `did:` is checked as a DID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AtIdentifierError {
    #[error(transparent)]
    Did(DidError),
    #[error(transparent)]
    Handle(HandleError),
}

impl AtIdentifier {
    pub fn parse(text: &str) -> Result<AtIdentifier, AtIdentifierError> {
        if text.starts_with("did:") {
            return Did::parse(text)
                .map(AtIdentifier::Did)
                .map_err(AtIdentifierError::Did);
        }
        Handle::parse(text)
            .map(AtIdentifier::Handle)
            .map_err(AtIdentifierError::Handle)
    }

    pub fn as_str(&self) -> &str {
        match self {
            AtIdentifier::Did(did) => did.as_str(),
            AtIdentifier::Handle(handle) => handle.as_str(),
        }
    }
}

impl FromStr for AtIdentifier {
    type Err = AtIdentifierError;

    fn from_str(text: &str) -> Result<AtIdentifier, AtIdentifierError> {
        AtIdentifier::parse(text)
    }
}

impl fmt::Display for AtIdentifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
