//! What an operator does to a running mirror.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::{self, What};
use gapless_core::ledger::{Followed, Held, HostId, Proven, Repo, RepoId, Why, cover, rollback};
use gapless_store::change::{Change, WishChange};
use gapless_store::contents::RootError;
use gapless_store::error::StoreError;

use super::Mirror;
use super::answers::failed;
use super::following::FollowError;
use crate::api::{
    self, ApiError, GapsPage, NewUpstream, Readiness, RepoAnswer, ReposPage, Status, TrackedChange,
    TrackedPage, UpstreamAnswer, VerifyAnswer, VerifyProgress, VerifyReport,
};
use crate::fetch::work::Addresses;
use crate::ingest::desk::Turn;
use crate::ingest::upstreams::write;

/// Mismatches that a report names.
const FOUND: usize = 100;
/// How often the progress of a long command is told, in repositories.
const TELL_EVERY: u64 = 16;

impl Mirror {
    pub(super) fn tracked_count(&self) -> usize {
        let tracked = &self.shared.tracked;
        tracked.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Tracks repositories by name. Returns how many were not before.
    pub(super) async fn track_all(&self, dids: &[Did]) -> Result<u64, StoreError> {
        let mut changed = 0;
        for did in dids {
            let new = {
                let tracked = &self.shared.tracked;
                // First this, so that its events are read before it is said that
                // they are.
                tracked
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(did.clone())
            };
            changed += u64::from(new);
            let host = self.desks.visit(did, start_tracking).await?;
            if new {
                let since = self.shared.clock.time();
                let change = Change {
                    wish: Some(WishChange::Track(did.clone(), since)),
                    ..Change::default()
                };
                write(&self.shared.store, change).await?;
            }
            if let Some(host) = host {
                self.following.follow_for_tracked(host);
            }
        }
        Ok(changed)
    }

    async fn untrack_all(&self, dids: &[Did]) -> Result<u64, StoreError> {
        let mut changed = 0;
        for did in dids {
            // Nothing may be called complete by a stream that is not read for it.
            self.desks.visit(did, stop_tracking).await?;
            let was = {
                let tracked = &self.shared.tracked;
                tracked
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(did)
            };
            if was {
                changed += 1;
                let change = Change {
                    wish: Some(WishChange::Untrack(did.clone())),
                    ..Change::default()
                };
                write(&self.shared.store, change).await?;
            }
        }
        self.leave_hosts().await?;
        Ok(changed)
    }

    /// Hosts of which nothing is tracked any more are not followed any more.
    async fn leave_hosts(&self) -> Result<(), StoreError> {
        let mut wanted: BTreeSet<HostId> = BTreeSet::new();
        let view = self.shared.store.view();
        let dids: Vec<Did> = {
            let tracked = &self.shared.tracked;
            let tracked = tracked.read().unwrap_or_else(PoisonError::into_inner);
            tracked.iter().cloned().collect()
        };
        for did in dids {
            wanted.extend(view.repo_by_did(&did)?.and_then(|(_, repo)| repo.host));
        }
        for (url, host) in self.following.for_tracked() {
            if !wanted.contains(&host)
                && let Err(FollowError::Store(error)) = self.following.remove(&url).await
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Recomputes the root of a repository, and writes down what came out.
    fn verify_one(&self, id: RepoId, repo: &Repo) -> Result<VerifyAnswer, ApiError> {
        let mut answer = VerifyAnswer {
            did: repo.did.to_string(),
            ..VerifyAnswer::default()
        };
        let Some(head) = repo.head().copied() else {
            answer.problem = Some(
                "nothing exact is held of it yet, so there is nothing to recompute".to_owned(),
            );
            return Ok(answer);
        };
        answer.rev = Some(head.rev.to_string());
        answer.expected = Some(head.data.to_string());
        if self.shared.settings.wanted_keys_only && !self.shared.filter.wanted.is_empty() {
            answer.problem = Some(
                "only the keys of wanted collections are held (--keep-keys wanted): the root cannot be recomputed without a fetch".to_owned(),
            );
            return Ok(answer);
        }
        let view = self.shared.store.view();
        // The view may be newer than the row that was given.
        let now_held = view.repo(id).map_err(failed)?.map(|repo| repo.held);
        if now_held != Some(Held::Exactly(head)) {
            answer.problem = Some("it moved on meanwhile; verify it again".to_owned());
            return Ok(answer);
        }
        for record in view.records(id) {
            record.map_err(failed)?;
            answer.records += 1;
        }
        let root = match view.root(id) {
            Ok(root) => Some(root),
            Err(RootError::Store(error)) => return Err(failed(error)),
            Err(RootError::Tree(_)) => None,
        };
        answer.computed = root.map(|root| root.to_string());
        answer.verified = root == Some(head.data);
        self.shared.metrics.proven.inc();
        if !answer.verified {
            self.shared.metrics.damaged.inc();
            tracing::error!(did = %repo.did, "the held keys do not hash to the signed root; it is fetched anew");
            answer.problem = Some(
                "the held keys do not hash to the signed root: it is not complete any more, and is fetched anew".to_owned(),
            );
        }
        let verified = answer.verified;
        let written =
            self.handle
                .block_on(self.desks.visit(&repo.did, move |turn: &mut Turn<'_>| {
                    let now = turn.shared.clock.now();
                    let Some(draft) = turn.draft.as_mut() else {
                        return;
                    };
                    if draft.repo.head() != Some(&head) {
                        return;
                    }
                    match verified {
                        true => {
                            draft.repo.proven = Some(Proven {
                                rev: head.rev,
                                at: now.time,
                            });
                        }
                        false => {
                            draft.repo.held = Held::Damaged {
                                from: Some(head.rev),
                            };
                            debt::owe_fetch(now, &mut draft.repo, Why::StoreRepaired);
                        }
                    }
                }));
        written.map_err(failed)?;
        Ok(answer)
    }
}

fn start_tracking(turn: &mut Turn<'_>) -> Option<HostId> {
    let now = turn.shared.clock.now();
    let covers = turn.shared.upstreams.read();
    let draft = turn.make();
    let repo = &mut draft.repo;
    if repo.tracked {
        return repo.host;
    }
    repo.tracked = true;
    // Until now its events may have been passed over.
    cover::unset(now.tick, repo);
    cover::settle(repo, &covers);
    match repo.host {
        None => debt::owe(now, repo, What::Resolve, Why::FirstSighting),
        Some(_) => debt::owe(now, repo, What::Compare, Why::Operator),
    }
    repo.host
}

fn stop_tracking(turn: &mut Turn<'_>) {
    let now = turn.shared.clock.now();
    let covers = turn.shared.upstreams.read();
    if let Some(draft) = turn.draft.as_mut()
        && draft.repo.tracked
    {
        draft.repo.tracked = false;
        cover::unset(now.tick, &mut draft.repo);
        cover::settle(&mut draft.repo, &covers);
    }
}

fn told(error: FollowError) -> ApiError {
    match error {
        FollowError::Store(error) => failed(error),
        FollowError::NotFollowed(_) => ApiError::NotFound(error.to_string()),
        FollowError::Already(_) | FollowError::SameHost(..) => {
            ApiError::Conflict(error.to_string())
        }
    }
}

impl api::Mirror for Mirror {
    fn status(&self) -> Result<Status, ApiError> {
        self.state()
    }

    fn repo(&self, did: &Did) -> Result<Option<RepoAnswer>, ApiError> {
        self.one(did)
    }

    fn repos(&self, after: Option<u64>, limit: usize) -> Result<ReposPage, ApiError> {
        self.page(after, limit)
    }

    fn gaps(&self, after: Option<u64>, limit: usize) -> Result<GapsPage, ApiError> {
        self.gaps_page(after, limit)
    }

    fn upstreams(&self) -> Result<Vec<UpstreamAnswer>, ApiError> {
        self.upstream_answers()
    }

    fn add_upstream(&self, new: NewUpstream) -> Result<UpstreamAnswer, ApiError> {
        let adding = self
            .following
            .add(new.kind, &new.url, new.host.as_deref(), Followed::Added);
        self.handle.block_on(adding).map_err(told)?;
        let all = self.upstream_answers()?;
        let found = all.into_iter().find(|one| one.url == new.url);
        found.ok_or_else(|| ApiError::Internal(format!("{} was added and is not there", new.url)))
    }

    fn remove_upstream(&self, url: &str) -> Result<(), ApiError> {
        self.handle
            .block_on(self.following.remove(url))
            .map_err(told)
    }

    fn confirm_loss(&self, url: &str) -> Result<(), ApiError> {
        let covers = self.shared.upstreams.read();
        let by_upstream = covers
            .iter()
            .find(|(_, source)| source.row.url == url)
            .and_then(|(_, source)| source.row.host);
        drop(covers);
        let host = by_upstream.or_else(|| self.shared.hosts.find(url));
        let Some(host) = host else {
            return Err(ApiError::NotFound(format!("no host {url} is known here")));
        };
        let tick = self.shared.clock.now().tick;
        let changed = self.shared.hosts.change(tick, host, |row| {
            std::mem::replace(&mut row.hiding_suspended, false)
        });
        match self.handle.block_on(changed).map_err(failed)? {
            Some(true) => Ok(()),
            _ => Err(ApiError::Conflict(format!(
                "nothing is suspended for {url}: there is no loss to confirm"
            ))),
        }
    }

    fn tracked(&self, after: Option<&Did>, limit: usize) -> Result<TrackedPage, ApiError> {
        let mut page = TrackedPage::default();
        for row in self.shared.store.view().tracked() {
            let (did, _) = row.map_err(failed)?;
            if after.is_some_and(|after| did <= *after) {
                continue;
            }
            if page.tracked.len() == limit {
                page.cursor = page.tracked.last().cloned();
                return Ok(page);
            }
            page.tracked.push(did.to_string());
        }
        Ok(page)
    }

    fn track(&self, dids: &[Did]) -> Result<TrackedChange, ApiError> {
        let changed = self.handle.block_on(self.track_all(dids)).map_err(failed)?;
        Ok(TrackedChange {
            changed,
            unchanged: dids.len() as u64 - changed,
        })
    }

    fn untrack(&self, dids: &[Did]) -> Result<TrackedChange, ApiError> {
        let changed = self
            .handle
            .block_on(self.untrack_all(dids))
            .map_err(failed)?;
        Ok(TrackedChange {
            changed,
            unchanged: dids.len() as u64 - changed,
        })
    }

    fn resync(&self, did: &Did, accept_rollback: bool) -> Result<RepoAnswer, ApiError> {
        let resync = self.desks.visit(did, move |turn: &mut Turn<'_>| {
            let now = turn.shared.clock.now();
            let Some(draft) = turn.draft.as_mut() else {
                return Err(ApiError::NotFound(
                    "this repository is not mirrored here; gapless track add DID follows it"
                        .to_owned(),
                ));
            };
            match accept_rollback {
                false => debt::owe_fetch(now, &mut draft.repo, Why::Operator),
                true if draft.repo.behind.is_none() => {
                    return Err(ApiError::Conflict(
                        "its host is not behind us: there is no rollback to accept".to_owned(),
                    ));
                }
                true => rollback::accept_rollback(now, &mut draft.repo),
            }
            debt::again(now, &mut draft.repo);
            Ok(())
        });
        self.handle.block_on(resync).map_err(failed)??;
        let answer = self.one(did)?;
        answer.ok_or_else(|| ApiError::NotFound(format!("{did} is not mirrored here")))
    }

    fn verify(&self, did: &Did) -> Result<VerifyAnswer, ApiError> {
        let found = self.shared.store.view().repo_by_did(did).map_err(failed)?;
        match found {
            None => Err(ApiError::NotFound(format!("{did} is not mirrored here"))),
            Some((id, repo)) => self.verify_one(id, &repo),
        }
    }

    fn verify_all(
        &self,
        progress: &dyn Fn(VerifyProgress) -> bool,
    ) -> Result<VerifyReport, ApiError> {
        let of = self.count()?.total();
        let mut report = VerifyReport::default();
        let view = self.shared.store.view();
        for row in view.repos(RepoId(0)) {
            let (id, repo) = row.map_err(failed)?;
            report.repos += 1;
            let mut answer = self.verify_one(id, &repo)?;
            if answer.problem.is_some()
                && !answer.verified
                && answer.computed.is_none()
                && let Some(newer) = self.shared.store.view().repo(id).map_err(failed)?
            {
                // It moved on while others were verified.
                answer = self.verify_one(id, &newer)?;
            }
            if answer.verified {
                report.proven += 1;
            } else if answer.computed.is_some() {
                report.mismatches += 1;
                if report.found.len() < FOUND {
                    report.found.push(answer);
                }
            } else {
                report.skipped += 1;
            }
            let told = VerifyProgress {
                done: report.repos,
                of: of.max(report.repos),
                mismatches: report.mismatches,
            };
            if report.repos.is_multiple_of(TELL_EVERY) && !progress(told) {
                report.stopped = true;
                return Ok(report);
            }
        }
        Ok(report)
    }

    fn metrics(&self) -> Result<String, ApiError> {
        self.metrics_text()
    }

    fn ready(&self) -> Readiness {
        self.readiness()
    }
}
