//! A host's listing, page by page: what is listed as we have it is compared at a
//! thousandth of a request, what is not is left for questions, and what is missing
//! is counted.

use std::sync::Arc;
use std::time::Instant;

use gapless_atp::syntax::Did;
use gapless_core::ledger::NamedHead;
use gapless_core::ledger::deletion::{self, AwaitedEvidence};
use gapless_core::ledger::sweep::{self, ListingEntry, ListingVerdict, PageNote};
use gapless_net::RepoListPage;
use gapless_store::error::StoreError;

use crate::desk::{Line, Seen, Turn, may_have_left};
use crate::failpoints;
use crate::repair::reload;
use crate::store_io::blocking;
use crate::sweep::page_guard::{Others, Pages};
use crate::sweep::{Cut, Sweep, Sweeper};

/// A listing with more repositories than this waits for a place among the large.
const LARGE: usize = 20_000;

impl Sweeper {
    pub(crate) async fn read_pages(&self, sweep: &mut Sweep) -> Result<(), Cut> {
        let services = &self.fetcher.services;
        let mut cursor: Option<String> = None;
        let mut pages = Pages::default();
        loop {
            let now = services.clock.now();
            let note = Arc::new(
                services.decide(now, |context| sweep::take_page_note(context, sweep.host)),
            );
            let page = self.page(sweep, cursor.as_deref()).await?;
            let began = Instant::now();
            sweep.lines += page.repos.len() as u64;
            let lines = page.repos.into_iter().map(line).collect();
            let mut seen = self.fetcher.desks.page(&note, lines, sweep.adopt).await;
            let before = sweep.listed.len();
            let lines = std::mem::take(&mut seen.lines);
            let others = self.take_page(sweep, &note, lines)?;
            sweep.cost.busy += began.elapsed();
            // What the store has refused, nobody has looked at.
            if !seen.written().await {
                sweep.unwritten = true;
                sweep.pass("what some lines of its listing led to was not written");
            }
            let Some(next) = page.cursor else {
                return Ok(());
            };
            let new = sweep.listed.len() - before;
            if let Err(error) = pages.go_on(new, others, &next) {
                self.say(sweep, error, "a sweep was given up; begun again later");
                return Err(Cut::short(error));
            }
            cursor = Some(next);
            if sweep.listed.len() > LARGE && sweep.large.is_none() {
                // Never closed.
                sweep.large = self.sweeps.large.clone().acquire_owned().await.ok();
            }
            failpoints::here("sweep.page");
            if services.shutdown.has_begun() {
                return Err(Cut::ending());
            }
        }
    }

    /// The next page, if the host has not kept us waiting for too long.
    async fn page(&self, sweep: &mut Sweep, cursor: Option<&str>) -> Result<RepoListPage, Cut> {
        let services = &self.fetcher.services;
        let asked = Instant::now();
        let answer = self.fetcher.net.list_repos(&sweep.address, cursor);
        let answer = tokio::time::timeout(sweep.patience.left(), answer).await;
        if let Ok(answer) = &answer {
            let error = answer.as_ref().err();
            self.fetcher.note_answer(sweep.host, error).await?;
        }
        let page = match answer {
            Ok(Ok(page)) => {
                services.metrics.listing_bytes.add(page.bytes);
                sweep.cost.bytes += page.bytes;
                sweep.patience.page(asked.elapsed()).map(|()| page)
            }
            Ok(Err(error)) => {
                services.metrics.request_failures.inc();
                Err(error.to_string())
            }
            Err(_) => Err(sweep.patience.over()),
        };
        page.map_err(|error| {
            self.say(sweep, &error, "a sweep was cut short; begun again later");
            Cut::Short(error)
        })
    }

    /// Of the hosts of a network some are always gone: `gapless hosts` lists them, and
    /// a log that tells of each again and again would be read by nobody.
    fn say(&self, sweep: &Sweep, error: &str, what: &str) {
        let host = &sweep.address.url;
        match self.fetcher.services.admission.scope.network && !self.is_named(sweep.host) {
            true => tracing::debug!(%host, error, "{what}"),
            false => tracing::warn!(%host, error, "{what}"),
        }
    }

