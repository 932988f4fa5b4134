//! What the mirror says of itself: how things stand, repository by repository,
//! each with its evidence. From durable rows alone.

use std::fmt::Write;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use gapless_core::ledger::complete::{self, Answer, Level};
use gapless_core::ledger::{Followed, Repo, RepoId, UpstreamId, account};
use gapless_store::error::StoreError;

use super::Mirror;
use crate::api::{
    ApiError, DebtStatus, Gap, GapsPage, LogStatus, Readiness, RepoAnswer, RepoCounts, ReposPage,
    Status, SweepAnswer, UpstreamAnswer, kind_name, seconds_between, timestamp,
};
use crate::metrics::head;

/// Counting every repository is not done more often than this, and takes at most
/// a twentieth of the time.
const COUNT_EVERY: Duration = Duration::from_millis(500);

/// All repositories, counted.
#[derive(Clone, Copy)]
pub struct Counted {
    at: Instant,
    took: Duration,
    counts: RepoCounts,
    parked: u64,
    debts: u64,
    oldest_debt: Option<u64>,
}

impl Counted {
    pub fn total(&self) -> u64 {
        self.counts.total
    }
}

pub fn failed(error: StoreError) -> ApiError {
    match error.is_final() {
        true => ApiError::Unavailable(error.to_string()),
        false => ApiError::Internal(error.to_string()),
    }
}

impl Mirror {
    /// The whole answer about a repository.
    pub fn answer(&self, repo: &Repo) -> Answer {
        let host = repo.host.and_then(|host| self.shared.hosts.get(host));
        let now = self.shared.clock.glance();
        self.shared.decide(now, |context| {
            complete::answer(context, repo, host.as_ref())
        })
    }

    fn url_of(&self, id: UpstreamId) -> Option<String> {
        let covers = self.shared.upstreams.read();
        covers.get(id).map(|source| source.row.url.clone())
    }

    pub(super) fn repo_answer(
        &self,
        id: RepoId,
        repo: &Repo,
        count: bool,
    ) -> Result<RepoAnswer, ApiError> {
        let answer = self.answer(repo);
        let host = repo.host.and_then(|host| self.shared.hosts.get(host));
        let via = answer.evidence.via.and_then(|id| self.url_of(id));
        let mut records = 0;
        if count {
            for record in self.shared.store.view().records(id) {
                record.map_err(failed)?;
                records += 1;
            }
        }
        Ok(RepoAnswer::new(repo, &answer, host.as_ref(), via, records))
    }

    pub(super) fn one(&self, did: &Did) -> Result<Option<RepoAnswer>, ApiError> {
        let found = self.shared.store.view().repo_by_did(did).map_err(failed)?;
        match found {
            None => Ok(None),
            Some((id, repo)) => self.repo_answer(id, &repo, true).map(Some),
        }
    }

    pub(super) fn page(&self, after: Option<u64>, limit: usize) -> Result<ReposPage, ApiError> {
        let view = self.shared.store.view();
        let from = RepoId(after.map_or(0, |after| after.saturating_add(1)));
        let mut page = ReposPage::default();
        for row in view.repos(from).take(limit) {
            let (id, _) = row.map_err(failed)?;
            let Some(repo) = view.repo(id).map_err(failed)? else {
                continue;
            };
            page.repos.push(self.repo_answer(id, &repo, true)?);
            page.cursor = Some(id.0);
        }
        if page.repos.len() < limit {
            page.cursor = None;
        }
        Ok(page)
    }

    pub(super) fn gaps_page(&self, after: Option<u64>, limit: usize) -> Result<GapsPage, ApiError> {
        let view = self.shared.store.view();
        let from = RepoId(after.map_or(0, |after| after.saturating_add(1)));
        let mut page = GapsPage::default();
        for row in view.repos(from) {
            let (id, _) = row.map_err(failed)?;
            let Some(repo) = view.repo(id).map_err(failed)? else {
                continue;
            };
            // Hidden ones are as their owners want them.
            if account::is_hidden(repo.account) {
                continue;
            }
            if let Some(gap) = Gap::new(&repo, &self.answer(&repo)) {
                page.gaps.push(gap);
                page.cursor = Some(id.0);
            }
            if page.gaps.len() >= limit {
                return Ok(page);
            }
        }
        page.cursor = None;
        Ok(page)
    }

