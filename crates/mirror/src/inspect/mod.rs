//! What the mirror says of itself: how things stand, repository by repository,
//! each with its evidence. From durable rows alone.

pub(crate) mod counts;
pub(crate) mod dead_letters;
mod hosts;
mod incomplete_since;
mod prometheus;
mod proof;
mod reach;
pub(crate) mod ready;
mod source_report;

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use gapless_atp::syntax::Did;
use gapless_core::ledger::complete::{self, Completeness};
use gapless_core::ledger::{Account, Repo, RepoId, UpstreamId, account, cover};

use crate::Mirror;
use crate::api::{
    ApiError, DebtStatus, Gap, GapsPage, LogStatus, Readiness, RefusedAnswer, RepoAnswer,
    ReposPage, Status, StoreStatus, SweepAnswer, UpstreamAnswer, followed_name, timestamp,
};
use crate::scan::{ROWS_PER_VIEW, scan_rows};

/// What is owed for longer than it should be may be so for one repository in a hundred:
/// among many, some always live on hosts that are gone.
const OVERDUE_ONE_IN: u64 = 100;

impl Mirror {
    /// The whole answer about a repository.
    pub fn answer(&self, repo: &Repo) -> Completeness {
        let host = repo.host.and_then(|host| self.services.hosts.get(host));
        let now = self.services.clock.glance();
        self.services.decide(now, |context| {
            complete::completeness(context, repo, host.as_ref())
        })
    }

    pub(crate) fn url_of(&self, id: UpstreamId) -> Option<String> {
        let covers = self.services.upstreams.read();
        covers.get(id).map(|source| source.row.url.clone())
    }

    pub(crate) fn repo_answer(
        &self,
        id: RepoId,
        repo: &Repo,
        count: bool,
    ) -> Result<RepoAnswer, ApiError> {
        let answer = self.answer(repo);
        let host = repo.host.and_then(|host| self.services.hosts.get(host));
        let via = answer.evidence.via.and_then(|id| self.url_of(id));
        let mut records = count.then_some(0);
        if let Some(counted) = &mut records {
            for record in self.services.store.view().records(id) {
                record?;
                *counted += 1;
            }
        }
        let mut told = RepoAnswer::new(repo, &answer, host.as_ref(), via, records);
        if count {
            self.add_claims(id, &mut told)?;
        }
        told.evidence.recomputable = repo.head().is_some() && self.holds_all_keys();
        if !told.complete {
            told.last_error = self.fetcher.last_errors.of(&repo.did).map(Into::into);
        }
        Ok(told)
    }

    /// Whether the keys of all records are held, so that roots can be recomputed.
    pub(crate) fn holds_all_keys(&self) -> bool {
        !self.services.rules.settings.wanted_keys_only
            || self.services.rules.filter.wanted.is_empty()
    }

    pub(crate) fn one(&self, did: &Did) -> Result<Option<RepoAnswer>, ApiError> {
        let found = self.services.store.view().repo_by_did(did)?;
        match found {
            None => Ok(None),
            Some((_, repo)) if cover::is_bare_name(&repo) => Ok(None),
            Some((id, repo)) => self.repo_answer(id, &repo, true).map(Some),
        }
    }

    pub(crate) fn page(&self, after: Option<u64>, limit: usize) -> Result<ReposPage, ApiError> {
        let view = self.services.store.view();
        let from = RepoId(after.map_or(0, |after| after.saturating_add(1)));
        let mut page = ReposPage::default();
        let mut read = 0;
        for row in view.repos(from).take(limit) {
            let (id, _) = row?;
            page.cursor = Some(id.0);
            read += 1;
            let repo = view.repo(id)?;
            if let Some(repo) = repo.filter(|repo| !cover::is_bare_name(repo)) {
                // Not counted: a walk through all pages would read every record.
                page.repos.push(self.repo_answer(id, &repo, false)?);
            }
        }
        if read < limit {
            page.cursor = None;
        }
        Ok(page)
    }

    pub(crate) fn gaps_page(&self, after: Option<u64>, limit: usize) -> Result<GapsPage, ApiError> {
        let from = RepoId(after.map_or(0, |after| after.saturating_add(1)));
        let mut page = GapsPage::default();
        if after.is_none() {
            (page.hosts, page.hosts_total) = self.host_gaps();
            page.reach = Some(self.reach()?);
        }
        let read = |from| self.services.store.view().repos(from);
        let looked = scan_rows(ROWS_PER_VIEW, from, read, |id, _| {
            let found = self.services.store.view().repo(id)?;
            let Some(repo) = found.filter(|repo| !cover::is_bare_name(repo)) else {
                return Ok(ControlFlow::Continue(()));
            };
            // Hidden ones are as their owners, or hosts, want them; unless the host
            // has lost them.
            if account::is_hidden(repo.account) && repo.account != Account::NotFound {
                page.hidden += 1;
                return Ok(ControlFlow::Continue(()));
            }
            let answer = self.answer(&repo);
            let known = self.circumstances(&repo, &answer);
            if let Some(mut gap) = Gap::new(&repo, &answer, known) {
                gap.last_error = self.fetcher.last_errors.of(&repo.did).map(Into::into);
                page.gaps.push(gap);
                page.cursor = Some(id.0);
            }
            Ok(match page.gaps.len() < limit {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            })
        });
        looked?;
        if page.gaps.len() < limit {
            page.cursor = None;
        }
        Ok(page)
    }

