//! What has to be done now and then: purge what was deleted long enough ago and
//! follow that up, let go of superseded records, look at
//! what is owed after the clock was set back, and say how things stand.

use std::ops::ControlFlow;
use std::sync::Weak;
use std::time::{Duration, Instant};

use gapless_core::ledger::account;
use gapless_core::ledger::notice::Dropped;
use gapless_core::ledger::{Held, Repo, RepoId};
use gapless_store::change::{Entry, What};
use gapless_store::error::StoreError;

use super::Mirror;
use super::parts::{AT_A_TIME, in_parts};
use crate::clock::Clock;
use crate::fetch::counted;
use crate::ingest::desk::Turn;
use crate::shared::Shared;
use crate::store_io::blocking;

/// How often a line says how things stand.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// It is looked for repositories to purge so often in a time of grace. Every row
/// is read for it.
const LOOKS: u32 = 10;
/// And for superseded records in the time for which they are kept.
const EXPIRES: u32 = 24;
const LOOK_AT_LEAST: Duration = Duration::from_secs(3600);
const LOOK_AT_MOST: Duration = Duration::from_secs(1);
/// How long the clock must have kept step before a purge believes it, or as long as
/// the time of grace if that is less. A purge cannot be undone: it must not come of a
/// clock that was wrong for a moment.
const BELIEVED_AFTER: Duration = Duration::from_secs(3600);

pub async fn run(mirror: Weak<Mirror>) {
    let (mut looked, mut said, mut expired) = (None::<Instant>, None::<Instant>, None);
    let mut steps_back = 0;
    loop {
        let Some(strong) = mirror.upgrade() else {
            return;
        };
        let shared = strong.shared.clone();
        let grace = strong.config.purge_grace;
        let every = (grace / LOOKS).clamp(LOOK_AT_MOST, LOOK_AT_LEAST);
        let due = looked.is_none_or(|at| at.elapsed() >= every);
        if due && let Err(error) = strong.purge().await {
            later(&shared, error);
        }
        if due && let Err(error) = strong.follow_up().await {
            later(&shared, error);
        }
        let expire_every =
            (strong.config.keep_versions / EXPIRES).clamp(LOOK_AT_MOST, LOOK_AT_LEAST);
        if expired.is_none_or(|at: Instant| at.elapsed() >= expire_every) {
            expired = Some(Instant::now());
            if let Err(error) = strong.expire_versions().await {
                later(&shared, error);
            }
        }
        let steps = shared.clock.steps_back();
        if steps_back != steps {
            match strong.schedule_anew().await {
                Ok(()) => steps_back = steps,
                Err(error) => later(&shared, error),
            }
        }
        if due {
            looked = Some(Instant::now());
        }
        if said.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
            said = Some(Instant::now());
            strong.log_state();
        }
        drop(strong);
        tokio::select! {
            () = tokio::time::sleep(every.min(expire_every).min(SAY_EVERY)) => {}
            () = shared.end.ended() => return,
        }
    }
}

fn later(shared: &Shared, error: StoreError) {
    match error.is_final() {
        true => shared.end.fail(error),
        false => tracing::warn!(%error, "this part of the upkeep goes on later"),
    }
}

/// Whether the clock can be believed that the time of grace has passed.
fn is_believed(clock: &Clock, grace: Duration) -> bool {
    clock.kept_step() >= grace.min(BELIEVED_AFTER)
}

/// Whether there is anything of a repository: also what only waits, or is said.
fn has_anything(shared: &Shared, id: RepoId, repo: &Repo) -> Result<bool, StoreError> {
    if repo.held != Held::Nothing {
        return Ok(true);
    }
    let view = shared.store.view();
    Ok(!view.parked(id)?.is_empty() || view.claims(id).next().transpose()?.is_some())
}

impl Mirror {
    /// Purges what its present host, or the directory, called deleted, and what
    /// has stayed so for the time of grace.
    async fn purge(&self) -> Result<(), StoreError> {
        let grace = self.config.purge_grace;
        let shared = self.shared.clone();
        if !is_believed(&shared.clock, grace) {
            return Ok(());
        }
        let find = move || {
            let now = shared.clock.time();
            let mut due = Vec::new();
            let read = |from| shared.store.view().repos(from);
            in_parts(AT_A_TIME, RepoId(0), read, |id, repo| {
                if account::purge_due(now, &repo, grace) && has_anything(&shared, id, &repo)? {
                    due.push(repo.did);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            Ok::<_, StoreError>(due)
        };
        let work = "looking for repositories to purge";
        for did in blocking(&self.shared.metrics, work, find).await? {
            let purged = self.desks.visit(&did, move |turn: &mut Turn<'_>| {
                let shared = turn.shared;
                let now = shared.clock.now();
                let Some(draft) = turn.draft.as_mut() else {
                    return false;
                };
                // It may have come back meanwhile, or the clock was set.
                let due = account::purge_due(now.time, &draft.repo, grace)
                    && is_believed(&shared.clock, grace);
                let Some(id) = draft.id.filter(|_| due) else {
                    return false;
                };
                // What cannot be read now is looked at again.
                if !has_anything(shared, id, &draft.repo).unwrap_or(false) {
                    return false;
                }
                account::purged(now, &mut draft.repo);
                let revs: Vec<_> = draft.parked.keys().copied().collect();
                for rev in revs {
                    draft.drop_frame(rev, Dropped::Superseded);
                }
                draft.purge(Entry {
                    at: now.time,
                    source: None,
                    what: What::Purge,
                    frame: None,
                });
                shared.metrics.purged.inc();
                true
            });
            match purged.await {
                Ok(true) => {
                    tracing::info!(%did, "purged: deleted by its owner, and the time of grace has passed");
                }
                Ok(false) => {}
                // The others do not wait for it.
                Err(error) => later(&self.shared, error),
            }
        }
        Ok(())
    }

    /// The clock was set back: what is owed was put off until times that are far away
    /// now. Each desk says anew when it may be tried.
    async fn schedule_anew(&self) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let find = move || {
            let read = |from| shared.store.view().repos(from);
            in_parts(AT_A_TIME, RepoId(0), read, |_, repo| {
                // Its next event tells again that the document is old.
                shared.schedule.refreshed(&repo.did);
                Ok::<_, StoreError>(ControlFlow::Continue(()))
            })?;
            let debts = shared.store.view().debts();
            let ids: Result<Vec<RepoId>, StoreError> = debts.map(|row| Ok(row?.0)).collect();
            let mut owing = Vec::new();
            counted::each(&shared.store, &ids?, |repo| owing.push(repo.did))?;
            Ok::<_, StoreError>(owing)
        };
        let work = "reading debts after the clock was set back";
        for did in blocking(&self.shared.metrics, work, find).await? {
            let visit = self.desks.visit(&did, |turn: &mut Turn<'_>| {
                let now = turn.shared.clock.time();
                if let Some(draft) = &turn.draft {
                    turn.shared.schedule.note(now, &draft.repo);
                }
            });
            visit.await?;
        }
        Ok(())
    }

    fn log_state(&self) {
        let shared = &self.shared;
        let metrics = &shared.metrics;
        tracing::info!(
            log_head = shared.store.durable_head().next_seq.saturating_sub(1),
            frames = metrics.frames.get(),
            applied = metrics.events_applied.get(),
            snapshots = metrics.snapshots_written.get(),
            records_fetched = metrics.records_fetched.get(),
            owed = shared.schedule.len(),
            at_work = shared.schedule.at_work(),
            waiting = self.desks.waiting(),
            "state"
        );
    }
}
