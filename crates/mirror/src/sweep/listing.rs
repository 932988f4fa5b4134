//! Reads a host's listing page by page. One request compares a thousand repositories.
//! Entries that differ from the held head become suspects, to be asked about, and
//! repositories that are not listed are counted.

use std::sync::Arc;
use std::time::Instant;

use gapless_atp::syntax::Did;
use gapless_core::ledger::NamedHead;
use gapless_core::ledger::deletion::{self, AwaitedEvidence};
use gapless_core::ledger::sweep::{self, ListingEntry, ListingVerdict, PageNote};
use gapless_net::RepoListPage;
use gapless_store::error::StoreError;

use crate::desk::{EntryOutcome, ListedRepo, RepoTurn, may_have_left};
use crate::failpoints;
use crate::repair::ask_head::note_answer;
use crate::repair::reload::{hosted_repos, read_repos};
use crate::store_io::blocking;
use crate::sweep::page_guard::{PageGuard, UnheldNames};
use crate::sweep::{SweepError, SweepRun, Sweeper};

/// Repositories above which a listing needs a permit for large listings.
const LARGE_LISTING_REPOS: usize = 20_000;

impl Sweeper {
    pub(crate) async fn read_pages(&self, sweep: &mut SweepRun) -> Result<(), SweepError> {
        let services = &self.fetcher.services;
        let mut cursor: Option<String> = None;
        let mut pages = PageGuard::default();
        loop {
            let now = services.clock.now();
            let note = Arc::new(
                services.decide(now, |context| sweep::take_page_note(context, sweep.host)),
            );
            let page = self.next_page(sweep, cursor.as_deref()).await?;
            let began = Instant::now();
            sweep.entries += page.repos.len() as u64;
            let entries = page.repos.into_iter().map(listed_repo).collect();
            let desks = &self.fetcher.desks;
            let mut compared = desks.compare_page(&note, entries, sweep.adopt).await;
            let before = sweep.listed.len();
            let outcomes = std::mem::take(&mut compared.entries);
            let others = self.record_page(sweep, &note, outcomes)?;
            sweep.cost.busy += began.elapsed();
            // An entry whose change the store has refused is not swept.
            if !compared.wait_until_durable().await {
                sweep.store_refused = true;
                sweep.skip("the store refused changes that entries of the listing led to");
            }
            let Some(next) = page.cursor else {
                return Ok(());
            };
            let new = sweep.listed.len() - before;
            if let Err(error) = pages.check(new, others, &next) {
                self.log_failure(
                    sweep,
                    error,
                    "a sweep was cut short by its listing; swept again later",
                );
                return Err(SweepError::failed(error));
            }
            cursor = Some(next);
            if sweep.listed.len() > LARGE_LISTING_REPOS && sweep.large.is_none() {
                // The semaphore is never closed.
                sweep.large = self.sweeps.large.clone().acquire_owned().await.ok();
            }
            failpoints::here("sweep.page");
            if services.shutdown.has_begun() {
                return Err(SweepError::shutdown());
            }
        }
    }

    /// Requests the next page, within the patience that is left with the host.
    async fn next_page(
        &self,
        sweep: &mut SweepRun,
        cursor: Option<&str>,
    ) -> Result<RepoListPage, SweepError> {
        let services = &self.fetcher.services;
        let asked = Instant::now();
        let answer = self.fetcher.net.list_repos(&sweep.address, cursor);
        let answer = tokio::time::timeout(sweep.patience.left(), answer).await;
        if let Ok(answer) = &answer {
            let error = answer.as_ref().err();
            note_answer(services, sweep.host, error).await?;
        }
        let page = match answer {
            Ok(Ok(page)) => {
                services.metrics.listing_bytes.add(page.bytes);
                sweep.cost.bytes += page.bytes;
                sweep.patience.page_received(asked.elapsed()).map(|()| page)
            }
            Ok(Err(error)) => {
                services.metrics.request_failures.inc();
                Err(error.to_string())
            }
            Err(_) => Err(sweep.patience.exhausted()),
        };
        page.map_err(|error| {
            self.log_failure(sweep, &error, "a sweep was cut short; swept again later");
            SweepError::Failed(error)
        })
    }

    /// Logs a failed sweep as a warning, or at debug level for a host that only the scope `network`
    /// brought: some of those hosts are always unreachable, and `gapless hosts` lists them.
    fn log_failure(&self, sweep: &SweepRun, error: &str, what: &str) {
        let host = &sweep.address.url;
        if self.fetcher.services.admission.scope.network && !self.is_named(sweep.host) {
            tracing::debug!(%host, error, "{what}")
        } else {
            tracing::warn!(%host, error, "{what}")
        }
    }

