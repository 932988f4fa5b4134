//! Periodic upkeep: purges what was deleted long enough ago and removes what a purge
//! leaves behind, expires superseded records, reschedules debts after the clock was set
//! back, and logs the state.

mod purge_cleanup;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gapless_core::ledger::time::micros;
use gapless_core::ledger::{Held, Repo, RepoId, Time, account};
use gapless_store::change::{Change, Upkeep};
use gapless_store::error::StoreError;

use crate::clock::Clock;
use crate::desk::{Desks, RepoTurn};
use crate::repair::reload::read_repos;
use crate::services::Services;
use crate::store_io::{blocking, write};
use gapless_store::sync::Mutex;

/// Rows that one view brings in a search.
const ROWS_PER_READ: usize = 10_000;
/// Superseded records that one change deletes.
const EXPIRED_PER_CHANGE: usize = ROWS_PER_READ / 10;
/// The name of the reads of superseded records in the log.
const EXPIRY_READ: &str = "looking for superseded records";
/// How often the state is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Searches for repositories to purge in one grace period. Each reads every row.
const PURGES_PER_GRACE: u32 = 10;
/// Searches for superseded records in the time for which they are kept.
const EXPIRIES_PER_KEEP: u32 = 24;
/// The longest and the shortest time between two searches.
const MAX_INTERVAL: Duration = Duration::from_secs(3600);
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// How long the clock must have kept step before a purge believes it, or the grace period
/// if that is less. A purge cannot be undone, so a clock that was wrong for a moment must
/// not cause one.
const BELIEVED_AFTER: Duration = Duration::from_secs(3600);

/// The task that does the upkeep.
pub(crate) struct UpkeepTask {
    services: Arc<Services>,
    desks: Arc<Desks>,
    /// How long a deleted repository is kept before it is purged.
    purge_grace: Duration,
    /// How long superseded records are kept.
    keep_versions: Duration,
    /// When the engine's files were last freed of purged data.
    scoured: Mutex<Option<Instant>>,
}

/// Reports an error: a final error ends the program; after any other, the upkeep goes on.
fn report_error(services: &Services, error: StoreError) {
    if error.is_final() {
        services.shutdown.fail(error);
    } else {
        tracing::warn!(%error, "a part of the upkeep failed; Gapless tries again later");
    }
}

/// Whether the clock has run steadily for long enough to believe that the grace period has
/// passed.
fn is_believed(clock: &Clock, grace: Duration) -> bool {
    clock.kept_step() >= grace.min(BELIEVED_AFTER)
}

/// Whether anything is stored of a repository: records, parked frames or claims.
fn has_anything(services: &Services, id: RepoId, repo: &Repo) -> Result<bool, StoreError> {
    if repo.held != Held::Nothing {
        return Ok(true);
    }
    let view = services.store.view();
    Ok(!view.parked(id)?.is_empty() || view.claims(id).next().transpose()?.is_some())
}

impl UpkeepTask {
    pub(crate) fn new(
        services: Arc<Services>,
        desks: Arc<Desks>,
        purge_grace: Duration,
        keep_versions: Duration,
    ) -> UpkeepTask {
        UpkeepTask {
            services,
            desks,
            purge_grace,
            keep_versions,
            scoured: Mutex::default(),
        }
    }

