//! Certificate authorities that an operator trusts beside the world's: of a test
//! network, or of hosts in a network of their own.

use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::error::ConfigError;
use super::raw::read_text;

/// Bytes of a file of certificates; the world's have a fifth of it.
const MAX_BYTES: u64 = 1 << 20;

/// Certificates in a file, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorities {
    pub file: PathBuf,
    pub certificates: Vec<CertificateDer<'static>>,
}

impl Authorities {
    /// Reads a file with certificates in PEM.
    pub fn read(file: &Path) -> Result<Authorities, ConfigError> {
        let text = read_text("the file of certificates", file, MAX_BYTES)?;
        let unusable = |why: String| ConfigError::Certificates {
            path: file.to_owned(),
            why,
        };
        let mut roots = rustls::RootCertStore::empty();
        let mut certificates = Vec::new();
        for found in CertificateDer::pem_slice_iter(text.as_bytes()) {
            let number = certificates.len() + 1;
            let wrong = |error: &dyn std::fmt::Display| {
                unusable(format!("certificate {number} cannot be read: {error}"))
            };
            let certificate = found.map_err(|error| wrong(&error))?;
            roots
                .add(certificate.clone())
                .map_err(|error| wrong(&error))?;
            certificates.push(certificate);
        }
        if certificates.is_empty() {
            return Err(unusable("there is none in it".to_owned()));
        }
        Ok(Authorities {
            file: file.to_owned(),
            certificates,
        })
    }
}
