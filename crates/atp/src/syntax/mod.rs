//! The names of the AT Protocol: identities, handles, collections, record keys, addresses
//! and times.
//!
//! Each type holds text that was checked once. Checking allocates nothing, not even for
//! the error (which quotes the beginning of the text), so it may run for every operation
//! of the live stream. The free `validate` functions check borrowed text; `parse` also
//! keeps a copy that is cheap to clone. Every length has a limit in [`crate::limits`].

/// Implements what all names that are plain text share: `FromStr`, `Display`, and lookup
/// in maps by `&str`.
macro_rules! text_name {
    ($name:ident, $error:ident) => {
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<$name, $error> {
                $name::parse(text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

mod at_identifier;
mod at_uri;
pub mod did;
mod domain;
mod excerpt;
pub mod handle;
pub mod nsid;
pub mod path;
pub mod record_key;
mod tid;

pub use at_identifier::{AtIdentifier, AtIdentifierError};
pub use at_uri::{AtUri, AtUriError, AtUriFault};
pub use did::{Did, DidError, DidFault, DidMethod};
pub use domain::LabelFault;
pub use excerpt::Excerpt;
pub use handle::{Handle, HandleError, HandleFault};
pub use nsid::{Nsid, NsidError, NsidFault};
pub use path::{PathError, PathFault, split_path, split_path_bytes};
pub use record_key::{RecordKey, RecordKeyError, RecordKeyFault};
pub use tid::{Rev, Tid, TidError, TidFault};

pub(crate) use domain::{check_domain, ends_in_top_level};

#[cfg(test)]
mod tests;
