//! Accounts, and what a host knows about them.

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
    pub fn is_active(self) -> bool {
        self == Status::Active
    }

    /// The protocol's word; active accounts have none.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Status::Active => None,
            Status::Deactivated => Some("deactivated"),
            Status::Takendown => Some("takendown"),
            Status::Suspended => Some("suspended"),
            Status::Deleted => Some("deleted"),
        }
    }

    /// The error with which a host refuses to serve the repository.
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

/// Who an account is.
#[derive(Clone)]
pub struct Account {
    pub did: Did,
    pub handle: String,
    /// The host that its DID document names.
    pub host: usize,
    pub signing: SigningKey,
    /// The key that signed before this one.
    pub former: Option<SigningKey>,
    pub rotation: SigningKey,
    /// Every signing key it has had, as did:key, the present one last.
    pub keys: Vec<String>,
}

/// A host's copy of an account.
#[derive(Debug, Clone)]
pub struct Hosted {
    pub status: Status,
    pub repo: Repo,
}

/// An event that waits for the account's next one, to be sent after it.
#[derive(Debug)]
pub struct Held {
    pub seq: u64,
    pub draft: Draft,
}

/// One PDS.
pub struct Host {
    pub url: String,
    /// `localhost:port`, as relays list it.
    pub hostname: String,
    pub feed: Arc<Feed>,
    pub accounts: BTreeMap<Did, Hosted>,
    /// Deleted ones, as they were: an operator may bring them back.
    pub deleted: BTreeMap<Did, Hosted>,
    /// By order of arrival, as listRepos has it.
    pub order: BTreeMap<u64, Did>,
    next_number: u64,
    pub held: BTreeMap<Did, Held>,
}

impl Host {
    pub fn new(port: u16, window_events: usize, buffer_events: u64) -> Host {
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

    pub fn put(&mut self, did: &Did, hosted: Hosted) {
        if self.accounts.insert(did.clone(), hosted).is_none() {
            self.order.insert(self.next_number, did.clone());
            self.next_number += 1;
        }
    }

    pub fn remove(&mut self, did: &Did) -> Option<Hosted> {
        self.order.retain(|_, other| other != did);
        self.accounts.remove(did)
    }
}