    /// Runs until the program ends.
    pub(crate) async fn run(self: Arc<Self>) {
        let services = &self.services;
        let (mut looked, mut logged, mut expired) = (None::<Instant>, None::<Instant>, None);
        let mut steps_back = 0;
        let every = (self.purge_grace / PURGES_PER_GRACE).clamp(MIN_INTERVAL, MAX_INTERVAL);
        let expire_every =
            (self.keep_versions / EXPIRIES_PER_KEEP).clamp(MIN_INTERVAL, MAX_INTERVAL);
        loop {
            let due = looked.is_none_or(|at| at.elapsed() >= every);
            if due && let Err(error) = self.purge().await {
                report_error(services, error);
            }
            if due && let Err(error) = self.clean_up_purges().await {
                report_error(services, error);
            }
            if expired.is_none_or(|at: Instant| at.elapsed() >= expire_every) {
                expired = Some(Instant::now());
                if let Err(error) = self.expire_versions().await {
                    report_error(services, error);
                }
            }
            let steps = services.clock.steps_back();
            if steps_back != steps {
                match self.reschedule_debts().await {
                    Ok(()) => steps_back = steps,
                    Err(error) => report_error(services, error),
                }
            }
            if due {
                looked = Some(Instant::now());
            }
            if logged.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
                logged = Some(Instant::now());
                self.log_state();
            }
            tokio::select! {
                () = tokio::time::sleep(every.min(expire_every).min(LOG_EVERY)) => {}
                () = services.shutdown.begun() => return,
            }
        }
    }

    /// Purges repositories that their present host, or the directory, called deleted, and
    /// that have stayed so for the grace period.
    async fn purge(&self) -> Result<(), StoreError> {
        let grace = self.purge_grace;
        let services = self.services.clone();
        if !is_believed(&services.clock, grace) {
            return Ok(());
        }
        let find = move || {
            let now = services.clock.time();
            let mut due = Vec::new();
            for row in services.store.scan_repos(RepoId(0)) {
                let (id, repo) = row?;
                if account::is_purge_due(now, &repo, grace) && has_anything(&services, id, &repo)? {
                    due.push(repo.did);
                }
            }
            Ok::<_, StoreError>(due)
        };
        let work = "looking for repositories to purge";
        for did in blocking(&self.services.metrics, work, find).await? {
            let purged = self.desks.with_repo(&did, move |turn: &mut RepoTurn<'_>| {
                let services = turn.services;
                let now = services.clock.now();
                let Some(tx) = turn.tx.as_mut() else {
                    return false;
                };
                // The repository may have come back meanwhile, or the clock was set.
                let due = account::is_purge_due(now.time, &tx.repo, grace)
                    && is_believed(&services.clock, grace);
                let Some(id) = tx.id.filter(|_| due) else {
                    return false;
                };
                // If the rows cannot be read now, the next search tries again.
                if !has_anything(services, id, &tx.repo).unwrap_or(false) {
                    return false;
                }
                tx.purge(now);
                services.metrics.purged.inc();
                true
            });
            match purged.await {
                Ok(true) => {
                    tracing::info!(%did, "purged: the repository was deleted, and the grace period has passed");
                }
                Ok(false) => {}
                // An error of one repository does not stop the others.
                Err(error) => report_error(&self.services, error),
            }
        }
        Ok(())
    }

    /// Reschedules all debts after the clock was set back: their retry times may be far in
    /// the future now, so each desk computes them again.
    async fn reschedule_debts(&self) -> Result<(), StoreError> {
        let services = self.services.clone();
        let find = move || {
            for row in services.store.scan_repos(RepoId(0)) {
                let (_, repo) = row?;
                // The next event reports again that the document is old.
                services.schedule.refreshed(&repo.did);
            }
            let debts = services.store.view().debts();
            let ids: Result<Vec<RepoId>, StoreError> = debts.map(|row| Ok(row?.0)).collect();
            let ids = ids?;
            let owing = read_repos(&services.store, &ids).map(|repo| Ok(repo?.did));
            owing.collect::<Result<Vec<_>, StoreError>>()
        };
        let work = "reading debts after the clock was set back";
        for did in blocking(&self.services.metrics, work, find).await? {
            let change = self.desks.with_repo(&did, |turn: &mut RepoTurn<'_>| {
                let now = turn.services.clock.time();
                if let Some(tx) = &turn.tx {
                    turn.services.schedule.note(now, &tx.repo);
                }
            });
            change.await?;
        }
        Ok(())
    }

    /// Logs the state of the mirror.
    fn log_state(&self) {
        let services = &self.services;
        let metrics = &services.metrics;
        tracing::info!(
            log_head = services.store.durable_head().next_seq.saturating_sub(1),
            frames = metrics.frames.get(),
            applied = metrics.events_applied.get(),
            snapshots = metrics.snapshots_written.get(),
            records_fetched = metrics.records_fetched.get(),
            owed = services.schedule.len(),
            at_work = services.schedule.at_work(),
            waiting = self.desks.queued_items(),
            "state"
        );
    }

    /// Deletes superseded records that were kept long enough.
    async fn expire_versions(&self) -> Result<(), StoreError> {
        let keep = self.keep_versions;
        let now = self.services.clock.time();
        let since = Time(now.0.saturating_sub(micros(keep)));
        let store = self.services.store.clone();
        let below = blocking(&self.services.metrics, EXPIRY_READ, move || {
            store.view().log_number_after(since)
        })
        .await?;
        let mut from = Vec::new();
        loop {
            let store = self.services.store.clone();
            let start = from.clone();
            let (old, last) = blocking(&self.services.metrics, EXPIRY_READ, move || {
                let (mut old, mut last) = (Vec::new(), None);
                for row in store.view().superseded_keys(&start).take(ROWS_PER_READ) {
                    let (place, by) = row?;
                    if by < below {
                        old.push(place.clone());
                    }
                    last = Some(place);
                }
                Ok((old, last))
            })
            .await?;
            let expired = old.len() as u64;
            for part in old.chunks(EXPIRED_PER_CHANGE) {
                self.write(Upkeep::Expire(part.to_vec())).await?;
            }
            self.services.metrics.versions_expired.add(expired);
            let Some(mut last) = last.filter(|_| !self.services.shutdown.has_begun()) else {
                return Ok(());
            };
            // The least key above the last one.
            last.push(0);
            from = last;
        }
    }

    /// Writes one step of the upkeep.
    async fn write(&self, upkeep: Upkeep) -> Result<(), StoreError> {
        let change = Change {
            tick: self.services.clock.now().tick,
            upkeep: Some(upkeep),
            ..Change::default()
        };
        write(&self.services.store, change).await?;
        Ok(())
    }
}