    /// Returns those of which nothing is held: unwanted, or new.
    fn take_page(
        &self,
        sweep: &mut Sweep,
        note: &Arc<PageNote>,
        seen: Vec<(Did, Seen)>,
    ) -> Result<Others, StoreError> {
        let mut others = Others::default();
        let view = self.fetcher.services.store.view();
        for (did, seen) in seen {
            match seen {
                Seen::Unwanted => {
                    others.add(&did);
                    continue;
                }
                Seen::Passed => sweep.pass(format_args!("{did} could not be looked at")),
                Seen::Listed(ListingVerdict::Owed) => {}
                Seen::Listed(ListingVerdict::Equal { confirm }) => {
                    if confirm {
                        sweep.confirm.push(did.clone());
                    }
                }
                Seen::Listed(ListingVerdict::Suspect(suspect)) => {
                    self.fetcher.services.metrics.suspects.inc();
                    sweep.suspects.push((did.clone(), suspect, note.clone()));
                }
            }
            // One that is new has no number yet, and is not missing either.
            match view.repo_id(&did)? {
                None => others.add(&did),
                Some(id) => sweep.listed.extend([id]),
            }
        }
        Ok(others)
    }

    /// Repositories that should have been listed and were not.
    pub(crate) async fn count_absent(&self, sweep: &mut Sweep) -> Result<(), StoreError> {
        let services = self.fetcher.services.clone();
        let (host, began) = (sweep.host, sweep.began.tick);
        let listed = sweep.listed.clone();
        let count = move || {
            let now = services.clock.time();
            let mut rest = reload::hosted(&services.store, host)?;
            let hosted = rest.len();
            rest.retain(|id| !listed.contains(id));
            let (mut all, mut absent) = ((hosted - rest.len()) as u64, Vec::new());
            let mut awaiting = Vec::new();
            reload::each(&services.store, &rest, |repo| {
                if may_have_left(&repo, now) {
                    services.schedule.refresh(&repo.did);
                }
                if sweep::counts_as_vanished(&repo, began) {
                    all += 1;
                    absent.push(repo.did);
                } else if deletion::awaited_evidence(&repo) == Some(AwaitedEvidence::Sweep) {
                    awaiting.push(repo.did);
                }
            })?;
            Ok::<_, StoreError>((all, absent, awaiting))
        };
        let metrics = &self.fetcher.services.metrics;
        let work = "comparing a listing with the held repositories";
        let (all, absent, awaiting) = blocking(metrics, work, count).await?;
        (sweep.all, sweep.awaiting) = (all, awaiting);
        self.doubt(sweep, absent).await
    }

    /// Repositories that the host does not have, as it says when it is asked. That
    /// is written down for none of them before all were asked about: a host that
    /// was wiped is doubted, and not hidden one by one.
    pub(crate) async fn doubt_vanished(&self, sweep: &mut Sweep) -> Result<(), StoreError> {
        let vanished = std::mem::take(&mut sweep.vanished);
        self.doubt(sweep, vanished).await
    }

    /// So many more are not there. Each is asked about by itself, after it is
    /// settled whether the host is believed.
    async fn doubt(&self, sweep: &mut Sweep, absent: Vec<Did>) -> Result<(), StoreError> {
        let services = &self.fetcher.services;
        let mut notices = Vec::new();
        let tick = services.clock.now().tick;
        sweep.absent += absent.len() as u64;
        sweep.missing.extend(absent.iter().cloned());
        let (count, all) = (sweep.absent, sweep.all);
        let row = services.hosts.get(sweep.host).unwrap_or_default();
        let mut after = row.clone();
        sweep::count_absent(&mut after, count, all, &mut notices);
        if after != row {
            tracing::error!(
                host = %sweep.address.url, absent = count, of = all,
                "so many repositories vanished at once that nothing is hidden; if the loss is real: gapless upstream confirm-loss URL"
            );
            services
                .hosts
                .change(tick, sweep.host, |row| *row = after)
                .await?;
        }
        for did in absent {
            let visit = self.fetcher.desks.visit(&did, |turn: &mut Turn<'_>| {
                let now = turn.services.clock.now();
                if let Some(tx) = turn.tx.as_mut() {
                    sweep::owe_absent(now, &mut tx.repo);
                }
            });
            visit.await?;
        }
        Ok(())
    }
}

/// A line that says enough to be compared. Without a readable head it is compared
/// as one that is not ours, so that the host itself is asked.
fn line(listed: gapless_net::Listed) -> Line {
    let named = NamedHead {
        rev: listed.rev.unwrap_or(gapless_atp::syntax::Rev::from_bits(0)),
        commit: listed.commit.unwrap_or(gapless_atp::mst::empty_root()),
    };
    Line {
        did: listed.did,
        entry: ListingEntry {
            named,
            account: listed.account,
        },
    }
}