    /// Records the entries of one page. Returns the names of which nothing is held.
    fn record_page(
        &self,
        sweep: &mut SweepRun,
        note: &Arc<PageNote>,
        outcomes: Vec<(Did, EntryOutcome)>,
    ) -> Result<UnheldNames, StoreError> {
        let mut others = UnheldNames::default();
        let view = self.fetcher.services.store.view();
        for (did, outcome) in outcomes {
            match outcome {
                EntryOutcome::Unwanted => {
                    others.add(&did);
                    continue;
                }
                EntryOutcome::Passed => {
                    sweep.skip(format_args!("the entry of {did} could not be processed"))
                }
                EntryOutcome::Listed(ListingVerdict::Owed) => {}
                EntryOutcome::Listed(ListingVerdict::Equal { confirm }) => {
                    if confirm {
                        sweep.confirm.push(did.clone());
                    }
                }
                EntryOutcome::Listed(ListingVerdict::Suspect(suspect)) => {
                    self.fetcher.services.metrics.suspects.inc();
                    sweep.suspects.push((did.clone(), suspect, note.clone()));
                }
            }
            // A new repository has no number yet, and is not missing either.
            match view.repo_id(&did)? {
                None => others.add(&did),
                Some(id) => sweep.listed.extend([id]),
            }
        }
        Ok(others)
    }

    /// Finds the repositories that should have been listed and were not.
    pub(crate) async fn count_absent(&self, sweep: &mut SweepRun) -> Result<(), StoreError> {
        let services = self.fetcher.services.clone();
        let (host, began) = (sweep.host, sweep.began.tick);
        let listed = sweep.listed.clone();
        let count = move || {
            let now = services.clock.time();
            let mut rest = hosted_repos(&services.store, host)?;
            let hosted = rest.len();
            rest.retain(|id| !listed.contains(id));
            let (mut all, mut absent) = ((hosted - rest.len()) as u64, Vec::new());
            let mut awaiting = Vec::new();
            for repo in read_repos(&services.store, &rest) {
                let repo = repo?;
                if may_have_left(&repo, now) {
                    services.schedule.refresh(&repo.did);
                }
                if sweep::counts_as_vanished(&repo, began) {
                    all += 1;
                    absent.push(repo.did);
                } else if deletion::awaited_evidence(&repo) == Some(AwaitedEvidence::Sweep) {
                    awaiting.push(repo.did);
                }
            }
            Ok::<_, StoreError>((all, absent, awaiting))
        };
        let metrics = &self.fetcher.services.metrics;
        let work = "comparing a listing with the held repositories";
        let (all, absent, awaiting) = blocking(metrics, work, count).await?;
        (sweep.expected, sweep.awaiting_deletion) = (all, awaiting);
        self.count_and_owe_absent(sweep, absent).await
    }

    /// Counts the repositories that the host does not have, as its answers say. The answers
    /// are recorded only after all questions: the repositories of a wiped host must not be
    /// hidden one by one.
    pub(crate) async fn count_vanished(&self, sweep: &mut SweepRun) -> Result<(), StoreError> {
        let vanished = std::mem::take(&mut sweep.vanished);
        self.count_and_owe_absent(sweep, vanished).await
    }

    /// Counts more absent repositories, and then owes a question about each. The count
    /// comes first, because it decides whether the host is believed.
    async fn count_and_owe_absent(
        &self,
        sweep: &mut SweepRun,
        absent: Vec<Did>,
    ) -> Result<(), StoreError> {
        let services = &self.fetcher.services;
        let mut notices = Vec::new();
        let tick = services.clock.now().tick;
        sweep.absent += absent.len() as u64;
        sweep.missing.extend(absent.iter().cloned());
        let (count, all) = (sweep.absent, sweep.expected);
        let row = services.hosts.get(sweep.host).unwrap_or_default();
        let mut after = row.clone();
        sweep::count_absent(&mut after, count, all, &mut notices);
        if after != row {
            tracing::error!(
                host = %sweep.address.url, absent = count, of = all,
                "too many repositories vanished at once, so none is hidden; if the loss is real: gapless upstream confirm-loss URL"
            );
            services
                .hosts
                .change(tick, sweep.host, |row| *row = after)
                .await?;
        }
        for did in absent {
            let change = self
                .fetcher
                .desks
                .with_repo(&did, |turn: &mut RepoTurn<'_>| {
                    let now = turn.services.clock.now();
                    if let Some(tx) = turn.tx.as_mut() {
                        sweep::owe_absent(now, &mut tx.repo);
                    }
                });
            change.await?;
        }
        Ok(())
    }
}

/// Turns an entry of the listing into one that can be compared. An entry without a readable
/// head equals no held head, so that the host is asked.
fn listed_repo(listed: gapless_net::RepoListEntry) -> ListedRepo {
    let named = NamedHead {
        rev: listed.rev.unwrap_or(gapless_atp::syntax::Rev::from_bits(0)),
        commit: listed.commit.unwrap_or(gapless_atp::mst::empty_root()),
    };
    ListedRepo {
        did: listed.did,
        entry: ListingEntry {
            named,
            account: listed.account,
        },
    }
}
