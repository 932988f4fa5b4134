//! XRPC requests to a host: heads, account states and listings.
//!
//! Every call observes the host's rate limit and the pauses that the host asks for. An
//! error that names a state of the account is an answer, not a failure; every other
//! error is an [`AskError`] and says nothing about the account.

use std::fmt;
use std::time::Duration;

use gapless_atp::cid::Cid;
use gapless_atp::pick::Wanted;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{Account, NamedHead};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;
use url::Url;

use super::client::{
    MOST_REDIRECTS, Net, RequestLimits, Response, acquire_permit, apply_requested_pause, authority,
    parse,
};
use super::error::{AskClass, AskError, clean};
use super::guard::{BlockedAddress, Trust};

/// The limits of a request about one account.
const SMALL: RequestLimits = RequestLimits {
    total: Duration::from_secs(15),
    bytes: 64 * 1024,
};
/// The limits of a request for a page of a listing; a thousand entries have about 200 kB.
const PAGE: RequestLimits = RequestLimits {
    total: Duration::from_secs(60),
    bytes: 4_000_000,
};
/// The number of entries requested per page, the most that hosts return.
const PAGE_ENTRIES: &str = "1000";
/// The most entries accepted in a page, if a host sends more than requested. Many sweeps
/// run at once, and a page within its byte limit could have a million minimal entries.
const MOST_PAGE_ENTRIES: u32 = 10_000;
/// The longest cursor accepted; a cursor is sent back in a URL.
const CURSOR_BYTES: usize = 2048;

/// The URL of a host, and where that URL comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostAddress {
    /// `https://host` or `http://host:port`.
    pub url: String,
    pub trust: Trust,
}

impl HostAddress {
    pub fn configured(url: impl Into<String>) -> HostAddress {
        HostAddress {
            url: url.into(),
            trust: Trust::Configured,
        }
    }

    pub fn named(url: impl Into<String>) -> HostAddress {
        HostAddress {
            url: url.into(),
            trust: Trust::Named,
        }
    }

    /// The name of the host in messages, without credentials.
    pub(super) fn name(&self) -> String {
        parse(&self.url).map_or_else(|_| clean(&self.url), |url| authority(&url))
    }
}

