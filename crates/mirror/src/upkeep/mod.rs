//! Periodic upkeep: purges what was deleted long enough ago and removes what a purge
//! leaves behind, expires superseded records, trims the log, overruns consumers of the log that
//! have stopped, reschedules debts after the clock was set back, and logs the state.
//!
//! | module | what it does |
//! |---|---|
//! | `purge` | deletes the records of repositories that are deleted for good |
//! | `purge_cleanup` | removes the traces that a purge leaves |
//! | `retention` | superseded records, the front of the log, and consumers that hold them back |

mod purge;
mod purge_cleanup;
mod retention;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gapless_core::ledger::RepoId;
use gapless_store::change::{Change, Upkeep};
use gapless_store::error::StoreError;

use crate::desk::{Desks, RepoTurn};
use crate::repair::reload::read_repos;
use crate::services::Services;
use crate::settings::MirrorSettings;
use crate::store_io::{blocking, write};
use gapless_store::sync::Mutex;

/// Rows that one view brings in a search.
const ROWS_PER_READ: usize = 10_000;
/// How often the state is logged.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// How often the time that the store has lived through is written, and the consumers of the log are
/// reviewed. A crash forgets at most that much of the time.
const REVIEW_EVERY: Duration = Duration::from_secs(10);
/// Searches for repositories to purge in one grace period. Each reads every row.
const PURGES_PER_GRACE: u32 = 10;
/// Searches for superseded records in the time for which they are kept.
const EXPIRIES_PER_KEEP: u32 = 24;
/// The longest and the shortest time between two searches.
const MAX_INTERVAL: Duration = Duration::from_secs(3600);
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The task that does the upkeep.
pub(crate) struct UpkeepTask {
    services: Arc<Services>,
    desks: Arc<Desks>,
    settings: Arc<MirrorSettings>,
    /// When the engine's files were last freed of purged data.
    scoured: Mutex<Option<Instant>>,
    /// When a consumer was last overrun because the disk was almost full.
    relieved: Mutex<Option<Instant>>,
    /// Whether a consumer was overrun, so that something may go now.
    released: AtomicBool,
    /// The number of the next row of the audit that is reported; `None` before reporting begins.
    audited: Mutex<Option<u64>>,
}

/// When each part of the upkeep last began.
#[derive(Default)]
struct Due {
    purges: Option<Instant>,
    reviews: Option<Instant>,
    expiries: Option<Instant>,
    logs: Option<Instant>,
}

impl Due {
    /// Whether a part that runs at this interval is due; then it begins now.
    fn begins(
        &mut self,
        part: impl FnOnce(&mut Due) -> &mut Option<Instant>,
        every: Duration,
    ) -> bool {
        let last = part(self);
        let due = last.is_none_or(|at| at.elapsed() >= every);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

fn interval(wanted: Duration) -> Duration {
    wanted.clamp(MIN_INTERVAL, MAX_INTERVAL)
}

/// Reports an error: a final error ends the program; after any other, the upkeep goes on. A full
/// disk is reported elsewhere.
fn report_error(services: &Services, error: StoreError) {
    if error.is_final() {
        services.shutdown.fail(error);
    } else if !matches!(error, StoreError::Full(_)) {
        tracing::warn!(%error, "a part of the upkeep failed; Gapless tries again later");
    }
}

impl UpkeepTask {
    pub(crate) fn new(
        services: Arc<Services>,
        desks: Arc<Desks>,
        settings: Arc<MirrorSettings>,
    ) -> UpkeepTask {
        UpkeepTask {
            services,
            desks,
            settings,
            scoured: Mutex::default(),
            relieved: Mutex::default(),
            released: AtomicBool::default(),
            audited: Mutex::default(),
        }
    }

    /// Deletes and redacts what is due, until the program ends. A pass may take hours.
    pub(crate) async fn run(self: Arc<Self>) {
        let services = &self.services;
        let mut due = Due::default();
        let mut steps_back = 0;
        let purges = interval(self.settings.purge_grace / PURGES_PER_GRACE);
        let keep = self.settings.keep_log.unwrap_or(Duration::MAX);
        let expiries = interval(keep.min(self.settings.keep_versions) / EXPIRIES_PER_KEEP);
        loop {
            if due.begins(|due| &mut due.purges, purges) {
                self.report(self.purge().await);
                self.report(self.clean_up_purges().await);
            }
            let released = self.released.swap(false, Ordering::Relaxed);
            if due.begins(|due| &mut due.expiries, expiries) || released {
                self.report(self.expire_versions().await);
                self.report(self.trim_log().await);
            }
            let steps = services.clock.steps_back();
            if steps_back != steps {
                match self.reschedule_debts().await {
                    Ok(()) => steps_back = steps,
                    Err(error) => report_error(services, error),
                }
            }
            if self.pause().await {
                return;
            }
        }
    }

    /// Does what must not wait for a long pass, until the program ends: whether the clock is believed,
    /// the time that the store has lived through, consumers that have stopped, and a disk that is
    /// almost full.
    pub(crate) async fn watch(self: Arc<Self>) {
        let services = &self.services;
        let mut due = Due::default();
        self.report(self.begin_reporting().await);
        loop {
            if let Some(frames) = services.store.frames() {
                frames.doubt_clock(!services.clock.is_believed(self.settings.window));
            }
            if due.begins(|due| &mut due.reviews, REVIEW_EVERY) {
                self.report(self.write_lived().await);
                self.report(self.review_consumers().await);
            }
            self.report(self.relieve_disk().await);
            if due.begins(|due| &mut due.logs, LOG_EVERY) {
                self.log_state();
            }
            if self.pause().await {
                match self.write_lived().await {
                    // The next start goes on from the last value.
                    Ok(()) | Err(StoreError::Closed) => {}
                    Err(error) => report_error(services, error),
                }
                return;
            }
        }
    }

    /// Waits for the next pass. Returns whether the program ends.
    async fn pause(&self) -> bool {
        tokio::select! {
            () = tokio::time::sleep(MIN_INTERVAL) => false,
            () = self.services.shutdown.begun() => true,
        }
    }

    /// Reports an error of one part of the upkeep.
    fn report(&self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            report_error(&self.services, error);
        }
    }

    /// Writes the time that the store has lived through.
    async fn write_lived(&self) -> Result<(), StoreError> {
        let lived = self.services.clock.lived();
        self.write(Upkeep::Live(lived)).await
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
