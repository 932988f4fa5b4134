//! Which upstreams are followed: those of the configuration, those that were
//! added while running, and the hosts of tracked repositories.

use std::collections::{BTreeMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use gapless_core::ledger::notice::Reset;
use gapless_core::ledger::stream;
use gapless_core::ledger::{Epoch, Followed, HostId, Kind, Upstream, UpstreamId};
use gapless_store::change::{Change, UpstreamChange};
use gapless_store::error::StoreError;
use tokio::task::JoinHandle;

use crate::api::kind_name;
use crate::config::UpstreamConfig;
use crate::fetch::work::Addresses;
use crate::ingest::desk::Desks;
use crate::ingest::follow::Follower;
use crate::ingest::link::Link;
use crate::ingest::upstreams::write;
use crate::net::{HostAddress, Net, Trust};
use crate::shared::Shared;

/// How long a follower that ended by a fault of ours rests.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// How long followers have for their end, all together.
const STOP_WITHIN: Duration = Duration::from_secs(2);

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

/// Whether there is a place for a stream of a host.
enum Way {
    /// Another one has it, and serves.
    Taken(UpstreamId),
    Free,
    /// One that was followed for tracked repositories has given way.
    Made,
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

    /// The upstream of an address: the operator's, rather than one that is followed
    /// for tracked repositories. With its host, and what it is followed for.
    fn find(&self, url: &str) -> Option<(UpstreamId, Option<HostId>, Followed)> {
        let followees = self.lock();
        let mut found: Vec<_> = followees.iter().filter(|(_, one)| one.url == url).collect();
        found.sort_by_key(|(_, one)| !one.followed.is_operators());
        let (id, one) = found.first()?;
        Some((**id, one.host, one.followed))
    }

    /// At the start: what the configuration names, and what was added before.
    pub async fn resume(self: &Arc<Self>, configured: &[UpstreamConfig]) -> Result<(), StoreError> {
        let rows = self.shared.store.view().upstreams()?;
        let named = |row: &Upstream| {
            let mut all = configured.iter();
            all.any(|one| one.kind == row.kind && one.url == row.url)
        };
        {
            let _one = self.changing.lock().await;
            for (id, row) in rows.iter().filter(|(_, row)| !named(row)) {
                // Somebody may have been here before: the program answers already.
                let new = !self.lock().contains_key(id);
                if new && self.is_resumed(row) {
                    self.start(*id, row.clone());
                }
            }
        }
        // What has to be written waits for room on the disk, and nobody for it: those
        // that are known as they are come first.
        let known = |one: &&UpstreamConfig| {
            let mut rows = rows.iter();
            rows.any(|(_, row)| row.kind == one.kind && row.url == one.url)
        };
        let (old, new): (Vec<_>, Vec<_>) = configured.iter().partition(known);
        let followed = old
            .into_iter()
            .chain(new)
            .filter(|one| self.follows(one.kind));
        for one in followed {
            self.configure(one).await?;
        }
        let _one = self.changing.lock().await;
        for (id, row) in self.shared.store.view().upstreams()? {
            let left = match row.followed {
                Followed::Configured | Followed::Narrowed => {
                    !named(&row) || !self.follows(row.kind)
                }
                Followed::Discovered => !self.shared.scope.network || !self.shared.scope.by_hosts,
                Followed::No | Followed::Added | Followed::ForTracked => false,
            };
            if left && !self.lock().contains_key(&id) {
                let mut row = row;
                self.follow_as(&mut row, Followed::No);
                self.shared.upstreams.keep(id, row).await?;
            }
        }
        Ok(())
    }

    /// Whether upstreams of a kind are followed. Where each host has a stream of its
    /// own, relays only tell which there are.
    fn follows(&self, kind: Kind) -> bool {
        kind != Kind::Relay || self.shared.scope.follows_relays()
    }

    /// Whether one that was followed before is at once. Hosts of the network are dialed
    /// one after the other, and not here.
    fn is_resumed(&self, row: &Upstream) -> bool {
        let refused = row.kind != Kind::Pds && self.shared.scope.is_narrow();
        match row.followed {
            Followed::Added if refused || !self.follows(row.kind) => {
                tracing::warn!(upstream = %row.url, "a relay that was added is not followed: only what is found is wanted, or hosts are followed instead");
                false
            }
            Followed::Added | Followed::ForTracked => true,
            _ => false,
        }
    }

    /// Follows an upstream of the configuration.
    async fn configure(self: &Arc<Self>, one: &UpstreamConfig) -> Result<(), StoreError> {
        let host = one.host.as_deref();
        let followed = match one.kind != Kind::Pds && self.shared.scope.is_narrow() {
            true => Followed::Narrowed,
            false => Followed::Configured,
        };
        let added = self.add(one.kind, &one.url, host, followed);
        match added.await {
            Ok(_) | Err(FollowError::Already(_)) => {}
            Err(FollowError::Store(error)) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "an upstream of the configuration is left out")
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
        if followed == Followed::Added && kind != Kind::Pds && self.shared.scope.is_narrow() {
            return Err(FollowError::Narrow(url.to_owned()));
        }
        let host_id = match kind {
            Kind::Pds => Some(self.shared.hosts.name(&host_name(url, host)).await?),
            Kind::Relay | Kind::Jetstream => None,
        };
        let waits = match self.make_way(kind, url, host_id, followed).await? {
            Way::Taken(id) => return Ok(id),
            Way::Made => true,
            Way::Free => !followed.is_operators(),
        };
        let rows = self.shared.store.view().upstreams()?;
        let known = rows
            .into_iter()
            .find(|(_, row)| row.kind == kind && row.url == url);
        let (id, row) = match known {
            Some((id, known)) => {
                let mut row = Upstream {
                    host: host_id,
                    ..known.clone()
                };
                self.follow_as(&mut row, followed);
                // A start with nothing new to say needs no room on the disk.
                if row != known {
                    self.shared.upstreams.keep(id, row.clone()).await?;
                }
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
                    reset_at: self.shared.clock.now().tick,
                    unread_at: None,
                    followed,
                };
                (self.write_new(&row, waits).await?, row)
            }
        };
        self.start(id, row);
        Ok(id)
    }

    /// Writes down a new one. Where tracked repositories would be left without a
    /// stream it waits for room on the disk; an operator is told that there is none.
    async fn write_new(&self, row: &Upstream, waits: bool) -> Result<UpstreamId, StoreError> {
        loop {
            let change = Change {
                upstream: Some(UpstreamChange::New(row.clone())),
                ..Change::default()
            };
            match write(&self.shared.store, change).await {
                Ok(ack) => return ack.upstream.ok_or(StoreError::CommitterGone),
                Err(StoreError::Full(full)) if waits => {
                    self.shared.upstreams.wait_for_room(&full).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Two streams of one host are not followed. One that is followed for tracked
    /// repositories alone gives way to one that is followed for all.
    async fn make_way(
        self: &Arc<Self>,
        kind: Kind,
        url: &str,
        host: Option<HostId>,
        followed: Followed,
    ) -> Result<Way, FollowError> {
        let same = {
            let followees = self.lock();
            let same = followees.iter().find(|(_, one)| {
                (one.kind == kind && one.url == url) || (host.is_some() && one.host == host)
            });
            same.map(|(id, one)| (*id, one.url.clone(), one.followed))
        };
        let Some((id, other, how)) = same else {
            return match self.other_kind(kind, url, followed) {
                Some(other) => Err(FollowError::OtherKind(url.to_owned(), kind_name(other))),
                None => Ok(Way::Free),
            };
        };
        let wider = followed == Followed::Discovered && how == Followed::ForTracked;
        if !followed.is_operators() && !wider {
            return Ok(Way::Taken(id));
        }
        if !how.is_operators() {
            // What it was read for alone is remembered in its row.
            self.end(id, Followed::No).await?;
            return Ok(Way::Made);
        }
        match other == url {
            true => Err(FollowError::Already(other)),
            false => Err(FollowError::SameHost(url.to_owned(), other)),
        }
    }

    /// The other kind under which an operator has this address followed.
    fn other_kind(&self, kind: Kind, url: &str, followed: Followed) -> Option<Kind> {
        let followees = self.lock();
        let other = followees
            .values()
            .find(|one| one.url == url && one.kind != kind && one.followed.is_operators());
        let other = other.map(|one| one.kind);
        other.filter(|_| followed.is_operators())
    }

    /// Follows an upstream no longer. Its repositories stay, and nothing covers
    /// them any more.
    pub async fn remove(self: &Arc<Self>, url: &str) -> Result<(), FollowError> {
        let _one = self.changing.lock().await;
        let Some((id, host, followed)) = self.find(url) else {
            return Err(FollowError::NotFollowed(url.to_owned()));
        };
        if followed == Followed::ForTracked {
            return Err(FollowError::ForTracked(url.to_owned()));
        }
        if followed == Followed::Discovered {
            return Err(FollowError::Discovered(url.to_owned()));
        }
        self.end(id, Followed::No).await?;
        // What is tracked there is followed by itself from now on.
        if let Some(host) = host
            && self.is_wanted(host).await?
        {
            self.follow_for_tracked(host);
        }
        Ok(())
    }

    /// Whether a tracked repository lives there.
    async fn is_wanted(&self, host: HostId) -> Result<bool, StoreError> {
        let shared = self.shared.clone();
        let read = tokio::task::spawn_blocking(move || is_wanted(&shared, host));
        read.await.unwrap_or(Err(StoreError::CommitterGone))
    }

    async fn end(&self, id: UpstreamId, followed: Followed) -> Result<(), StoreError> {
        let followee = self.lock().remove(&id);
        if let Some(followee) = followee {
            followee.task.abort();
            // Until it has ended it may still write its row.
            let _ = followee.task.await;
        }
        let row = self.shared.upstreams.remove(id);
        self.shared.sources.remove(id);
        self.shared.store.abandon(id);
        match row {
            None => Ok(()),
            Some(mut row) => {
                self.follow_as(&mut row, followed);
                self.shared.upstreams.keep(id, row).await
            }
        }
    }

    /// A stream that was read for some alone has passed the others by: for whoever
    /// it speaks for next, it begins anew.
    fn follow_as(&self, row: &mut Upstream, followed: Followed) {
        if !row.followed.reads_all() && followed.reads_all() {
            let now = self.shared.clock.now();
            let mut notices = Vec::new();
            stream::reset(now, row, Reset::Widened, &mut notices);
            for notice in &notices {
                self.shared.metrics.notice(notice);
            }
        }
        if row.followed == Followed::No && followed != Followed::No {
            // What came to live there meanwhile, only a sweep from now on tells.
            row.reset_at = self.shared.clock.now().tick;
        }
        row.followed = followed;
    }

    fn start(self: &Arc<Self>, id: UpstreamId, row: Upstream) {
        let link = Arc::new(Mutex::new(Link {
            // For all we know: it may have been so before the start.
            down_since: Some(self.shared.clock.time()),
            ..Link::default()
        }));
        let host_name = row
            .host
            .and_then(|host| self.shared.hosts.get(host))
            .map(|host| host.name);
        let trust = match row.followed.is_operators() {
            true => Trust::Configured,
            false => Trust::Named,
        };
        let follower = Arc::new(Follower {
            shared: self.shared.clone(),
            desks: self.desks.clone(),
            net: self.net.clone(),
            id,
            kind: row.kind,
            url: row.url.clone(),
            trust,
            tracked_only: !row.followed.reads_all(),
            patient: row.followed == Followed::Discovered,
            link: link.clone(),
            tally: self.shared.sources.add(id, &row),
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
        let all: Vec<JoinHandle<()>> = {
            let mut followees = self.lock();
            let all = std::mem::take(&mut *followees).into_values();
            all.map(|followee| followee.task).collect()
        };
        end_all(all, STOP_WITHIN).await;
    }

    /// Leaves a host that is followed for tracked repositories if none of them lives
    /// there any more. What is tracked meanwhile is seen here, or follows it again
    /// after this: one change at a time.
    pub async fn leave_unless_wanted(&self, host: HostId) -> Result<(), StoreError> {
        let _one = self.changing.lock().await;
        let ours = {
            let followees = self.lock();
            let ours = followees
                .iter()
                .find(|(_, one)| one.host == Some(host) && one.followed == Followed::ForTracked);
            ours.map(|(id, one)| (*id, one.url.clone()))
        };
        let Some((id, url)) = ours else {
            return Ok(());
        };
        if self.is_wanted(host).await? {
            return Ok(());
        }
        tracing::info!(upstream = %url, "left: no tracked repository lives there any more");
        self.end(id, Followed::No).await
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

    /// Hosts that are followed for tracked repositories alone.
    pub fn for_tracked(&self) -> Vec<HostId> {
        let followees = self.lock();
        let ours = followees
            .values()
            .filter(|one| one.followed == Followed::ForTracked);
        ours.filter_map(|one| one.host).collect()
    }
}

/// Whether a repository that is tracked by name lives on a host.
fn is_wanted(shared: &Shared, host: HostId) -> Result<bool, StoreError> {
    let view = shared.store.view();
    for id in view.hosted(host) {
        let repo = view.repo(id?)?;
        if repo.is_some_and(|repo| shared.wants_stream(&repo.did)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits for tasks that were told to end, all of them together, and ends those that
/// do not.
pub(super) async fn end_all(mut tasks: Vec<JoinHandle<()>>, within: Duration) {
    let all = futures_util::future::join_all(&mut tasks);
    if tokio::time::timeout(within, all).await.is_err() {
        for task in tasks {
            task.abort();
        }
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
        let own = followees
            .values()
            .find(|one| one.host_name.as_deref() == Some(name) && one.followed.is_operators());
        match own {
            // Its URL is where the operator says that the host is reached.
            Some(followee) => HostAddress::configured(followee.url.clone()),
            None => HostAddress::named(name.to_owned()),
        }
    }

    fn follow_for_tracked(&self, host: HostId) {
        // One that is followed for tracked ones may just be about to be left.
        let stays = self
            .lock()
            .values()
            .any(|one| one.host == Some(host) && one.followed != Followed::ForTracked);
        let Some(row) = self.shared.hosts.get(host).filter(|_| !stays) else {
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

    fn tracked_left(&self, host: HostId) {
        let following = self.clone();
        self.runtime.spawn(async move {
            if let Err(error) = following.leave_unless_wanted(host).await {
                following.shared.end.fail(error);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn those_that_do_not_end_are_waited_for_together() {
        let within = Duration::from_millis(200);
        let tasks = (0..20).map(|_| tokio::spawn(std::future::pending()));
        let began = Instant::now();
        end_all(tasks.collect(), within).await;
        assert!(began.elapsed() < within * 10, "{:?}", began.elapsed());
    }
}