    /// Counts every repository, or remembers a count that is young enough.
    pub(super) fn count(&self) -> Result<Counted, ApiError> {
        // One at a time: whoever comes meanwhile has the same answer.
        let mut kept = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = &*kept
            && kept.at.elapsed() < COUNT_EVERY.max(kept.took * 20)
        {
            return Ok(*kept);
        }
        let began = Instant::now();
        let view = self.shared.store.view();
        let mut counts = RepoCounts::default();
        let now = self.shared.clock.glance();
        let (mut debts, mut oldest) = (0, None);
        for row in view.debts() {
            let (_, debt) = row.map_err(failed)?;
            debts += 1;
            oldest = oldest.max(Some(seconds_between(debt.since, now.time)));
        }
        for row in view.repos(RepoId(0)) {
            let (id, mut repo) = row.map_err(failed)?;
            counts.total += 1;
            if account::is_hidden(repo.account) {
                counts.hidden += 1;
                continue;
            }
            // Rows come without their debts; only the seemingly complete matter.
            let mut answer = self.answer(&repo);
            if answer.complete()
                && let Some(whole) = view.repo(id).map_err(failed)?
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
        }
        let mut parked = 0;
        for id in view.parked_repos().map_err(failed)?.into_keys() {
            parked += view.parked(id).map_err(failed)?.len() as u64;
        }
        let counted = Counted {
            at: Instant::now(),
            took: began.elapsed(),
            counts,
            parked,
            debts,
            oldest_debt: oldest,
        };
        *kept = Some(counted);
        Ok(counted)
    }

    pub(super) fn upstream_answers(&self) -> Result<Vec<UpstreamAnswer>, ApiError> {
        let view = self.shared.store.view();
        let sources: Vec<_> = {
            let covers = self.shared.upstreams.read();
            covers
                .iter()
                .map(|(id, source)| (id, source.clone()))
                .collect()
        };
        let mut all = Vec::new();
        for (id, source) in sources {
            let link = self.following.link(id).unwrap_or_default();
            let host = source.row.host.and_then(|host| self.shared.hosts.get(host));
            let sweep = source.row.host.and_then(|host| self.sweeps.get(host));
            let every = sweep
                .map(|sweep| sweep.every)
                .unwrap_or_default()
                .max(self.shared.settings.sweep_every);
            all.push(UpstreamAnswer {
                url: source.row.url.clone(),
                kind: kind_name(source.row.kind).to_owned(),
                host: host.as_ref().map(|host| host.name.clone()),
                connected: source.stream.is_connected(),
                open: source.stream.open_epoch(&source.row).is_some(),
                cursor: view.cursor(id).map_err(failed)?.map(|cursor| cursor.seq),
                epoch: source.row.epoch.0,
                first_cursor_since_reset: source.row.first_cursor_since_reset,
                lag_seconds: link.lag.map(|lag| lag.as_secs_f64()),
                last_frame: link.last_frame.and_then(timestamp),
                sweep: SweepAnswer {
                    every_seconds: every.as_secs(),
                    last: host
                        .and_then(|host| host.swept)
                        .and_then(|swept| timestamp(swept.at)),
                    suspects: sweep.map_or(0, |sweep| sweep.suspects),
                },
                error: link.error.filter(|_| !source.stream.is_connected()),
                next_dial: link.next_dial.and_then(timestamp),
            });
        }
        Ok(all)
    }

    pub(super) fn state(&self) -> Result<Status, ApiError> {
        let counted = self.count()?;
        let head = self.shared.store.durable_head().next_seq.checked_sub(1);
        let hosts = self.shared.hosts.all();
        let suspended = hosts.into_iter().filter(|(_, host)| host.hiding_suspended);
        Ok(Status {
            repos: counted.counts,
            log: LogStatus {
                head: head.filter(|head| *head > 0),
            },
            upstreams: self.upstream_answers()?,
            debt: DebtStatus {
                repos: counted.debts,
                oldest_seconds: counted.oldest_debt,
            },
            parked: counted.parked,
            dead_letters: self.shared.dead_letters.load(Ordering::Relaxed),
            hiding_suspended: suspended.map(|(_, host)| host.name).collect(),
        })
    }

