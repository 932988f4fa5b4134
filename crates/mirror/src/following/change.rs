//! Adds and removes upstreams. A change is written to the store first and then made, one
//! change at a time.

use std::sync::Arc;

use gapless_core::ledger::notice::ResetReason;
use gapless_core::ledger::stream;
use gapless_core::ledger::{Epoch, FollowReason, HostId, Upstream, UpstreamId, UpstreamKind};
use gapless_store::change::{Change, UpstreamChange};
use gapless_store::error::StoreError;

use crate::following::{FollowError, Following, host_name};
use crate::repair::worker::Addresses;
use crate::store_io::{unnumbered, write};

/// Whether a new stream of a host can be followed.
enum Vacancy {
    /// Another stream of the host is followed already, and is kept.
    Occupied(UpstreamId),
    Free,
    /// A stream that was followed for tracked repositories alone was ended.
    Vacated,
}

impl Following {
    /// The upstream at a URL, with its host and the reason why it is followed. An upstream of
    /// the operator is preferred to one for tracked repositories.
    fn find(&self, url: &str) -> Option<(UpstreamId, Option<HostId>, FollowReason)> {
        let followees = self.lock();
        let mut found: Vec<_> = followees.iter().filter(|(_, one)| one.url == url).collect();
        found.sort_by_key(|(_, one)| !one.followed.is_by_operator());
        let (id, one) = found.first()?;
        Some((**id, one.host, one.followed))
    }

    /// Writes the row of an upstream and follows it.
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
        let waits = match self.make_room(kind, url, host_id, followed).await? {
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
                // A start that changes no row needs no room on the disk.
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

    /// Writes the row of a new upstream. With `waits`, the write waits for room on the disk,
    /// so that tracked repositories are not left without a stream; an operator gets the
    /// error at once.
    async fn write_new(&self, row: &Upstream, waits: bool) -> Result<UpstreamId, StoreError> {
        loop {
            let change = Change {
                upstream: Some(UpstreamChange::New(row.clone())),
                ..Change::default()
            };
            match write(&self.services.store, change).await {
                Ok(ack) => return ack.upstream.ok_or_else(|| unnumbered("an upstream")),
                Err(StoreError::Full(full)) if waits => {
                    self.services.upstreams.wait_for_room(&full).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes room for a new stream of a host, because a host has one stream. A stream that
    /// is followed only for tracked repositories gives way to one for all repositories.
    async fn make_room(
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
            // Its row records that it was read for tracked repositories alone.
            self.end(id, FollowReason::No).await?;
            return Ok(Vacancy::Vacated);
        }
        if other == url {
            Err(FollowError::Already(other))
        } else {
            Err(FollowError::SameHost(url.to_owned(), other))
        }
    }

    /// The other kind under which an operator follows this URL.
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

    /// Stops following an upstream. Its repositories stay, without a cover. Returns its
    /// host, which may have been forgotten.
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
            // The task may write the row until it has ended.
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

    /// Sets why an upstream is followed. A stream that was read for some repositories alone
    /// has skipped the others, so it begins a new epoch when it is read for all.
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
            // Only a later sweep shows repositories that moved there meanwhile.
            row.reset_at = self.services.clock.now().tick;
        }
        row.followed = followed;
    }
}
