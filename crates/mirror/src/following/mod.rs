//! The upstreams that are followed: upstreams of the configuration, upstreams that an
//! operator added while running, hosts of the network, and hosts of tracked repositories.
//!
//! | module | what it does |
//! |---|---|
//! | `resume` | at the start: follows what is configured, and what was added before |
//! | `change` | follows one more upstream, or one less |
//! | `forget_hosts` | forgets a host that never answered once it is not followed |
//! | `tracked_hosts` | follows the hosts of tracked repositories while one lives there |
//! | `task` | the task that follows one upstream: starts, restarts and ends it |

mod change;
mod forget_hosts;
mod resume;
mod task;
mod tracked_hosts;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use gapless_core::ledger::{FollowReason, HostId, UpstreamId, UpstreamKind};
use gapless_store::error::StoreError;
use tokio::task::JoinHandle;

use crate::api::ApiError;
use crate::desk::Desks;
use crate::services::Services;
use crate::upstreams::connection::ConnectionState;
use gapless_net::Net;
use gapless_store::sync::Mutex;

pub(crate) use task::end_all;

/// One upstream that is followed.
struct Followee {
    url: String,
    kind: UpstreamKind,
    host: Option<HostId>,
    /// The host's name in DID documents.
    host_name: Option<String>,
    followed: FollowReason,
    connection: Arc<Mutex<ConnectionState>>,
    task: JoinHandle<()>,
}

/// The upstreams that are followed, each with its task.
pub struct Following {
    services: Arc<Services>,
    desks: Arc<Desks>,
    net: Net,
    followees: Mutex<BTreeMap<UpstreamId, Followee>>,
    /// Serializes changes of what is followed.
    changing: tokio::sync::Mutex<()>,
    runtime: tokio::runtime::Handle,
}

/// Why an upstream was not added or removed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    #[error("{0} is already followed")]
    Already(String),
    #[error("the host of {0} is already followed by {1}")]
    SameHost(String, String),
    #[error("{0} is already followed as a {1}; an address has one kind: remove the upstream first")]
    OtherKind(String, &'static str),
    #[error("{0} is not followed")]
    NotFollowed(String),
    #[error(
        "{0} is followed for tracked repositories until the last of them is removed: gapless track remove DID"
    )]
    ForTracked(String),
    #[error("{0} is followed as a host of the network; start without --follow hosts to stop that")]
    Discovered(String),
    #[error(
        "relays are read only for collections (discover.collections); add {0} to the configuration and restart"
    )]
    Narrow(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<FollowError> for ApiError {
    fn from(error: FollowError) -> ApiError {
        match error {
            FollowError::Store(error) => error.into(),
            FollowError::NotFollowed(_) => ApiError::NotFound(error.to_string()),
            FollowError::Already(_)
            | FollowError::SameHost(..)
            | FollowError::OtherKind(..)
            | FollowError::ForTracked(_)
            | FollowError::Discovered(_)
            | FollowError::Narrow(_) => ApiError::Conflict(error.to_string()),
        }
    }
}

/// The name of a host as DID documents would give it.
pub(crate) fn host_name(url: &str, host: Option<&str>) -> String {
    match host {
        None => url.to_owned(),
        Some(host) if host.contains("://") => host.trim_end_matches('/').to_owned(),
        Some(host) => format!("https://{host}"),
    }
}

impl Following {
    pub fn new(services: Arc<Services>, desks: Arc<Desks>, net: Net) -> Following {
        Following {
            services,
            desks,
            net,
            followees: Mutex::default(),
            changing: tokio::sync::Mutex::new(()),
            runtime: tokio::runtime::Handle::current(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<UpstreamId, Followee>> {
        self.followees.lock()
    }

    /// Whether nothing is followed.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The state of the connection to an upstream.
    pub fn connection(&self, id: UpstreamId) -> Option<ConnectionState> {
        let followees = self.lock();
        let connection = followees.get(&id)?.connection.lock();
        Some(connection.clone())
    }

    /// The hosts with a stream of their own that is read for all repositories, and the number
    /// of streams that discovery added.
    pub fn streams(&self) -> (HashSet<HostId>, usize) {
        let followees = self.lock();
        let whole = followees.values().filter(|one| one.followed.reads_all());
        let hosts = whole.filter_map(|one| one.host).collect();
        let found = followees
            .values()
            .filter(|one| one.followed == FollowReason::Discovered);
        (hosts, found.count())
    }
}
