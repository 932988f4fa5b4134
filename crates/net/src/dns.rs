//! Resolves handles by the DNS: reads the TXT records of `_atproto.HANDLE` that begin with
//! `did=`, by UDP, or by TCP if an answer does not fit.
//!
//! Every lookup is bounded to four seconds; nothing is cached here. Records without a DID
//! are ignored, and records that name different DIDs are an error. If no name server is
//! known, or none answers, the lookup fails, and the caller continues without the DNS.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use gapless_atp::syntax::{Did, Handle};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;

/// The label before a handle, at which its records are.
const RECORD_LABEL: &str = "_atproto.";
/// The prefix of a record that names a DID.
const DID_PREFIX: &[u8] = b"did=";
/// The timeout of one query to one name server, and how often it is retried.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
const TRIES_MORE: usize = 1;
/// The timeout of all queries together; the caller then tries another way.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(4);

/// The name servers to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameServer {
    /// The name servers of this machine.
    #[default]
    System,
    /// No name server.
    Off,
    /// The name server at this address.
    At(SocketAddr),
}

/// Describes the accepted values for the configuration's errors and help.
pub const NAME_SERVER: &str = "system, off, or the address of a name server such as 192.0.2.1:53";

impl NameServer {
    pub fn parse(text: &str) -> Option<NameServer> {
        match text {
            "system" => Some(NameServer::System),
            "off" => Some(NameServer::Off),
            address => address.parse().ok().map(NameServer::At),
        }
    }
}

impl fmt::Display for NameServer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameServer::System => to.write_str("system"),
            NameServer::Off => to.write_str("off"),
            NameServer::At(address) => address.fmt(to),
        }
    }
}

/// Why the DNS lookup of a handle failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DnsLookupError {
    #[error("its DNS records name different DIDs, so none of them is used")]
    Contradicting,
    #[error("the DNS gave no answer: {0}")]
    Failed(String),
}

/// Looks up handles at name servers.
pub struct HandleRecords(NameServers);

enum NameServers {
    Off,
    /// No name server is known, and why.
    Unavailable(String),
    Servers(Box<TokioResolver>),
}

impl HandleRecords {
    pub fn new(server: NameServer) -> HandleRecords {
        let resolver = match server {
            NameServer::Off => return HandleRecords(NameServers::Off),
            NameServer::System => TokioResolver::builder_tokio(),
            NameServer::At(address) => {
                let mut one = NameServerConfig::udp_and_tcp(address.ip());
                for connection in &mut one.connections {
                    connection.port = address.port();
                }
                let config = ResolverConfig::from_name_servers(vec![one]);
                let provider = TokioRuntimeProvider::default();
                Ok(TokioResolver::builder_with_config(config, provider))
            }
        };
        let resolver = resolver.and_then(|mut builder| {
            let options = builder.options_mut();
            options.timeout = QUERY_TIMEOUT;
            options.attempts = TRIES_MORE;
            options.edns0 = true;
            // The caller caches the combined result of DNS and HTTP.
            options.cache_size = 0;
            options.use_hosts_file = ResolveHosts::Never;
            builder.build()
        });
        HandleRecords(match resolver {
            Ok(resolver) => NameServers::Servers(Box::new(resolver)),
            Err(error) => NameServers::Unavailable(error.to_string()),
        })
    }

    /// The DID that the records of a handle name; `None` if they name none.
    pub async fn did_of(&self, handle: &Handle) -> Result<Option<Did>, DnsLookupError> {
        let resolver = match &self.0 {
            NameServers::Off => return Ok(None),
            NameServers::Unavailable(why) => return Err(DnsLookupError::Failed(why.clone())),
            NameServers::Servers(resolver) => resolver,
        };
        // The final dot keeps the resolver from appending a search domain.
        let asked = resolver.txt_lookup(format!("{RECORD_LABEL}{handle}."));
        let found = match tokio::time::timeout(LOOKUP_TIMEOUT, asked).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) if error.is_no_records_found() => return Ok(None),
            Ok(Err(error)) => return Err(DnsLookupError::Failed(error.to_string())),
            Err(_) => {
                return Err(DnsLookupError::Failed(format!(
                    "none within {LOOKUP_TIMEOUT:?}"
                )));
            }
        };
        let texts = found
            .answers()
            .iter()
            .filter_map(|record| match &record.data {
                RData::TXT(text) => Some(text.txt_data.concat()),
                _ => None,
            });
        named(texts)
    }
}

/// The one DID that these records name.
fn named(texts: impl Iterator<Item = Vec<u8>>) -> Result<Option<Did>, DnsLookupError> {
    let mut found: Option<Did> = None;
    for text in texts {
        let Some(did) = text.strip_prefix(DID_PREFIX) else {
            continue;
        };
        let did = std::str::from_utf8(did).ok();
        let Some(did) = did.and_then(|did| Did::parse(did).ok()) else {
            continue;
        };
        if found.as_ref().is_some_and(|other| *other != did) {
            return Err(DnsLookupError::Contradicting);
        }
        found = Some(did);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(texts: &[&str]) -> Result<Option<String>, DnsLookupError> {
        let texts = texts.iter().map(|text| text.as_bytes().to_vec());
        named(texts).map(|did| did.map(|did| did.to_string()))
    }

    #[test]
    fn dns_records_name_exactly_one_did_or_none() {
        const ONE: &str = "did=did:plc:aaaaaaaaaaaaaaaaaaaaaaaa";
        const OTHER: &str = "did=did:web:example.com";
        let one = Ok(Some(ONE.replacen("did=", "", 1)));
        assert_eq!(said(&[ONE]), one);
        assert_eq!(said(&["v=spf1 -all", "did=", "did=alice", ONE]), one);
        assert_eq!(said(&[ONE, ONE]), one, "the same twice contradicts nobody");
        assert_eq!(said(&[ONE, OTHER]), Err(DnsLookupError::Contradicting));
        assert_eq!(said(&[]), Ok(None));
        assert_eq!(said(&["did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"]), Ok(None));
    }

    #[test]
    fn a_name_server_is_written_as_it_is_read() {
        for text in ["system", "off", "192.0.2.1:53", "[2001:db8::1]:5353"] {
            let read = NameServer::parse(text).expect("it is one");
            assert_eq!(read.to_string(), text);
        }
        for text in ["", "on", "192.0.2.1", "dns.example.com:53"] {
            assert_eq!(NameServer::parse(text), None, "{text}");
        }
    }
}
