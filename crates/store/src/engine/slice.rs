//! Bytes that came out of a table: shared, not copied, and cheap to clone.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Dereferences to `[u8]`.
#[derive(Clone)]
pub struct Slice(Kind);

#[derive(Clone)]
enum Kind {
    Shared(Arc<[u8]>),
    #[cfg(feature = "engine")]
    Engine(fjall::Slice),
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Shared(bytes) => bytes,
            #[cfg(feature = "engine")]
            Kind::Engine(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes)", self.len())
    }
}

impl From<Arc<[u8]>> for Slice {
    fn from(bytes: Arc<[u8]>) -> Slice {
        Slice(Kind::Shared(bytes))
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Slice {
        Slice(Kind::Shared(bytes.into()))
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Slice {
        Slice(Kind::Shared(bytes.into()))
    }
}

#[cfg(feature = "engine")]
impl From<fjall::Slice> for Slice {
    fn from(bytes: fjall::Slice) -> Slice {
        Slice(Kind::Engine(bytes))
    }
}
