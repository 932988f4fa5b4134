//! Carries out an operator's orders: upstreams, tracked repositories, dead letters, consumers of
//! the log, a confirmed loss, a new fetch.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use gapless_atp::syntax::Did;
use gapless_core::ledger::{DebtReason, FollowReason, Host, HostId, account, debt, rollback};
use gapless_core::retain::When;
use gapless_store::change::{Change, ConsumerChange, DeadChange};
use gapless_store::error::StoreError;
use gapless_store::table::dead::{DeadLetter, Resolution};
use tokio::runtime::Handle;

use crate::api::{
    ApiError, ConsumerRemoved, ConsumerSelector, DeadResolved, Inspect, NewUpstream, Operate,
    RepoAnswer, TrackedChange, UpstreamAnswer, UpstreamRemoved,
};
use crate::desk::{Desks, RepoTurn};
use crate::following::Following;
use crate::inspect::Inspector;
use crate::inspect::consumers::consumer_answers;
use crate::repair::reload::{hosted_repos, read_repos};
use crate::services::Services;
use crate::settings::MirrorSettings;
use crate::store_io::{blocking, write};
use crate::sweep::queue::Sweeps;
use crate::tracking::Tracking;

/// Dead letters that are resolved at the same time.
const CONCURRENT_LETTERS: usize = 256;
/// Repositories that are hidden at the same time when a loss is confirmed.
const CONCURRENT_HIDES: usize = 256;

/// Whom the audit names as the author of an order.
const OPERATOR: &str = "operator";

/// Carries out an operator's orders to a running mirror.
pub struct Control {
    pub(crate) services: Arc<Services>,
    pub(crate) desks: Arc<Desks>,
    pub(crate) following: Arc<Following>,
    pub(crate) tracking: Arc<Tracking>,
    pub(crate) sweeps: Arc<Sweeps>,
    pub(crate) settings: Arc<MirrorSettings>,
    /// Describes what an order has changed.
    pub(crate) inspector: Arc<Inspector>,
    pub(crate) handle: Handle,
}

impl Control {
    /// Hides the repositories that a host has lost, then allows the host to hide again. In
    /// this order: the next sweep does not count hidden repositories as lost.
    async fn hide_lost(&self, host: HostId) -> Result<(), StoreError> {
        let store = self.services.store.clone();
        let read = move || {
            let hosted = hosted_repos(&store, host)?;
            let repos = read_repos(&store, &hosted);
            repos
                .map(|repo| Ok(repo?.did))
                .collect::<Result<Vec<_>, StoreError>>()
        };
        let work = "reading the repositories of a host";
        let dids = blocking(&self.services.metrics, work, read).await?;
        for some in dids.chunks(CONCURRENT_HIDES) {
            let changes = some.iter().map(|did| {
                self.desks.with_repo(did, |turn: &mut RepoTurn<'_>| {
                    let now = turn.services.clock.now();
                    if let Some(tx) = turn.tx.as_mut() {
                        account::confirm_lost(now, &mut tx.repo, &mut tx.notices);
                    }
                })
            });
            futures_util::future::try_join_all(changes).await?;
        }
        let tick = self.services.clock.now().tick;
        let hides = |row: &mut Host| row.hiding_suspended = false;
        let changed = self.services.hosts.change(tick, host, hides).await;
        changed.map(|_| ())
    }
}

impl Control {
    /// Fails if the disk is full. Most writes about upstreams wait for room; an operator
    /// gets the error at once.
    fn has_room(&self) -> Result<(), ApiError> {
        let room = self.services.disk.require(self.services.clock.time());
        room.map_err(|full| StoreError::Full(full).into())
    }
}

impl Control {
    /// Resolves a dead letter. Its class and error are kept; its bytes are deleted to free
    /// the room.
    async fn resolve_letter(&self, number: u64, letter: DeadLetter) -> Result<(), StoreError> {
        let letter = DeadLetter {
            resolution: Resolution::Dropped,
            payload: Vec::new(),
            ..letter
        };
        let change = Change {
            tick: self.services.clock.now().tick,
            dead: Some(DeadChange::Row(number, letter)),
            ..Change::default()
        };
        write(&self.services.store, change).await?;
        self.desks.totals().resolve_dead_letter();
        Ok(())
    }
}

impl Operate for Control {
    fn add_upstream(&self, new: NewUpstream) -> Result<UpstreamAnswer, ApiError> {
        let plain = |host: &String| host.starts_with("http://");
        if new.host.as_ref().is_some_and(plain) && !self.settings.allow_private {
            let why = "`host` uses http, which requires allow_private in the configuration";
            return Err(ApiError::Invalid(why.to_owned()));
        }
        self.has_room()?;
        let adding =
            self.following
                .add(new.kind, &new.url, new.host.as_deref(), FollowReason::Added);
        self.handle.block_on(adding)?;
        let all = self.inspector.upstreams()?;
        let found = all
            .into_iter()
            .find(|one| one.url == new.url && one.kind == new.kind.name());
        found
            .ok_or_else(|| ApiError::Internal(format!("{} was added but is not followed", new.url)))
    }

