//! Follows one more upstream, or one less: the change is written to the store first and
//! then made, one change at a time.

use std::sync::Arc;

use gapless_core::ledger::notice::ResetReason;
use gapless_core::ledger::stream;
use gapless_core::ledger::{Epoch, FollowReason, HostId, Upstream, UpstreamId, UpstreamKind};
use gapless_store::change::{Change, UpstreamChange};
use gapless_store::error::StoreError;

use crate::following::{FollowError, Following, host_name};
use crate::repair::worker::Addresses;
use crate::store_io::write;

/// Whether a new stream of a host can be followed.
enum Vacancy {
    /// Another stream of the host is followed, and serves.
    Occupied(UpstreamId),
    Free,
    /// A stream that was followed for tracked repositories alone was ended.
    Vacated,
}

impl Following {
    /// The upstream of an address: the operator's, rather than one that is followed
    /// for tracked repositories. With its host, and what it is followed for.
    fn find(&self, url: &str) -> Option<(UpstreamId, Option<HostId>, FollowReason)> {
        let followees = self.lock();
        let mut found: Vec<_> = followees.iter().filter(|(_, one)| one.url == url).collect();
        found.sort_by_key(|(_, one)| !one.followed.is_by_operator());
        let (id, one) = found.first()?;
        Some((**id, one.host, one.followed))
    }

    /// Follows an upstream from now on, and remembers it.
    pub async fn add(
        self: &Arc<Self>,
        kind: UpstreamKind,
        url: &str,
        host: Option<&str>,
        followed: FollowReason,
    ) -> Result<UpstreamId, FollowError> {
        let _one = self.changing.lock().await;
        if followed == FollowReason::Added
            && kind != UpstreamKind::Pds
            && self.services.admission.scope.is_narrow()
        {
            return Err(FollowError::Narrow(url.to_owned()));
        }
        let host_id = match kind {
            UpstreamKind::Pds => Some(self.services.hosts.register(&host_name(url, host)).await?),
            UpstreamKind::Relay | UpstreamKind::Jetstream => None,
        };
        let waits = match self.vacate(kind, url, host_id, followed).await? {
            Vacancy::Occupied(id) => return Ok(id),
            Vacancy::Vacated => true,
            Vacancy::Free => !followed.is_by_operator(),
        };
        let rows = self.services.store.view().upstreams()?;
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
                    self.services.upstreams.keep(id, row.clone()).await?;
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
                    reset_at: self.services.clock.now().tick,
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
            match write(&self.services.store, change).await {
                Ok(ack) => return ack.upstream.ok_or(StoreError::CommitterGone),
                Err(StoreError::Full(full)) if waits => {
                    self.services.upstreams.wait_for_room(&full).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Two streams of one host are not followed. One that is followed for tracked
    /// repositories alone gives way to one that is followed for all.
    async fn vacate(
        self: &Arc<Self>,
        kind: UpstreamKind,
        url: &str,
        host: Option<HostId>,
        followed: FollowReason,
    ) -> Result<Vacancy, FollowError> {
        let same = {
            let followees = self.lock();
            let same = followees.iter().find(|(_, one)| {
                (one.kind == kind && one.url == url) || (host.is_some() && one.host == host)
            });
            same.map(|(id, one)| (*id, one.url.clone(), one.followed))
        };
        let Some((id, other, how)) = same else {
            return match self.other_kind(kind, url, followed) {
                Some(other) => Err(FollowError::OtherKind(url.to_owned(), other.name())),
                None => Ok(Vacancy::Free),
            };
        };
        let wider = followed == FollowReason::Discovered && how == FollowReason::ForTracked;
        if !followed.is_by_operator() && !wider {
            return Ok(Vacancy::Occupied(id));
        }
        if !how.is_by_operator() {
            // What it was read for alone is remembered in its row.
            self.end(id, FollowReason::No).await?;
            return Ok(Vacancy::Vacated);
        }
        if other == url {
            Err(FollowError::Already(other))
        } else {
            Err(FollowError::SameHost(url.to_owned(), other))
        }
    }

    /// The other kind under which an operator has this address followed.
    fn other_kind(
        &self,
        kind: UpstreamKind,
        url: &str,
        followed: FollowReason,
    ) -> Option<UpstreamKind> {
        let followees = self.lock();
        let other = followees
            .values()
            .find(|one| one.url == url && one.kind != kind && one.followed.is_by_operator());
        let other = other.map(|one| one.kind);
        other.filter(|_| followed.is_by_operator())
    }

    /// Follows an upstream no longer. Its repositories stay, and nothing covers
    /// them any more. Returns its host, which may be forgotten.
    pub async fn remove(self: &Arc<Self>, url: &str) -> Result<Option<HostId>, FollowError> {
        let _one = self.changing.lock().await;
        let Some((id, host, followed)) = self.find(url) else {
            return Err(FollowError::NotFollowed(url.to_owned()));
        };
        if followed == FollowReason::ForTracked {
            return Err(FollowError::ForTracked(url.to_owned()));
        }
        if followed == FollowReason::Discovered {
            return Err(FollowError::Discovered(url.to_owned()));
        }
        self.end(id, FollowReason::No).await?;
        let Some(host) = host else {
            return Ok(None);
        };
        if self.is_wanted(host).await? {
            // The host is followed for its tracked repositories from now on.
            self.follow_for_tracked(host);
        } else {
            self.forget_unreached(id, host).await?;
        }
        Ok(Some(host))
    }

    pub(crate) async fn end(
        &self,
        id: UpstreamId,
        followed: FollowReason,
    ) -> Result<(), StoreError> {
        let followee = self.lock().remove(&id);
        if let Some(followee) = followee {
            followee.task.abort();
            // Until it has ended it may still write its row.
            let _ = followee.task.await;
        }
        let row = self.services.upstreams.remove(id);
        self.services.upstreams.sources.remove(id);
        self.services.store.abandon(id);
        match row {
            None => Ok(()),
            Some(mut row) => {
                self.follow_as(&mut row, followed);
                self.services.upstreams.keep(id, row).await
            }
        }
    }

    /// A stream that was read for some alone has passed the others by: for whoever
    /// it speaks for next, it begins anew.
    pub(crate) fn follow_as(&self, row: &mut Upstream, followed: FollowReason) {
        if !row.followed.reads_all() && followed.reads_all() {
            let now = self.services.clock.now();
            let mut notices = Vec::new();
            stream::begin_epoch(now, row, ResetReason::Widened, &mut notices);
            for notice in &notices {
                self.services.metrics.notice(notice);
            }
        }
        if row.followed == FollowReason::No && followed != FollowReason::No {
            // What came to live there meanwhile, only a sweep from now on tells.
            row.reset_at = self.services.clock.now().tick;
        }
        row.followed = followed;
    }
}
