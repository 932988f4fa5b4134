//! Counts all repositories: how many are complete, and what is owed.
//!
//! Completeness is computed and never stored, so a count reads every row. A small mirror is
//! counted for every question. If a count takes longer than [`MAX_WAIT`], the answer is the
//! last count with its time, while a task makes the next count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gapless_core::ledger::complete::Level;
use gapless_core::ledger::{Epoch, RepoId, Tick, Time, UpstreamId, account, cover};
use gapless_store::error::StoreError;
use tokio::sync::Notify;

use crate::api::{ApiError, RepoCounts, seconds_between};
use crate::desk::Desks;
use crate::inspect::repo::holds_all_keys;
use crate::services::Services;
use crate::settings::ReadySettings;
use gapless_store::sync::Mutex;

/// The shortest time between two counts. Counts take at most one part in
/// [`MAX_TIME_SHARE`] of the time, unless the state of an upstream has changed.
const COUNT_EVERY: Duration = Duration::from_millis(500);
const MAX_TIME_SHARE: u32 = 20;
/// A count that takes longer than this is not waited for if there is an older one.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The result of one count.
#[derive(Clone)]
pub(crate) struct CountResult {
    at: Instant,
    pub(crate) time: Time,
    took: Duration,
    /// The state of the upstreams at the time of the count.
    cover_states: Vec<CoverState>,
    pub(crate) counts: RepoCounts,
    pub(crate) parked: u64,
    pub(crate) debts: u64,
    /// Debts that are older than `ready.max_debt_age`.
    pub(crate) overdue: u64,
    pub(crate) oldest_debt: Option<u64>,
}

/// The state of an upstream that decides about all its repositories at once: whether its
/// stream is live, its epoch, and the tick of its last unreadable frame.
type CoverState = (UpstreamId, bool, Epoch, Option<Tick>);

/// Where the counts of an answer come from.
#[derive(Debug, PartialEq, Eq)]
enum CountSource {
    Cached,
    /// The cached count, while the task makes a new one.
    CachedForNow,
    New,
}

fn count_source(age: Duration, took: Duration, unchanged: bool) -> CountSource {
    if age < COUNT_EVERY.max(took * MAX_TIME_SHARE) && unchanged {
        CountSource::Cached
    } else if took > MAX_WAIT {
        CountSource::CachedForNow
    } else {
        CountSource::New
    }
}

/// Counts the repositories, and keeps the last count.
pub(crate) struct RepoCounter {
    services: Arc<Services>,
    desks: Arc<Desks>,
    /// Older debts count as overdue.
    max_debt_age: Duration,
    counted: Mutex<Option<CountResult>>,
    /// Held while repositories are counted: one count runs at a time.
    counting: Mutex<()>,
    /// Wakes the task that counts, after a question was answered with an older count.
    recount: Notify,
}

/// Counts again whenever a question was answered with an older count.
pub(crate) async fn run(counter: Arc<RepoCounter>) {
    loop {
        tokio::select! {
            () = counter.recount.notified() => {}
            () = counter.services.shutdown.begun() => return,
        }
        let counting = counter.clone();
        let counted = tokio::task::spawn_blocking(move || counting.count_anew()).await;
        if let Ok(Err(error)) = counted {
            tracing::warn!(%error, "repositories could not be counted; the next question about them counts again");
        }
    }
}

impl RepoCounter {
    pub(crate) fn new(
        services: Arc<Services>,
        desks: Arc<Desks>,
        ready: &ReadySettings,
    ) -> RepoCounter {
        RepoCounter {
            services,
            desks,
            max_debt_age: ready.max_debt_age,
            counted: Mutex::default(),
            counting: Mutex::default(),
            recount: Notify::new(),
        }
    }

    /// The last count if that is recent enough, otherwise a new one.
    pub(crate) fn count(&self) -> Result<CountResult, ApiError> {
        let remembered = {
            let counted = self.counted.lock();
            counted.clone()
        };
        let Some(counted) = remembered else {
            return self.count_anew();
        };
        let unchanged = counted.cover_states == self.cover_states();
        match count_source(counted.at.elapsed(), counted.took, unchanged) {
            CountSource::Cached => Ok(counted),
            CountSource::CachedForNow => {
                self.recount.notify_one();
                Ok(counted)
            }
            CountSource::New => self.count_anew(),
        }
    }

