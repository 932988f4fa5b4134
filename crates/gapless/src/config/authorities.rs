//! The file of certificate authorities that the operator trusts in addition to the
//! built-in ones: those of a test network, or of hosts in a private network.

use std::path::{Path, PathBuf};

use gapless_net::{Certificate, parse_certificates};

use super::error::ConfigError;
use super::raw::read_text;

/// Bytes of a file of certificates. All authorities of the public web take a fifth of it.
const MAX_BYTES: u64 = 1 << 20;

/// The certificates of a file, and the path of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities {
    pub file: PathBuf,
    pub certificates: Vec<Certificate>,
}

impl Authorities {
    /// Reads a file with certificates in PEM.
    pub fn read(file: &Path) -> Result<Authorities, ConfigError> {
        let text = read_text("the file of certificates", file, MAX_BYTES)?;
        let certificates =
            parse_certificates(&text).map_err(|error| ConfigError::Certificates {
                path: file.to_owned(),
                why: error.to_string(),
            })?;
        Ok(Authorities {
            file: file.to_owned(),
            certificates,
        })
    }
}