    pub(crate) fn upstream_answers(&self) -> Result<Vec<UpstreamAnswer>, ApiError> {
        self.services.upstreams.sources.settle();
        let view = self.services.store.view();
        let sources: Vec<_> = {
            let covers = self.services.upstreams.read();
            covers
                .iter()
                .map(|(id, source)| (id, source.clone()))
                .collect()
        };
        let mut all = Vec::new();
        for (id, source) in sources {
            let link = self.following.link(id).unwrap_or_default();
            let host = source
                .row
                .host
                .and_then(|host| self.services.hosts.get(host));
            let sweep = source.row.host.and_then(|host| self.sweeps.get(host));
            let refused = source
                .row
                .host
                .and_then(|host| self.services.hosts.refused_by(host));
            let sweep = sweep.unwrap_or_default();
            let failing = sweep.failing.as_ref();
            all.push(UpstreamAnswer {
                url: source.row.url.clone(),
                kind: source.row.kind.name().to_owned(),
                host: host.as_ref().map(|host| host.name.clone()),
                followed: followed_name(source.row.followed).to_owned(),
                connected: source.stream.is_connected(),
                open: source.stream.open_epoch(&source.row).is_some(),
                cursor: view.cursor(id)?.map(|cursor| cursor.seq),
                epoch: source.row.epoch.0,
                first_cursor_since_reset: source.row.first_cursor_since_reset,
                lag_seconds: link.lag.get().map(|lag| lag.as_secs_f64()),
                last_frame: link.last_frame.and_then(timestamp),
                sweep: SweepAnswer {
                    every_seconds: self.sweep_every().as_secs(),
                    last: host
                        .and_then(|host| host.swept)
                        .and_then(|swept| timestamp(swept.at)),
                    suspects: sweep.suspects,
                    failures: sweep.failures(),
                    error: failing.map(|failing| failing.error.clone()),
                    failing_since: failing.and_then(|failing| timestamp(failing.since)),
                },
                error: link.error.filter(|_| !source.stream.is_connected()),
                next_dial: link.next_dial.and_then(timestamp),
                refused: refused.map(|refused| RefusedAnswer {
                    at: timestamp(refused.at),
                    did: refused.did.to_string(),
                    reason: refused.class.to_owned(),
                    error: refused.error,
                }),
                strays: source
                    .row
                    .host
                    .and_then(|host| self.services.admission.strays.told_of(host)),
                source: self.source_answer(id),
            });
        }
        Ok(all)
    }

    pub(crate) fn state(&self) -> Result<Status, ApiError> {
        let counted = self.count()?;
        let head = self.services.store.durable_head().next_seq.checked_sub(1);
        let mut suspended = Vec::new();
        self.services.hosts.each(|_, host| {
            if host.hiding_suspended {
                suspended.push(host.name.clone());
            }
        });
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
            claims: self.services.totals.claims.count(),
            dead_letters: self.services.totals.dead_letters.load(Ordering::Relaxed),
            hiding_suspended: suspended,
            store: match self.services.disk.shortage() {
                None => StoreStatus::default(),
                Some(lack) => StoreStatus {
                    writes: false,
                    since: timestamp(lack.since),
                    error: Some(lack.error),
                },
            },
            counted_at: timestamp(counted.time),
            discover: self.discover_status(),
            reach: self.reach()?,
        })
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let mut reasons = Vec::new();
        if !self.begun.load(Ordering::Relaxed) {
            reasons.push("starting: upstreams and tracked repositories are taken in".to_owned());
        }
        if let Some(lack) = self.services.disk.shortage() {
            reasons.push(format!("nothing is written: {}", lack.error));
        }
        if let Some(fault) = self.services.shutdown.fault() {
            reasons.push(format!("the store cannot be written: {fault}"));
        }
        let ready = &self.settings.ready;
        match self.count() {
            Err(error) => reasons.push(error.to_string()),
            Ok(counted) => {
                let (overdue, total) = (counted.overdue, counted.counts.total);
                if overdue.saturating_mul(OVERDUE_ONE_IN) > total {
                    reasons.push(format!(
                        "for {overdue} of {total} repositories something has been owed for longer than \
                         ready.max_debt_age, {} s; for the oldest for {} s",
                        ready.max_debt_age.as_secs(),
                        counted.oldest_debt.unwrap_or(0)
                    ));
                }
            }
        }
        self.unheard(&mut reasons);
        self.unswept(&mut reasons);
        Readiness {
            ready: reasons.is_empty(),
            reasons,
        }
    }
}