    fn count_anew(&self) -> Result<CountResult, ApiError> {
        let asked = Instant::now();
        // One count at a time: callers that arrive meanwhile get its result.
        let _one = self.counting.lock();
        let cover_states = self.cover_states();
        let began = Instant::now();
        {
            let counted = self.counted.lock();
            if let Some(counted) = &*counted
                && counted.at.checked_sub(counted.took) > Some(asked)
                && counted.cover_states == cover_states
            {
                return Ok(counted.clone());
            }
        }
        let now = self.services.clock.last_tick_now();
        let (mut debts, mut overdue, mut oldest) = (0, 0, None);
        let longest = self.max_debt_age.as_secs();
        for row in self.services.store.view().debts() {
            let (_, debt) = row?;
            let age = seconds_between(debt.since, now.time);
            debts += 1;
            overdue += u64::from(age > longest);
            oldest = oldest.max(Some(age));
        }
        let counts = self.count_repos()?;
        let mut parked = 0;
        let view = self.services.store.view();
        let claims = &self.desks.totals().claims;
        if claims.count() > 0 {
            claims.recount(&view)?;
        }
        for id in view.parked_repos()?.into_keys() {
            parked += view.parked(id)?.len() as u64;
        }
        let counted = CountResult {
            at: Instant::now(),
            time: now.time,
            took: began.elapsed(),
            cover_states,
            counts,
            parked,
            debts,
            overdue,
            oldest_debt: oldest,
        };
        let mut kept = self.counted.lock();
        *kept = Some(counted.clone());
        Ok(counted)
    }

    /// Counts the repositories. Each row counts as it is when it is read.
    fn count_repos(&self) -> Result<RepoCounts, StoreError> {
        let mut counts = RepoCounts::default();
        let all_keys = holds_all_keys(&self.services);
        for row in self.services.store.scan_repos(RepoId(0)) {
            let (id, mut repo) = row?;
            // The scan reads rows without their debts: a bare name with a debt counts.
            if cover::is_bare_name(&repo)
                && let Some(whole) = self.services.store.view().repo(id)?
                && cover::is_bare_name(&whole)
            {
                continue;
            }
            counts.total += 1;
            if account::is_hidden(repo.account) {
                counts.hidden += 1;
                continue;
            }
            // Read the debts only if the repository seems complete without them.
            let mut answer = self.services.completeness(&repo);
            if answer.complete()
                && let Some(whole) = self.services.store.view().repo(id)?
            {
                repo = whole;
                answer = self.services.completeness(&repo);
            }
            if answer.complete() {
                counts.complete += 1;
                counts.proven += u64::from(answer.evidence.level == Level::Proven);
            } else {
                counts.incomplete += 1;
            }
            counts.not_recomputable += u64::from(repo.head().is_some() && !all_keys);
        }
        Ok(counts)
    }

    fn cover_states(&self) -> Vec<CoverState> {
        let now = self.services.clock.time();
        let covers = self.services.upstreams.read();
        let cover_states = covers.iter().map(|(id, source)| {
            let live = source.stream.live(now, &self.services.rules.settings);
            (id, live, source.row.epoch, source.row.unread_at)
        });
        cover_states.collect()
    }
}

impl CountResult {
    pub(crate) fn total(&self) -> u64 {
        self.counts.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_a_long_count_runs_an_older_one_is_the_answer() {
        let ms = Duration::from_millis;
        assert_eq!(count_source(ms(499), ms(1), true), CountSource::Cached);
        assert_eq!(count_source(ms(501), ms(1), true), CountSource::New);
        assert_eq!(
            count_source(ms(1), ms(1), false),
            CountSource::New,
            "an upstream is down"
        );
        assert_eq!(
            count_source(ms(19_000), ms(1_000), true),
            CountSource::Cached
        );
        assert_eq!(count_source(ms(20_000), ms(1_000), true), CountSource::New);
        assert_eq!(
            count_source(ms(50_000), ms(2_000), true),
            CountSource::CachedForNow
        );
        assert_eq!(
            count_source(ms(1), ms(2_000), false),
            CountSource::CachedForNow
        );
    }
}