    pub(super) fn readiness(&self) -> Readiness {
        let mut reasons = Vec::new();
        if let Some(fault) = self.shared.end.fault() {
            reasons.push(format!("the store cannot be written: {fault}"));
        }
        let ready = &self.config.ready;
        match self.count() {
            Err(error) => reasons.push(error.to_string()),
            Ok(counted) => {
                let age = counted.oldest_debt.unwrap_or(0);
                if age > ready.max_debt_age.as_secs() {
                    reasons.push(format!(
                        "something has been owed for {age} s (ready.max_debt_age is {} s)",
                        ready.max_debt_age.as_secs()
                    ));
                }
            }
        }
        let now = self.shared.clock.time();
        let covers = self.shared.upstreams.read();
        for (_, source) in covers.iter() {
            let heard = source.stream.heard_at();
            let fresh = heard.is_some_and(|at| now.since(at) <= ready.max_upstream_age);
            if !fresh && source.row.followed != Followed::ForTracked {
                reasons.push(format!(
                    "nothing was heard of {} for longer than ready.max_upstream_age",
                    source.row.url
                ));
            }
        }
        Readiness {
            ready: reasons.is_empty(),
            reasons,
        }
    }

    pub(super) fn metrics_text(&self) -> Result<String, ApiError> {
        let mut out = String::new();
        self.shared.metrics.write(&mut out);
        let counted = self.count()?;
        let counts = counted.counts;
        let (changes, bytes) = self.shared.store.queue_depth();
        let gauges: [(&str, &str, u64); 14] = [
            (
                "gapless_repos",
                "Repositories that are known.",
                counts.total,
            ),
            (
                "gapless_repos_complete",
                "Of these: complete.",
                counts.complete,
            ),
            (
                "gapless_repos_proven",
                "Of these: complete, and the root was recomputed.",
                counts.proven,
            ),
            (
                "gapless_repos_incomplete",
                "Neither complete nor hidden.",
                counts.incomplete,
            ),
            (
                "gapless_repos_hidden",
                "Deactivated, suspended, taken down or deleted.",
                counts.hidden,
            ),
            (
                "gapless_debts",
                "Repositories for which something is owed.",
                counted.debts,
            ),
            (
                "gapless_debt_oldest_seconds",
                "How long the oldest debt has been owed.",
                counted.oldest_debt.unwrap_or(0),
            ),
            ("gapless_parked", "Frames that wait.", counted.parked),
            (
                "gapless_parked_bytes",
                "Their bytes.",
                self.shared.parked_bytes.load(Ordering::Relaxed),
            ),
            (
                "gapless_dead_letters",
                "Dead letters that are kept.",
                self.shared.dead_letters.load(Ordering::Relaxed),
            ),
            (
                "gapless_log_head",
                "The newest log number.",
                self.shared.store.durable_head().next_seq.saturating_sub(1),
            ),
            (
                "gapless_at_work",
                "Repositories that are asked about or fetched now.",
                self.shared.schedule.at_work() as u64,
            ),
            (
                "gapless_queue_changes",
                "Changes that wait to be written.",
                changes as u64,
            ),
            ("gapless_queue_bytes", "Their bytes.", bytes as u64),
        ];
        for (name, help, value) in gauges {
            head(&mut out, name, "gauge", help);
            let _ = writeln!(out, "{name} {value}");
        }
        self.upstream_metrics(&mut out)?;
        Ok(out)
    }

    fn upstream_metrics(&self, out: &mut String) -> Result<(), ApiError> {
        let upstreams = self.upstream_answers()?;
        type Read = fn(&UpstreamAnswer) -> Option<f64>;
        let gauges: [(&str, &str, Read); 4] = [
            (
                "gapless_upstream_connected",
                "Whether an upstream is connected.",
                |one| Some(f64::from(u8::from(one.connected))),
            ),
            (
                "gapless_upstream_open",
                "Whether its epoch is open.",
                |one| Some(f64::from(u8::from(one.open))),
            ),
            (
                "gapless_upstream_cursor",
                "The last event whose effects are durable.",
                |one| one.cursor.map(|cursor| cursor as f64),
            ),
            (
                "gapless_upstream_lag_seconds",
                "How old its newest event was when it came.",
                |one| one.lag_seconds,
            ),
        ];
        for (name, help, read) in gauges {
            head(out, name, "gauge", help);
            for one in &upstreams {
                if let Some(value) = read(one) {
                    let _ = writeln!(out, "{name}{{upstream=\"{}\"}} {value}", one.url);
                }
            }
        }
        Ok(())
    }
}
