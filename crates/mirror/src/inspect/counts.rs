//! All repositories, counted: how many are complete, and what is owed.
//!
//! Completeness is computed and never stored, so counting reads every row. A mirror of
//! a few thousand is counted whenever somebody asks; where it takes longer than a
//! moment nobody waits for it: the last count is told, with its time, while the next
//! one is made.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gapless_core::ledger::complete::Level;
use gapless_core::ledger::{Epoch, RepoId, Tick, Time, UpstreamId, account, cover};
use gapless_store::error::StoreError;
use tokio::sync::Notify;

use crate::api::{ApiError, RepoCounts, seconds_between};
use crate::inspect::Inspector;

/// Counting is not done more often than this, and takes at most a twentieth of the
/// time, unless what upstreams show has changed.
const COUNT_EVERY: Duration = Duration::from_millis(500);
const SHARE: u32 = 20;
/// A count that takes longer than this is not waited for, if there is an older one.
const WAITED_FOR: Duration = Duration::from_secs(1);

/// All repositories, counted.
#[derive(Clone)]
pub struct Counted {
    at: Instant,
    pub(crate) time: Time,
    took: Duration,
    /// What the upstreams showed then.
    shown: Vec<Shown>,
    pub(crate) counts: RepoCounts,
    pub(crate) parked: u64,
    pub(crate) debts: u64,
    /// Of these: owed for longer than `ready.max_debt_age`.
    pub(crate) overdue: u64,
    pub(crate) oldest_debt: Option<u64>,
}

/// What an upstream shows of all its repositories at once: whether it can be
/// relied on, and which doubts there are.
type Shown = (UpstreamId, bool, Epoch, Option<Tick>);

/// Where the counts of an answer come from.
#[derive(Debug, PartialEq, Eq)]
enum CountSource {
    Remembered,
    /// And another count is made meanwhile.
    RememberedForNow,
    Anew,
}

fn count_source(age: Duration, took: Duration, as_shown: bool) -> CountSource {
    match age < COUNT_EVERY.max(took * SHARE) && as_shown {
        true => CountSource::Remembered,
        false if took > WAITED_FOR => CountSource::RememberedForNow,
        false => CountSource::Anew,
    }
}

/// The last count, and who makes the next one.
#[derive(Default)]
pub(crate) struct Counter {
    counted: Mutex<Option<Counted>>,
    /// Held while repositories are counted: one count runs at a time.
    counting: Mutex<()>,
    /// Wakes the task that counts: a question was answered with an older count.
    recount: Notify,
}

/// Counts again whenever a question was answered with an older count.
pub(crate) async fn run(inspector: Arc<Inspector>) {
    loop {
        tokio::select! {
            () = inspector.counter.recount.notified() => {}
            () = inspector.services.shutdown.begun() => return,
        }
        let counting = inspector.clone();
        let counted = tokio::task::spawn_blocking(move || counting.count_anew()).await;
        if let Ok(Err(error)) = counted {
            tracing::warn!(%error, "repositories could not be counted; the next question about them counts again");
        }
    }
}

impl Inspector {
    /// Counts every repository, or remembers.
    pub(crate) fn count(&self) -> Result<Counted, ApiError> {
        let remembered = {
            let counted = self.counter.counted.lock();
            counted.unwrap_or_else(PoisonError::into_inner).clone()
        };
        let Some(counted) = remembered else {
            return self.count_anew();
        };
        let as_shown = counted.shown == self.shown();
        match count_source(counted.at.elapsed(), counted.took, as_shown) {
            CountSource::Remembered => Ok(counted),
            CountSource::RememberedForNow => {
                self.counter.recount.notify_one();
                Ok(counted)
            }
            CountSource::Anew => self.count_anew(),
        }
    }

    fn count_anew(&self) -> Result<Counted, ApiError> {
        let asked = Instant::now();
        // One at a time: whoever comes meanwhile has the same answer.
        let _one = self
            .counter
            .counting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let shown = self.shown();
        let began = Instant::now();
        {
            let counted = self
                .counter
                .counted
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if let Some(counted) = &*counted
                && counted.at.checked_sub(counted.took) > Some(asked)
                && counted.shown == shown
            {
                return Ok(counted.clone());
            }
        }
        let now = self.services.clock.glance();
        let (mut debts, mut overdue, mut oldest) = (0, 0, None);
        let longest = self.settings.ready.max_debt_age.as_secs();
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
        if self.services.totals.claims.count() > 0 {
            self.services.totals.claims.recount(&view)?;
        }
        for id in view.parked_repos()?.into_keys() {
            parked += view.parked(id)?.len() as u64;
        }
        let counted = Counted {
            at: Instant::now(),
            time: now.time,
            took: began.elapsed(),
            shown,
            counts,
            parked,
            debts,
            overdue,
            oldest_debt: oldest,
        };
        let mut kept = self
            .counter
            .counted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *kept = Some(counted.clone());
        Ok(counted)
    }

    /// Each of them as it is when it is looked at.
    fn count_repos(&self) -> Result<RepoCounts, StoreError> {
        let mut counts = RepoCounts::default();
        let all_keys = self.holds_all_keys();
        for row in self.services.store.scan_repos(RepoId(0)) {
            let (id, mut repo) = row?;
            // Rows come without their debts: a name that something is owed for is more
            // than a name.
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
            // Likewise; only the seemingly complete matter.
            let mut answer = self.answer(&repo);
            if answer.complete()
                && let Some(whole) = self.services.store.view().repo(id)?
            {
                repo = whole;
                answer = self.answer(&repo);
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

    fn shown(&self) -> Vec<Shown> {
        let now = self.services.clock.time();
        let covers = self.services.upstreams.read();
        let shown = covers.iter().map(|(id, source)| {
            let live = source.stream.live(now, &self.services.rules.settings);
            (id, live, source.row.epoch, source.row.unread_at)
        });
        shown.collect()
    }
}

impl Counted {
    pub fn total(&self) -> u64 {
        self.counts.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_long_count_who_can_be_told_an_older_one() {
        let ms = Duration::from_millis;
        assert_eq!(count_source(ms(499), ms(1), true), CountSource::Remembered);
        assert_eq!(count_source(ms(501), ms(1), true), CountSource::Anew);
        assert_eq!(
            count_source(ms(1), ms(1), false),
            CountSource::Anew,
            "an upstream is down"
        );
        assert_eq!(
            count_source(ms(19_000), ms(1_000), true),
            CountSource::Remembered
        );
        assert_eq!(count_source(ms(20_000), ms(1_000), true), CountSource::Anew);
        assert_eq!(
            count_source(ms(50_000), ms(2_000), true),
            CountSource::RememberedForNow
        );
        assert_eq!(
            count_source(ms(1), ms(2_000), false),
            CountSource::RememberedForNow
        );
    }
}
