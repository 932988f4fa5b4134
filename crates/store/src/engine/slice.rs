//! The bytes of a key or value: shared and cheap to clone. With the engine on disk
//! they are the engine's own type, so that a row is copied once when it is written
//! and never when it is read.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;

/// The type that holds the bytes.
#[cfg(feature = "engine")]
type Backing = fjall::Slice;
#[cfg(not(feature = "engine"))]
type Backing = std::sync::Arc<[u8]>;

/// Shared bytes that dereference to `[u8]` and compare like it.
#[derive(Clone)]
pub struct Slice(Backing);

impl Slice {
    #[cfg(feature = "engine")]
    pub(super) fn backing(&self) -> Backing {
        self.0.clone()
    }
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Slice {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Slice {
    fn eq(&self, other: &Slice) -> bool {
        **self == **other
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    fn partial_cmp(&self, other: &Slice) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    fn cmp(&self, other: &Slice) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.iter().take(24) {
            if byte.is_ascii_graphic() {
                write!(f, "{}", char::from(*byte))?
            } else {
                write!(f, "\\x{byte:02x}")?
            }
        }
        match self.len() {
            0..=24 => Ok(()),
            length => write!(f, "… ({length} bytes)"),
        }
    }
}

impl From<Backing> for Slice {
    fn from(bytes: Backing) -> Slice {
        Slice(bytes)
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Slice {
        Slice(bytes.into())
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Slice {
        Slice(bytes.into())
    }
}

impl From<&str> for Slice {
    fn from(text: &str) -> Slice {
        text.as_bytes().into()
    }
}

impl<const N: usize> From<[u8; N]> for Slice {
    fn from(bytes: [u8; N]) -> Slice {
        bytes.as_slice().into()
    }
}