/// A host's answer about a repository's head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatestAnswer {
    Head(NamedHead),
    /// The host does not serve the repository, because of this account state.
    State(Account),
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoListEntry {
    pub did: Did,
    pub rev: Option<Rev>,
    pub commit: Option<Cid>,
    /// The account's state; [`Account::Unknown`] if the status says nothing about the account itself.
    pub account: Account,
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoListPage {
    pub repos: Vec<RepoListEntry>,
    /// The cursor for the next page; `None` at the end.
    pub cursor: Option<String>,
    pub bytes: u64,
    /// The number of entries without a supported DID.
    pub skipped: u32,
}

/// Why a request was refused: because of the account's state, or for another reason.
#[derive(Debug)]
pub(super) enum Failure {
    State(Account),
    Ask(AskError),
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Failure {
        Failure::Ask(error)
    }
}

#[derive(Deserialize)]
struct LatestCommit {
    cid: String,
    rev: String,
}

#[derive(Deserialize)]
struct RepoStatus {
    did: Option<String>,
    active: bool,
    status: Option<String>,
}

#[derive(Deserialize)]
struct RepoList {
    repos: Entries,
    cursor: Option<String>,
}

/// The entries of a page, read one by one: the unused parts of an entry are dropped before
/// the next one is read.
#[derive(Default)]
struct Entries {
    repos: Vec<RepoListEntry>,
    skipped: u32,
}

/// The fields that are read of an entry.
const ENTRY: Wanted = Wanted::Fields(&[
    ("did", Wanted::Word),
    ("head", Wanted::Word),
    ("rev", Wanted::Word),
    ("active", Wanted::Word),
    ("status", Wanted::Word),
]);

#[derive(Deserialize, Default)]
#[serde(default)]
struct XrpcError {
    error: String,
    message: String,
}

impl Net {
    /// Fetches the head of a repository. If the host answers with an account state, this
    /// asks getRepoStatus as well, which is the most precise about states.
    pub async fn latest_commit(
        &self,
        host: &HostAddress,
        did: &Did,
    ) -> Result<LatestAnswer, AskError> {
        let query = [("did", did.as_str())];
        match self.ask(host, "getLatestCommit", &query, SMALL).await {
            Ok(answer) => read_latest(&host.name(), did, &answer.body).map(LatestAnswer::Head),
            Err(Failure::Ask(error)) => Err(error),
            Err(Failure::State(told)) => match self.repo_status(host, did).await? {
                Account::Active => {
                    let what = format!(
                        "the host contradicts itself about {did}: {told:?}, but active; \
                        Gapless asks again later"
                    );
                    Err(AskError::malformed(&host.name(), what))
                }
                state => Ok(LatestAnswer::State(state)),
            },
        }
    }

    /// Fetches the state of an account from its host.
    pub async fn repo_status(&self, host: &HostAddress, did: &Did) -> Result<Account, AskError> {
        let query = [("did", did.as_str())];
        match self.ask(host, "getRepoStatus", &query, SMALL).await {
            Ok(answer) => read_status(&host.name(), did, &answer.body),
            Err(Failure::State(state)) => Ok(state),
            Err(Failure::Ask(error)) => Err(error),
        }
    }

    /// Fetches one page of the host's repositories.
    pub async fn list_repos(
        &self,
        host: &HostAddress,
        cursor: Option<&str>,
    ) -> Result<RepoListPage, AskError> {
        let mut query = vec![("limit", PAGE_ENTRIES)];
        query.extend(cursor.map(|cursor| ("cursor", cursor)));
        match self.ask(host, "listRepos", &query, PAGE).await {
            Ok(answer) => read_page(&host.name(), cursor, &answer.body),
            Err(Failure::Ask(error)) => Err(error),
            Err(Failure::State(state)) => {
                let what = format!("listRepos was refused with an account state ({state:?})");
                Err(AskError::malformed(&host.name(), what))
            }
        }
    }

    /// Sends one request to a host, within its rate limit.
    pub(super) async fn ask(
        &self,
        host: &HostAddress,
        method: &str,
        query: &[(&str, &str)],
        limits: RequestLimits,
    ) -> Result<Response, Failure> {
        let url = self.method_url(host, method, query)?;
        let name = authority(&url);
        let _permit = acquire_permit(&self.0.hosts, &name).await?;
        let answer = self
            .get_url(url, host.trust, MOST_REDIRECTS, limits)
            .await?;
        apply_requested_pause(&self.0.hosts, &name, answer.status, answer.retry_after);
        match answer.status {
            200 => Ok(answer),
            _ => Err(refusal(&name, method, &answer)),
        }
    }

    /// The URL of a method, checked before the request waits for the rate limit.
    pub(super) fn method_url(
        &self,
        host: &HostAddress,
        method: &str,
        query: &[(&str, &str)],
    ) -> Result<Url, AskError> {
        let mut url = parse(&host.url)?;
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        if !bare || !url.has_host() {
            return Err(AskError::refused(&host.name(), &BlockedAddress::Unreadable));
        }
        self.check(&url, host.trust)?;
        url.set_path(&format!("/xrpc/com.atproto.sync.{method}"));
        url.query_pairs_mut().extend_pairs(query);
        Ok(url)
    }
}

/// Interprets a response whose status is not 200.
pub(super) fn refusal(host: &str, method: &str, answer: &Response) -> Failure {
    let status = answer.status;
    let told: XrpcError = serde_json::from_slice(&answer.body).unwrap_or_default();
    if matches!(status, 400 | 403 | 404 | 410)
        && let Some(state) = state_of(&told.error, &told.message)
    {
        return Failure::State(state);
    }
    let said = if told.error.is_empty() {
        clean(&String::from_utf8_lossy(&answer.body))
    } else {
        clean(&format!("{} {}", told.error, told.message))
    };
    let what = format!("{method} was answered with {status}: {said}");
    let error = AskError::new(AskClass::Http(status), host, what);
    Failure::Ask(error.after(answer.retry_after))
}

/// The account state that an error names. Some servers send only a general error name and
/// say in the message that the repository was not found.
fn state_of(error: &str, message: &str) -> Option<Account> {
    let unknown_repo = || {
        let message = message.to_ascii_lowercase();
        [
            "could not find repo",
            "repo not found",
            "repository not found",
        ]
        .iter()
        .any(|words| message.contains(words))
    };
    match error {
        "RepoTakendown" => Some(Account::Takendown),
        "RepoSuspended" => Some(Account::Suspended),
        "RepoDeactivated" => Some(Account::Deactivated),
        "RepoDeleted" => Some(Account::Deleted),
        "RepoNotFound" => Some(Account::NotFound),
        "NotFound" | "InvalidRequest" if unknown_repo() => Some(Account::NotFound),
        _ => None,
    }
}

/// The state that a status word names if the account is not active. `None` if the word is
/// about the host itself and not about the account.
fn inactive(word: Option<&str>) -> Option<Account> {
    match word {
        Some("suspended") => Some(Account::Suspended),
        Some("takendown") => Some(Account::Takendown),
        Some("deleted") => Some(Account::Deleted),
        Some("throttled" | "desynchronized") => None,
        // "deactivated", an unknown word, or none: the account is hidden and its data kept.
        _ => Some(Account::Deactivated),
    }
}

pub(super) fn read<'a, T: Deserialize<'a>>(
    host: &str,
    method: &str,
    body: &'a [u8],
) -> Result<T, AskError> {
    serde_json::from_slice(body).map_err(|error| {
        let what = format!("the response to {method} cannot be parsed: {error}");
        AskError::malformed(host, clean(&what))
    })
}

fn read_latest(host: &str, did: &Did, body: &[u8]) -> Result<NamedHead, AskError> {
    let told: LatestCommit = read(host, "getLatestCommit", body)?;
    let broken = |what: &dyn std::fmt::Display| {
        let what = format!("the head of {did} cannot be parsed: {what}");
        AskError::malformed(host, what)
    };
    Ok(NamedHead {
        rev: Rev::parse(&told.rev).map_err(|error| broken(&error))?,
        commit: told.cid.parse().map_err(|error| broken(&error))?,
    })
}

fn read_status(host: &str, did: &Did, body: &[u8]) -> Result<Account, AskError> {
    let told: RepoStatus = read(host, "getRepoStatus", body)?;
    if let Some(other) = told.did.filter(|other| other != did.as_str()) {
        let what = format!(
            "the response about the state of {did} is about {}",
            clean(&other)
        );
        return Err(AskError::malformed(host, what));
    }
    if told.active {
        return Ok(Account::Active);
    }
    inactive(told.status.as_deref()).ok_or_else(|| {
        let word = told.status.unwrap_or_default();
        let what = format!("it reports {did} as {word}, which says nothing about the account");
        AskError::malformed(host, what)
    })
}

fn read_page(host: &str, asked: Option<&str>, body: &[u8]) -> Result<RepoListPage, AskError> {
    let told: RepoList = read(host, "listRepos", body)?;
    Ok(RepoListPage {
        skipped: told.repos.skipped,
        repos: told.repos.repos,
        cursor: next_cursor(host, asked, told.cursor)?,
        bytes: body.len() as u64,
    })
}

/// The cursor of the next page, if there is one. Fails if the cursor does not advance or is too
/// long.
pub(super) fn next_cursor(
    host: &str,
    asked: Option<&str>,
    told: Option<String>,
) -> Result<Option<String>, AskError> {
    let cursor = told.filter(|cursor| !cursor.is_empty());
    if cursor.is_some() && cursor.as_deref() == asked {
        let what =
            "the listing does not end: a page returns the cursor with which it was requested";
        return Err(AskError::malformed(host, what));
    }
    if cursor
        .as_ref()
        .is_some_and(|cursor| cursor.len() > CURSOR_BYTES)
    {
        let what = format!("the listing has a cursor of more than {CURSOR_BYTES} bytes");
        return Err(AskError::malformed(host, what));
    }
    Ok(cursor)
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Entries, D::Error> {
        reader.deserialize_seq(EntryByEntry)
    }
}

struct EntryByEntry;

impl<'de> Visitor<'de> for EntryByEntry {
    type Value = Entries;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list of repositories")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Entries, A::Error> {
        let mut read = Entries::default();
        let mut left = MOST_PAGE_ENTRIES;
        while let Some(entry) = entries.next_element_seed(&ENTRY)? {
            left = left.checked_sub(1).ok_or_else(|| {
                let what = format_args!("the page has more than {MOST_PAGE_ENTRIES} entries");
                A::Error::custom(what)
            })?;
            match read_listed(&entry) {
                Some(listed) => read.repos.push(listed),
                None => read.skipped += 1,
            }
        }
        Ok(read)
    }
}

fn read_listed(entry: &Json) -> Option<RepoListEntry> {
    let text = |field: &str| entry.get(field).and_then(Json::as_str);
    let active = entry.get("active").and_then(Json::as_bool);
    let account = if active.unwrap_or(true) {
        Account::Active
    } else {
        inactive(text("status")).unwrap_or(Account::Unknown)
    };
    Some(RepoListEntry {
        did: Did::parse(text("did")?).ok()?,
        rev: text("rev").and_then(|rev| Rev::parse(rev).ok()),
        commit: text("head").and_then(|head| head.parse().ok()),
        account,
    })
}

#[cfg(test)]
mod tests;
