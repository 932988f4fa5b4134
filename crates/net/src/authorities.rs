//! Certificate authorities: those of the public web and those that the operator adds, for
//! a test network or for hosts of a private network.
//!
//! The caller reads the file and names it in its error; this module parses the PEM text
//! and builds the TLS configuration that every connection uses. A certificate that cannot
//! be used as an authority fails when it is parsed, not at the first connection.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// A certificate in DER.
pub type Certificate = CertificateDer<'static>;

/// Why a text has no usable certificate authorities.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificatesError {
    /// The certificate with this number, counted from 1, cannot be used.
    #[error("certificate {number} cannot be read: {reason}")]
    Unreadable { number: usize, reason: String },
    /// The text has no PEM section with a certificate.
    #[error("it contains no certificate")]
    Empty,
}

/// Parses the certificates of a PEM text and checks that each can be an authority.
pub fn parse_certificates(pem: &str) -> Result<Vec<Certificate>, CertificatesError> {
    let mut roots = rustls::RootCertStore::empty();
    let mut certificates = Vec::new();
    for found in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let number = certificates.len() + 1;
        let unreadable = |error: &dyn std::fmt::Display| CertificatesError::Unreadable {
            number,
            reason: error.to_string(),
        };
        let certificate = found.map_err(|error| unreadable(&error))?;
        roots
            .add(certificate.clone())
            .map_err(|error| unreadable(&error))?;
        certificates.push(certificate);
    }
    if certificates.is_empty() {
        return Err(CertificatesError::Empty);
    }
    Ok(certificates)
}

/// Builds the TLS configuration of a client that trusts the authorities of the public web
/// and these. The cryptography provider is always aws-lc-rs.
pub(crate) fn tls_config(
    authorities: &[Certificate],
) -> Result<rustls::ClientConfig, rustls::Error> {
    let mut roots = rustls::RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_read_or_refused_by_number() {
        let one = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["b.example".to_owned()]).unwrap();
        let both = format!("{}{}", one.cert.pem(), other.cert.pem());
        let read = parse_certificates(&both).unwrap();
        assert_eq!(read, [one.cert.der().clone(), other.cert.der().clone()]);
        assert!(tls_config(&read).is_ok());
        for text in ["", "nonsense\n"] {
            assert_eq!(parse_certificates(text), Err(CertificatesError::Empty));
        }
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let error = parse_certificates(&format!("{}{broken}", one.cert.pem())).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("certificate 2 cannot be read"), "{text}");
    }
}
