//! Which upstreams are followed: those of the configuration, those that were
//! added while running, and the hosts of tracked repositories.
//!
//! | module | what it does |
//! |---|---|
//! | `resume` | at the start: what is named, and what was added before |
//! | `change` | one more is followed, or one no longer |
//! | `unreached` | a host that never answered is forgotten when it is left |
//! | `tracked` | the hosts of tracked repositories: followed while one lives there |
//! | `running` | the task that follows: started, started again, ended |

mod change;
mod resume;
mod running;
mod tracked;
mod unreached;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use gapless_core::ledger::{Followed, HostId, Kind, UpstreamId};
use gapless_store::error::StoreError;
use tokio::task::JoinHandle;

use crate::ingest::desk::Desks;
use crate::ingest::link::Link;
use crate::net::Net;
use crate::shared::Shared;

pub(super) use running::end_all;

/// One upstream that is followed.
struct Followee {
    url: String,
    kind: Kind,
    host: Option<HostId>,
    /// The host's name in DID documents.
    host_name: Option<String>,
    followed: Followed,
    link: Arc<Mutex<Link>>,
    task: JoinHandle<()>,
}

pub struct Following {
    shared: Arc<Shared>,
    desks: Arc<Desks>,
    net: Net,
    followees: Mutex<BTreeMap<UpstreamId, Followee>>,
    /// One change of what is followed at a time.
    changing: tokio::sync::Mutex<()>,
    runtime: tokio::runtime::Handle,
}

/// Why an upstream was not added or removed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("{0} is followed already")]
    Already(String),
    #[error("the host {0} is followed already, by {1}")]
    SameHost(String, String),
    #[error("{0} is followed as a {1} already; one address is one or the other: remove it first")]
    OtherKind(String, &'static str),
    #[error("{0} is not followed")]
    NotFollowed(String),
    #[error(
        "{0} is followed for tracked repositories; it is left when the last of them is: gapless track remove DID"
    )]
    ForTracked(String),
    #[error(
        "{0} is followed as a host of the network, like all others; without --follow hosts it is not"
    )]
    Discovered(String),
    #[error(
        "only what collections find is wanted of relays; name {0} in the configuration, and start again"
    )]
    Narrow(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The name of a host as DID documents would give it.
pub fn host_name(url: &str, host: Option<&str>) -> String {
    match host {
        None => url.to_owned(),
        Some(host) if host.contains("://") => host.trim_end_matches('/').to_owned(),
        Some(host) => format!("https://{host}"),
    }
}

impl Following {
    pub fn new(shared: Arc<Shared>, desks: Arc<Desks>, net: Net) -> Following {
        Following {
            shared,
            desks,
            net,
            followees: Mutex::default(),
            changing: tokio::sync::Mutex::new(()),
            runtime: tokio::runtime::Handle::current(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<UpstreamId, Followee>> {
        // Nothing in here can panic half way.
        self.followees
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub fn link(&self, id: UpstreamId) -> Option<Link> {
        let followees = self.lock();
        let link = followees.get(&id)?.link.lock();
        Some(link.unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Whether a host has a stream of its own, and how many such streams are followed
    /// because they were discovered.
    pub fn streams(&self) -> (HashSet<HostId>, usize) {
        let followees = self.lock();
        let whole = followees.values().filter(|one| one.followed.reads_all());
        let hosts = whole.filter_map(|one| one.host).collect();
        let found = followees
            .values()
            .filter(|one| one.followed == Followed::Discovered);
        (hosts, found.count())
    }
}
