//! Answers about repositories, one or a page of them, each with its evidence.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Account, Repo, RepoId, UpstreamId, account, cover};

use crate::api::{ApiError, Gap, GapsPage, RepoAnswer, ReposPage};
use crate::inspect::Inspector;
use crate::inspect::source_report::add_claims;
use crate::services::Services;

impl Inspector {
    pub(crate) fn repo_answer(
        &self,
        id: RepoId,
        repo: &Repo,
        count: bool,
    ) -> Result<RepoAnswer, ApiError> {
        let answer = self.services.completeness(repo);
        let host = repo.host.and_then(|host| self.services.hosts.get(host));
        let via = answer
            .evidence
            .via
            .and_then(|id| upstream_url(&self.services, id));
        let mut records = count.then_some(0);
        if let Some(counted) = &mut records {
            for record in self.services.store.view().records(id) {
                record?;
                *counted += 1;
            }
        }
        let mut told = RepoAnswer::new(repo, &answer, host.as_ref(), via, records);
        if count {
            add_claims(&self.services, id, &mut told)?;
        }
        told.evidence.recomputable = repo.head().is_some() && holds_all_keys(&self.services);
        if !told.complete {
            told.last_error = self.last_errors.of(&repo.did).map(Into::into);
        }
        Ok(told)
    }

    pub(crate) fn repo_by_did(&self, did: &Did) -> Result<Option<RepoAnswer>, ApiError> {
        let found = self.services.store.view().repo_by_did(did)?;
        match found {
            None => Ok(None),
            Some((_, repo)) if cover::is_bare_name(&repo) => Ok(None),
            Some((id, repo)) => self.repo_answer(id, &repo, true).map(Some),
        }
    }

    pub(crate) fn repos_page(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<ReposPage, ApiError> {
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
                // Records are not counted: reading all pages would read every record.
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
        for row in self.services.store.scan_repos(from) {
            let (id, _) = row?;
            let found = self.services.store.view().repo(id)?;
            let Some(repo) = found.filter(|repo| !cover::is_bare_name(repo)) else {
                continue;
            };
            // A hidden repository is no gap, unless it is hidden because its host does not
            // have it.
            if account::is_hidden(repo.account) && repo.account != Account::NotFound {
                page.hidden += 1;
                continue;
            }
            let answer = self.services.completeness(&repo);
            let known = self.circumstances(&repo, &answer);
            if let Some(mut gap) = Gap::new(&repo, &answer, known) {
                gap.last_error = self.last_errors.of(&repo.did).map(Into::into);
                page.gaps.push(gap);
                page.cursor = Some(id.0);
            }
            if page.gaps.len() >= limit {
                break;
            }
        }
        if page.gaps.len() < limit {
            page.cursor = None;
        }
        Ok(page)
    }
}

/// Returns the URL of an upstream that is followed.
pub(crate) fn upstream_url(services: &Services, id: UpstreamId) -> Option<String> {
    let covers = services.upstreams.read();
    covers.get(id).map(|source| source.row.url.clone())
}

/// Whether the keys of all records are held, so that roots can be recomputed.
pub(crate) fn holds_all_keys(services: &Services) -> bool {
    !services.rules.settings.wanted_keys_only || services.rules.filter.wanted.is_empty()
}
