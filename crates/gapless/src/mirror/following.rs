//! Which upstreams are followed: those of the configuration, those that were
//! added while running, and the hosts of tracked repositories.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use gapless_core::ledger::{Epoch, Followed, HostId, Kind, Tick, Upstream, UpstreamId};
use gapless_store::change::{Change, UpstreamChange};
use gapless_store::error::StoreError;
use tokio::task::JoinHandle;

use crate::config::UpstreamConfig;
use crate::fetch::work::Addresses;
use crate::ingest::desk::Desks;
use crate::ingest::follow::{Follower, Link};
use crate::ingest::upstreams::write;
use crate::net::{HostAddress, Net, Trust};
use crate::shared::Shared;

/// How long a follower that ended by a fault of ours rests.
const RESTART_AFTER: Duration = Duration::from_secs(1);

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
    #[error("{0} is not followed")]
    NotFollowed(String),
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

    /// The upstream of an address.
    pub fn find(&self, url: &str) -> Option<UpstreamId> {
        let followees = self.lock();
        let found = followees.iter().find(|(_, one)| one.url == url);
        found.map(|(id, _)| *id)
    }

    /// At the start: what the configuration names, and what was added before.
    pub async fn resume(self: &Arc<Self>, configured: &[UpstreamConfig]) -> Result<(), StoreError> {
        let rows = self.shared.store.view().upstreams()?;
        for (id, row) in &rows {
            let named = configured
                .iter()
                .any(|one| one.kind == row.kind && one.url == row.url);
            match (row.followed, named) {
                (Followed::Configured, false) => {
                    let row = Upstream {
                        followed: Followed::No,
                        ..row.clone()
                    };
                    self.shared.upstreams.keep(*id, row).await?;
                }
                (Followed::Added | Followed::ForTracked, false) => {
                    self.start(*id, row.clone());
                }
                _ => {}
            }
        }
        for one in configured {
            match self
                .add(
                    one.kind,
                    &one.url,
                    one.host.as_deref(),
                    Followed::Configured,
                )
                .await
            {
                Ok(_) | Err(FollowError::Already(_)) => {}
                Err(FollowError::Store(error)) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "an upstream of the configuration is left out")
                }
            }
        }
        Ok(())
    }

    /// Follows an upstream from now on, and remembers it.
    pub async fn add(
        self: &Arc<Self>,
        kind: Kind,
        url: &str,
        host: Option<&str>,
        followed: Followed,
    ) -> Result<UpstreamId, FollowError> {
        let _one = self.changing.lock().await;
        let host_id = match kind {
            Kind::Pds => Some(self.shared.hosts.name(&host_name(url, host)).await?),
            Kind::Relay | Kind::Jetstream => None,
        };
        if let Some(id) = self.make_way(kind, url, host_id, followed).await? {
            return Ok(id);
        }
        let rows = self.shared.store.view().upstreams()?;
        let known = rows
            .into_iter()
            .find(|(_, row)| row.kind == kind && row.url == url);
        let (id, row) = match known {
            Some((id, row)) => {
                let row = Upstream {
                    host: host_id,
                    followed,
                    ..row
                };
                self.shared.upstreams.keep(id, row.clone()).await?;
                (id, row)
            }
            None => {
                let row = Upstream {
                    url: url.to_owned(),
                    kind,
                    host: host_id,
                    epoch: Epoch(0),
                    first_cursor_since_reset: None,
                    numbering: 0,
                    reset_at: Tick(0),
                    unread_at: None,
                    followed,
                };
                let change = Change {
                    upstream: Some(UpstreamChange::New(row.clone())),
                    ..Change::default()
                };
                let ack = write(&self.shared.store, change).await?;
                (ack.upstream.ok_or(StoreError::CommitterGone)?, row)
            }
        };
        self.start(id, row);
        Ok(id)
    }

    /// Two streams of one host are not followed. One that is followed for tracked
    /// repositories alone gives way to one that is followed for all.
    async fn make_way(
        self: &Arc<Self>,
        kind: Kind,
        url: &str,
        host: Option<HostId>,
        followed: Followed,
    ) -> Result<Option<UpstreamId>, FollowError> {
        let same = {
            let followees = self.lock();
            let same = followees.iter().find(|(_, one)| {
                (one.kind == kind && one.url == url) || (host.is_some() && one.host == host)
            });
            same.map(|(id, one)| (*id, one.url.clone(), one.followed))
        };
        let Some((id, other, how)) = same else {
            return Ok(None);
        };
        if followed == Followed::ForTracked {
            return Ok(Some(id));
        }
        if how == Followed::ForTracked {
            self.end(id, Followed::No).await?;
            return Ok(None);
        }
        match other == url {
            true => Err(FollowError::Already(other)),
            false => Err(FollowError::SameHost(url.to_owned(), other)),
        }
    }

    /// Follows an upstream no longer. Its repositories stay, and nothing covers
    /// them any more.
    pub async fn remove(self: &Arc<Self>, url: &str) -> Result<(), FollowError> {
        let _one = self.changing.lock().await;
        let Some(id) = self.find(url) else {
            return Err(FollowError::NotFollowed(url.to_owned()));
        };
        Ok(self.end(id, Followed::No).await?)
    }

    async fn end(&self, id: UpstreamId, followed: Followed) -> Result<(), StoreError> {
        let followee = self.lock().remove(&id);
        if let Some(followee) = followee {
            followee.task.abort();
            // Until it has ended it may still write its row.
            let _ = followee.task.await;
        }
        let row = self.shared.upstreams.remove(id);
        self.shared.store.abandon(id);
        match row {
            None => Ok(()),
            Some(row) => {
                let row = Upstream { followed, ..row };
                self.shared.upstreams.keep(id, row).await
            }
        }
    }

    fn start(self: &Arc<Self>, id: UpstreamId, row: Upstream) {
        let link = Arc::new(Mutex::new(Link::default()));
        let host_name = row
            .host
            .and_then(|host| self.shared.hosts.get(host))
            .map(|host| host.name);
        let trust = match row.followed {
            Followed::ForTracked => Trust::Named,
            _ => Trust::Configured,
        };
        let follower = Arc::new(Follower {
            shared: self.shared.clone(),
            desks: self.desks.clone(),
            net: self.net.clone(),
            id,
            url: row.url.clone(),
            trust,
            tracked_only: row.followed == Followed::ForTracked,
            link: link.clone(),
        });
        let (url, kind, host, followed) = (row.url.clone(), row.kind, row.host, row.followed);
        self.shared.upstreams.add(id, row);
        let task = self.runtime.spawn(supervise(self.shared.clone(), follower));
        let followee = Followee {
            url,
            kind,
            host,
            host_name,
            followed,
            link,
            task,
        };
        self.lock().insert(id, followee);
    }

    /// Stops following anything.
    pub async fn stop(&self) {
        let all: Vec<Followee> = {
            let mut followees = self.lock();
            std::mem::take(&mut *followees).into_values().collect()
        };
        for mut followee in all {
            let ended = tokio::time::timeout(Duration::from_secs(2), &mut followee.task).await;
            if ended.is_err() {
                followee.task.abort();
            }
        }
    }

    /// Hosts that are followed for tracked repositories alone.
    pub fn for_tracked(&self) -> Vec<(String, HostId)> {
        let followees = self.lock();
        let ours = followees
            .values()
            .filter(|one| one.followed == Followed::ForTracked);
        ours.filter_map(|one| Some((one.url.clone(), one.host?)))
            .collect()
    }
}

