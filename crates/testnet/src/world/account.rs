//! Accounts, and what a host knows about each.

use std::collections::BTreeMap;
use std::sync::Arc;

use gapless_atp::crypto::SigningKey;
use gapless_atp::syntax::Did;
use serde::{Deserialize, Serialize};

use super::repo::Repo;
use crate::stream::{Draft, Feed};

/// How a host serves an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Active,
    Deactivated,
    Takendown,
    Suspended,
    Deleted,
}

impl Status {
    pub(crate) fn is_active(self) -> bool {
        self == Status::Active
    }

    /// The protocol's name of the state; `None` for active accounts.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Status::Active => None,
            Status::Deactivated => Some("deactivated"),
            Status::Takendown => Some("takendown"),
            Status::Suspended => Some("suspended"),
            Status::Deleted => Some("deleted"),
        }
    }

    /// The error with which a host refuses to serve the repository; `None` for active
    /// accounts.
    pub fn refusal(self) -> Option<&'static str> {
        match self {
            Status::Active => None,
            Status::Deactivated => Some("RepoDeactivated"),
            Status::Takendown => Some("RepoTakendown"),
            Status::Suspended => Some("RepoSuspended"),
            Status::Deleted => Some("RepoNotFound"),
        }
    }
}

/// An account: its identity and its keys.
#[derive(Clone)]
pub(crate) struct Account {
    pub did: Did,
    pub handle: String,
    /// The index of the host that the DID document names.
    pub host: usize,
    pub signing: SigningKey,
    /// The signing key before this one.
    pub former: Option<SigningKey>,
    pub rotation: SigningKey,
    /// Every signing key that the account has had, as did:key, the present one last.
    pub keys: Vec<String>,
}

/// A host's copy of an account.
#[derive(Debug, Clone)]
pub(crate) struct Hosted {
    pub status: Status,
    pub repo: Repo,
}

/// An event that is held back until the account's next event has been sent.
#[derive(Debug)]
pub(crate) struct Held {
    pub seq: u64,
    pub draft: Draft,
}

/// One PDS.
pub(crate) struct Host {
    pub url: String,
    /// `localhost:port`, as relays list the host.
    pub hostname: String,
    pub feed: Arc<Feed>,
    pub accounts: BTreeMap<Did, Hosted>,
    /// The last copies of deleted accounts, which an operator may restore.
    pub deleted: BTreeMap<Did, Hosted>,
    /// The accounts in order of arrival, as listRepos shows them.
    pub order: BTreeMap<u64, Did>,
    next_number: u64,
    pub held: BTreeMap<Did, Held>,
}

impl Host {
    pub(crate) fn new(port: u16, window_events: usize, buffer_events: u64) -> Host {
        Host {
            url: format!("http://localhost:{port}"),
            hostname: format!("localhost:{port}"),
            feed: Arc::new(Feed::new(window_events, buffer_events)),
            accounts: BTreeMap::new(),
            deleted: BTreeMap::new(),
            order: BTreeMap::new(),
            next_number: 1,
            held: BTreeMap::new(),
        }
    }

    pub(crate) fn put(&mut self, did: &Did, hosted: Hosted) {
        if self.accounts.insert(did.clone(), hosted).is_none() {
            self.order.insert(self.next_number, did.clone());
            self.next_number += 1;
        }
    }

    pub(crate) fn remove(&mut self, did: &Did) -> Option<Hosted> {
        self.order.retain(|_, other| other != did);
        self.accounts.remove(did)
    }
}
