//! One more upstream is followed, or one no longer: written down first, then done, one
//! change at a time.

use std::sync::Arc;

use gapless_core::ledger::notice::Reset;
use gapless_core::ledger::stream;
use gapless_core::ledger::{Epoch, Followed, HostId, Kind, Upstream, UpstreamId};
use gapless_store::change::{Change, UpstreamChange};
use gapless_store::error::StoreError;

use super::{FollowError, Following, host_name};
use crate::api::kind_name;
use crate::fetch::work::Addresses;
use crate::store_io::write;

/// Whether there is a place for a stream of a host.
enum Way {
    /// Another one has it, and serves.
    Taken(UpstreamId),
    Free,
    /// One that was followed for tracked repositories has given way.
    Made,
}

impl Following {
    /// The upstream of an address: the operator's, rather than one that is followed
    /// for tracked repositories. With its host, and what it is followed for.
    fn find(&self, url: &str) -> Option<(UpstreamId, Option<HostId>, Followed)> {
        let followees = self.lock();
        let mut found: Vec<_> = followees.iter().filter(|(_, one)| one.url == url).collect();
        found.sort_by_key(|(_, one)| !one.followed.is_operators());
        let (id, one) = found.first()?;
        Some((**id, one.host, one.followed))
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
    /// them any more. Returns its host, which may be forgotten.
    pub async fn remove(self: &Arc<Self>, url: &str) -> Result<Option<HostId>, FollowError> {
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
        let Some(host) = host else {
            return Ok(None);
        };
        match self.is_wanted(host).await? {
            // What is tracked there is followed by itself from now on.
            true => self.follow_for_tracked(host),
            false => self.forget_unreached(id, host).await?,
        }
        Ok(Some(host))
    }

    pub(super) async fn end(&self, id: UpstreamId, followed: Followed) -> Result<(), StoreError> {
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
    pub(super) fn follow_as(&self, row: &mut Upstream, followed: Followed) {
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
}