/// Follows, and begins anew from the durable cursor after a fault of ours: what
/// was read and not handed on is read again.
async fn supervise(shared: Arc<Shared>, follower: Arc<Follower>) {
    loop {
        match AssertUnwindSafe(follower.run()).catch_unwind().await {
            Ok(()) => return,
            Err(_) if shared.end.is_ending() => return,
            Err(_) => {
                shared.metrics.restarts.inc();
                tracing::error!(upstream = %follower.url, "a follower ended unexpectedly; started again");
                if let Some(row) = shared.upstreams.remove(follower.id) {
                    shared.store.abandon(follower.id);
                    shared.upstreams.add(follower.id, row);
                }
                tokio::time::sleep(RESTART_AFTER).await;
            }
        }
    }
}

impl Addresses for Arc<Following> {
    fn of(&self, name: &str) -> HostAddress {
        let followees = self.lock();
        let own = followees.values().find(|one| {
            one.host_name.as_deref() == Some(name) && one.followed != Followed::ForTracked
        });
        match own {
            // Its URL is where the operator says that the host is reached.
            Some(followee) => HostAddress::configured(followee.url.clone()),
            None => HostAddress::named(name.to_owned()),
        }
    }

    fn follow_for_tracked(&self, host: HostId) {
        let followed = self.lock().values().any(|one| one.host == Some(host));
        let Some(row) = self.shared.hosts.get(host).filter(|_| !followed) else {
            return;
        };
        let following = self.clone();
        self.runtime.spawn(async move {
            let added = following
                .add(Kind::Pds, &row.name, None, Followed::ForTracked)
                .await;
            if let Err(error) = added {
                tracing::warn!(host = %row.name, %error, "the host of a tracked repository cannot be followed");
            }
        });
    }
}
