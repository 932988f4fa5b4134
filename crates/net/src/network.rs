//! Listings of the network: the hosts that a relay knows, and the repositories with records
//! in a collection. The listings are only claims; the caller asks the hosts and the
//! directory themselves.

use std::fmt;
use std::time::Duration;

use gapless_atp::pick::Wanted;
use gapless_atp::syntax::Did;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;
use url::{Host, Url};

use super::client::{Net, RequestLimits};
use super::error::{AskClass, AskError};
use super::guard::{BlockedAddress, check_url};
use super::xrpc::{Failure, HostAddress, next_cursor, read};

/// The limits of a request for a page.
const PAGE: RequestLimits = RequestLimits {
    total: Duration::from_secs(60),
    bytes: 4_000_000,
};
/// The number of entries requested per page, the most that the methods allow.
const HOST_ENTRIES: &str = "1000";
const REPO_ENTRIES: &str = "2000";
/// The most entries accepted in a page, if a server sends more than requested.
const MOST_ENTRIES: usize = 10_000;
/// The most bytes in a host's name with its port.
const MOST_HOST_LETTERS: usize = 262;

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamesPage<T> {
    pub names: Vec<T>,
    /// The cursor for the next page; `None` at the end.
    pub cursor: Option<String>,
    /// The number of entries without a usable name.
    pub skipped: u64,
}

#[derive(Deserialize)]
struct HostList {
    hosts: Hostnames,
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct CollectionRepoList {
    repos: Names,
    cursor: Option<String>,
}

#[derive(Default)]
struct Hostnames(FieldValues);

#[derive(Default)]
struct Names(FieldValues);

/// The values of one field of all entries.
#[derive(Default)]
struct FieldValues {
    words: Vec<String>,
    skipped: u64,
}

const HOST_ENTRY: Wanted = Wanted::Fields(&[("hostname", Wanted::Word)]);
const REPO_ENTRY: Wanted = Wanted::Fields(&[("did", Wanted::Word)]);

impl Net {
    /// Fetches one page of the hosts that a relay knows, as URLs in the form of DID documents.
    /// Hosts that the guard refuses are left out and counted as skipped.
    pub async fn list_hosts(
        &self,
        relay: &HostAddress,
        cursor: Option<&str>,
    ) -> Result<NamesPage<String>, AskError> {
        let mut query = vec![("limit", HOST_ENTRIES)];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let method = "listHosts";
        let answer = self.ask(relay, method, &query, PAGE).await;
        let answer = answer.map_err(|failure| plain(relay, method, failure))?;
        let told: HostList = read(&relay.name(), method, &answer.body)?;
        let FieldValues { words, skipped } = told.hosts.0;
        let all = words.len() as u64;
        let names: Vec<String> = words
            .iter()
            .filter_map(|word| self.host_named(word).ok())
            .collect();
        Ok(NamesPage {
            skipped: skipped + all - names.len() as u64,
            names,
            cursor: next_cursor(&relay.name(), cursor, told.cursor)?,
        })
    }

    /// Fetches one page of the repositories with records in a collection. Returns `None` if the
    /// server does not offer the method.
    pub async fn list_by_collection(
        &self,
        source: &HostAddress,
        collection: &str,
        cursor: Option<&str>,
    ) -> Result<Option<NamesPage<Did>>, AskError> {
        let mut query = vec![("collection", collection), ("limit", REPO_ENTRIES)];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        let method = "listReposByCollection";
        let answer = match self.ask(source, method, &query, PAGE).await {
            Ok(answer) => answer,
            Err(Failure::Ask(error)) if is_not_offered(&error) => return Ok(None),
            Err(failure) => return Err(plain(source, method, failure)),
        };
        let told: CollectionRepoList = read(&source.name(), method, &answer.body)?;
        let FieldValues { words, skipped } = told.repos.0;
        let all = words.len() as u64;
        let names: Vec<Did> = words
            .iter()
            .filter_map(|did| Did::parse(did).ok())
            .collect();
        Ok(Some(NamesPage {
            skipped: skipped + all - names.len() as u64,
            names,
            cursor: next_cursor(&source.name(), cursor, told.cursor)?,
        }))
    }

    /// Converts a host name to a URL in the form of DID documents. Fails if the guard refuses the
    /// host.
    pub fn host_named(&self, name: &str) -> Result<String, BlockedAddress> {
        if name.is_empty() || name.len() > MOST_HOST_LETTERS || name.contains(['/', '@', '?', '#'])
        {
            return Err(BlockedAddress::Unreadable);
        }
        let url = Url::parse(&format!("https://{name}")).map_err(|_| BlockedAddress::Unreadable)?;
        // Only private networks have local hosts, and those hosts have no certificates.
        let local = match url.host() {
            None => return Err(BlockedAddress::Unreadable),
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(Host::Ipv4(_) | Host::Ipv6(_)) => true,
        };
        let scheme = if local && self.0.allow_private {
            "http"
        } else {
            "https"
        };
        let host = url.host_str().unwrap_or_default();
        let name = match url.port() {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        };
        self.may_be_named(&name)?;
        Ok(name)
    }

    /// Checks whether others may name this URL of a host.
    pub fn may_be_named(&self, url: &str) -> Result<(), BlockedAddress> {
        let url = Url::parse(url).map_err(|_| BlockedAddress::Unreadable)?;
        check_url(&url, self.0.allow_private)
    }
}

/// Whether the status says that the server does not offer the method.
fn is_not_offered(error: &AskError) -> bool {
    matches!(error.class, AskClass::Http(404 | 405 | 501))
}

fn plain(server: &HostAddress, method: &str, failure: Failure) -> AskError {
    match failure {
        Failure::Ask(error) => error,
        Failure::State(state) => {
            let what = format!("{method} was refused with an account state ({state:?})");
            AskError::malformed(&server.name(), what)
        }
    }
}

impl<'de> Deserialize<'de> for Hostnames {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Hostnames, D::Error> {
        let words = WordByWord("hostname", &HOST_ENTRY);
        reader.deserialize_seq(words).map(Hostnames)
    }
}

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Names, D::Error> {
        let words = WordByWord("did", &REPO_ENTRY);
        reader.deserialize_seq(words).map(Names)
    }
}

struct WordByWord(&'static str, &'static Wanted);

impl<'de> Visitor<'de> for WordByWord {
    type Value = FieldValues;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "a list of entries with a {}", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<FieldValues, A::Error> {
        let mut found = FieldValues::default();
        while let Some(entry) = entries.next_element_seed(self.1)? {
            if found.words.len() as u64 + found.skipped >= MOST_ENTRIES as u64 {
                let what = format_args!("the page has more than {MOST_ENTRIES} entries");
                return Err(A::Error::custom(what));
            }
            match entry.get(self.0).and_then(Json::as_str) {
                Some(word) => found.words.push(word.to_owned()),
                None => found.skipped += 1,
            }
        }
        Ok(found)
    }
}