    fn remove_upstream(&self, url: &str) -> Result<UpstreamRemoved, ApiError> {
        self.has_room()?;
        let removing = self.following.remove(url);
        let host = self.handle.block_on(removing)?;
        if let Some(host) = host.filter(|host| self.services.hosts.get(*host).is_none()) {
            self.sweeps.forget(host);
        }
        let configured = self.settings.upstreams.iter().any(|one| one.url == url);
        Ok(UpstreamRemoved::new(url, configured))
    }

    fn confirm_loss(&self, url: &str) -> Result<(), ApiError> {
        let covers = self.services.upstreams.read();
        let by_upstream = covers
            .iter()
            .find(|(_, source)| source.row.url == url)
            .and_then(|(_, source)| source.row.host);
        drop(covers);
        let host = by_upstream.or_else(|| self.services.hosts.find(url));
        let Some(host) = host else {
            return Err(ApiError::NotFound(format!(
                "the host {url} is not known here"
            )));
        };
        let row = self.services.hosts.get(host);
        if !row.is_some_and(|row| row.hiding_suspended) {
            return Err(ApiError::Conflict(format!(
                "nothing is suspended for {url}: there is no loss to confirm"
            )));
        }
        self.handle
            .block_on(self.hide_lost(host))
            .map_err(ApiError::from)
    }

    fn track(&self, dids: &[Did]) -> Result<TrackedChange, ApiError> {
        let changed = self.handle.block_on(self.tracking.track_all(dids))?;
        Ok(TrackedChange {
            changed,
            unchanged: dids.len() as u64 - changed,
        })
    }

    fn untrack(&self, dids: &[Did]) -> Result<TrackedChange, ApiError> {
        let changed = self.handle.block_on(self.tracking.untrack_all(dids))?;
        Ok(TrackedChange {
            changed,
            unchanged: dids.len() as u64 - changed,
        })
    }

    fn resync(&self, did: &Did, accept_rollback: bool) -> Result<RepoAnswer, ApiError> {
        let name = did.clone();
        let resync = self.desks.with_repo(did, move |turn: &mut RepoTurn<'_>| {
            let now = turn.services.clock.now();
            let Some(tx) = turn.tx.as_mut() else {
                return Err(ApiError::NotFound(format!(
                    "{name} is not mirrored here; `gapless track add {name}` adds it"
                )));
            };
            if !accept_rollback {
                debt::owe_fetch(now, &mut tx.repo, DebtReason::Operator);
            } else if tx.repo.behind.is_none() {
                return Err(ApiError::Conflict(
                    "its host is not behind the held state: there is no rollback to accept"
                        .to_owned(),
                ));
            } else {
                rollback::accept_rollback(now, &mut tx.repo);
            }
            debt::retry_soon(now, &mut tx.repo);
            Ok(())
        });
        self.handle.block_on(resync).map_err(ApiError::from)??;
        let answer = self.inspector.repo(did)?;
        answer.ok_or_else(|| ApiError::NotFound(format!("{did} is not mirrored here")))
    }

    fn resolve_dead(&self, number: Option<u64>) -> Result<DeadResolved, ApiError> {
        let mut open = Vec::new();
        for row in self.services.store.view().dead_letters() {
            let (at, letter) = row?;
            if letter.resolution == Resolution::Open && number.is_none_or(|number| number == at) {
                open.push((at, letter));
            }
        }
        if let Some(number) = number
            && open.is_empty()
        {
            return Err(ApiError::NotFound(format!(
                "there is no open dead letter {number}; `gapless dead list` shows them"
            )));
        }
        let resolved = open.len() as u64;
        let settled = stream::iter(open)
            .map(|(number, letter)| self.resolve_letter(number, letter))
            .buffer_unordered(CONCURRENT_LETTERS)
            .try_for_each(|()| async { Ok(()) });
        self.handle.block_on(settled)?;
        Ok(DeadResolved { resolved })
    }

    fn remove_consumer(&self, which: &ConsumerSelector) -> Result<ConsumerRemoved, ApiError> {
        let now = self.services.clock.now();
        let all = consumer_answers(&self.services.store.view(), now.time)?;
        let (keys, answers): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        let found = which.select(&answers)?;
        let mut keyed = keys.iter().zip(&answers);
        let Some((key, removed)) = keyed.find(|(_, one)| *one == found) else {
            return Err(ApiError::NotFound(format!("there is no consumer {which}")));
        };
        let change = Change {
            tick: now.tick,
            consumer: Some(ConsumerChange::Remove {
                key: *key,
                by: OPERATOR.to_owned(),
                at: When {
                    time: now.time,
                    lived: now.lived,
                },
            }),
            ..Change::default()
        };
        self.handle.block_on(write(&self.services.store, change))?;
        tracing::info!(
            consumer = removed.name,
            next = removed.next,
            "an operator removed a consumer of the log; Gapless keeps nothing for it any more"
        );
        Ok(ConsumerRemoved {
            removed: removed.clone(),
            let_go: removed.holds_alone.clone(),
        })
    }
}
