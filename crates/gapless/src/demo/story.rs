//! Describes how a fault was found and repaired, as the mirror reports it: from its
//! counters, its log and the reasons that it gave while a repository was incomplete. This
//! module does not know which fault was injected.

use std::collections::{BTreeMap, BTreeSet};

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::DebtKind;
use gapless_core::ledger::{HostId, RepoId};
use gapless_store::error::StoreError;
use gapless_store::table::log::LogKind;

use gapless_mirror::Mirror;
use gapless_mirror::api::{owed_name, why_name};

/// The values of the counters of a mirror, by name.
pub(super) type CounterValues = BTreeMap<String, u64>;

pub(super) fn read_counters(mirror: &Mirror) -> CounterValues {
    let mut text = String::new();
    mirror.services().metrics.write(&mut text);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        // Only counters are read: gauges and histograms are left out.
        let counts = name.contains("_total");
        counts.then_some((name.to_owned(), value.parse().ok()?))
    });
    pairs.collect()
}

/// The state of the mirror before a fault.
#[derive(Debug, Default)]
pub(super) struct Mark {
    counts: CounterValues,
    log_next: u64,
    /// The host of each repository.
    hosts: BTreeMap<RepoId, HostId>,
}

impl Mark {
    pub(super) fn take(mirror: &Mirror) -> Result<Mark, StoreError> {
        let log_next = mirror.services().store.durable_head().next_seq;
        let mut hosts = BTreeMap::new();
        for row in mirror.services().store.view().repos(RepoId(0)) {
            let (id, repo) = row?;
            hosts.extend(repo.host.map(|host| (id, host)));
        }
        Ok(Mark {
            counts: read_counters(mirror),
            log_next,
            hosts,
        })
    }

    /// The mark for a mirror that was restarted and counts from zero.
    pub(super) fn after_restart(self) -> Mark {
        Mark {
            counts: CounterValues::new(),
            ..self
        }
    }
}

/// The reasons that the mirror reported for one repository while it was incomplete.
#[derive(Debug, Default)]
struct ReportedReasons {
    /// Why the repository was incomplete.
    reasons: BTreeSet<&'static str>,
    /// The debts of the repository, and why each was owed.
    owed: BTreeSet<(&'static str, &'static str)>,
}

/// What was observed of each repository that was incomplete at some time.
#[derive(Debug, Default)]
pub(super) struct Observations(BTreeMap<Did, ReportedReasons>);

impl Observations {
    /// Observes a repository once.
    pub(super) fn observe(&mut self, mirror: &Mirror, did: &Did) -> Result<(), StoreError> {
        let Some((_, repo)) = mirror.services().store.view().repo_by_did(did)? else {
            return Ok(());
        };
        let answer = mirror.services().completeness(&repo);
        if answer.complete() {
            return Ok(());
        }
        let said = self.0.entry(did.clone()).or_default();
        let reasons = answer.reasons.iter().map(|reason| reason.as_str());
        said.reasons.extend(reasons);
        let debt = &repo.debt;
        for (what, owed) in [
            (DebtKind::Resolve, debt.resolve),
            (DebtKind::Compare, debt.compare),
            (DebtKind::Fetch, debt.fetch),
        ] {
            if let Some(owed) = owed {
                said.owed.insert((owed_name(what), why_name(owed.why)));
            }
        }
        Ok(())
    }

    /// Drops the observations of all other repositories.
    pub(super) fn retain(&mut self, dids: &[Did]) {
        self.0.retain(|did, _| dids.contains(did));
    }

    /// The number of repositories that were incomplete.
    pub(super) fn incomplete_repos(&self) -> usize {
        self.0.len()
    }

    pub(super) fn reasons(&self) -> BTreeSet<&'static str> {
        let all = self.0.values();
        all.flat_map(|said| said.reasons.iter().copied()).collect()
    }

    pub(super) fn owed(&self) -> BTreeSet<(&'static str, &'static str)> {
        let all = self.0.values();
        all.flat_map(|said| said.owed.iter().copied()).collect()
    }

    fn owed_for(&self, why: &str) -> bool {
        self.owed().iter().any(|(_, one)| *one == why)
    }
}

/// How many repositories became complete in which way.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RepairCounts {
    /// Repositories that were fetched, and the records that were corrected.
    pub fetched: u64,
    pub records: u64,
    /// Repositories repaired by commits of the stream, and the number of commits.
    pub chained: u64,
    pub commits: u64,
    /// Repositories for which a comparison of heads sufficed.
    pub compared: u64,
    /// Repositories that moved to another host.
    pub moved: u64,
}

/// What happened in the mirror between a mark and now.
#[derive(Debug, Default)]
pub(super) struct Story {
    /// The increase of each counter.
    pub growth: CounterValues,
    pub seen: Observations,
    pub repairs: RepairCounts,
}

impl Story {
    pub(super) fn of(
        mirror: &Mirror,
        mark: &Mark,
        seen: Observations,
        dids: &[Did],
    ) -> Result<Story, StoreError> {
        let mut growth = read_counters(mirror);
        for (name, before) in &mark.counts {
            if let Some(count) = growth.get_mut(name) {
                *count = count.saturating_sub(*before);
            }
        }
        growth.retain(|_, count| *count > 0);
        let repairs = count_repairs(mirror, mark, dids)?;
        Ok(Story {
            growth,
            seen,
            repairs,
        })
    }

    /// The increase of the counter `gapless_NAME_total`.
    pub(super) fn growth_of(&self, name: &str) -> u64 {
        let count = self.growth.get(&format!("gapless_{name}_total"));
        count.copied().unwrap_or(0)
    }

    /// The reasons why snapshots were refused.
    fn refused(&self) -> Vec<String> {
        const BEGINS: &str = "gapless_snapshots_refused_by_reason_total{reason=\"";
        let refused = self.growth.iter().filter_map(|(name, count)| {
            let reason = name.strip_prefix(BEGINS)?.strip_suffix("\"}")?;
            let reason = reason.replace('_', " ");
            Some(format!("{count} ({reason})"))
        });
        refused.collect()
    }

    /// How the mirror noticed the fault.
    fn noticed(&self) -> Vec<String> {
        let seen = &self.seen;
        let mut told = Vec::new();
        if seen.reasons().contains("epoch_changed") {
            let many = plural(seen.incomplete_repos(), "repository", "repositories");
            told.push(format!("a new epoch put {many} in doubt at once"));
        }
        if seen.owed_for("account_event") {
            told.push(
                "Gapless asked the host about accounts that the host listed with another state"
                    .to_owned(),
            );
        }
        if seen.owed_for("broken_chain") {
            told.push("the next commit did not chain".to_owned());
        }
        if seen.owed_for("listed_newer") || seen.owed_for("newer_head") {
            told.push("the host named a newer head".to_owned());
        } else if told.is_empty() && self.repairs.fetched > 0 && self.growth_of("suspects") > 0 {
            // The repair was too quick to be observed.
            told.push("a sweep listed a newer head".to_owned());
        }
        if self.repairs.moved > 0 {
            told.push("the directory named the new host".to_owned());
        }
        if self.growth_of("unauthenticated") > 0 {
            told.push(
                "the known key did not match, so Gapless asked the directory again".to_owned(),
            );
        }
        if self.growth_of("unresolved") > 0 {
            told.push("events that could not be verified yet waited on disk".to_owned());
        }
        let failed = [
            ("dial_failures", "refused connection", "refused connections"),
            ("request_failures", "failed request", "failed requests"),
            (
                "resolution_failures",
                "failed request to the directory",
                "failed requests to the directory",
            ),
        ];
        for (name, one, many) in failed {
            if self.growth_of(name) > 0 {
                let times = plural(self.growth_of(name) as usize, one, many);
                told.push(format!("Gapless tried again after {times}"));
            }
        }
        let refused = self.refused();
        if !refused.is_empty() {
            told.push(format!("snapshots refused: {}", refused.join(", ")));
        }
        told
    }

    /// How the mirror repaired the fault.
    fn repaired(&self) -> Vec<String> {
        let repairs = &self.repairs;
        let mut told = Vec::new();
        if repairs.fetched > 0 {
            let (all, new) = (
                self.growth_of("snapshots_written"),
                self.growth_of("differences_written"),
            );
            let how = match (new, all.saturating_sub(new)) {
                (0, _) => "by full fetch",
                (_, 0) => "by difference",
                (_, _) => "by difference or full fetch",
            };
            let repos = plural(repairs.fetched as usize, "repository", "repositories");
            told.push(format!(
                "{repos} {how} ({} corrected)",
                records(repairs.records)
            ));
        }
        if repairs.chained > 0 {
            let repos = plural(repairs.chained as usize, "repository", "repositories");
            let commits = plural(repairs.commits as usize, "commit", "commits");
            told.push(format!("{repos} by chain ({commits})"));
        }
        if repairs.compared > 0 {
            let repos = plural(repairs.compared as usize, "repository", "repositories");
            told.push(format!("{repos} by sweep, without a fetch"));
        }
        told
    }

    /// The story in one line, for people.
    pub(super) fn summary(&self) -> String {
        let (mut noticed, repaired) = (self.noticed(), self.repaired());
        if noticed.is_empty() {
            return repaired.join(", ");
        }
        noticed.push(repaired.join(", "));
        noticed.retain(|words| !words.is_empty());
        noticed.join("; ")
    }
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn records(count: u64) -> String {
    plural(count as usize, "record", "records")
}

/// Counts how these repositories were repaired, from the log since the mark.
fn count_repairs(mirror: &Mirror, mark: &Mark, dids: &[Did]) -> Result<RepairCounts, StoreError> {
    #[derive(Default)]
    struct One {
        fetched: bool,
        records: u64,
        commits: u64,
    }
    let view = mirror.services().store.view();
    let mut ours: BTreeMap<RepoId, One> = BTreeMap::new();
    let mut moved = 0;
    for did in dids {
        if let Some((id, repo)) = view.repo_by_did(did)? {
            ours.insert(id, One::default());
            let before = mark.hosts.get(&id);
            moved += u64::from(before.is_some() && before != repo.host.as_ref());
        }
    }
    let mut last = None;
    for row in view.log_from(mark.log_next)? {
        let (_, row) = row?;
        let is_account = matches!(row.kind, LogKind::Account(_));
        let before = std::mem::replace(&mut last, row.repo.filter(|_| is_account));
        // The row that announces a repository that is shown again: nothing was fetched.
        if before.is_some() && before == row.repo && row.ops.is_empty() && !is_account {
            continue;
        }
        let Some(one) = row.repo.and_then(|repo| ours.get_mut(&repo)) else {
            continue;
        };
        match row.kind {
            LogKind::Live => one.commits += 1,
            LogKind::Backfill | LogKind::Repair => {
                one.fetched = true;
                one.records += row.ops.len() as u64;
            }
            _ => {}
        }
    }
    let mut repairs = RepairCounts {
        moved,
        ..RepairCounts::default()
    };
    for one in ours.values() {
        match (one.fetched, one.commits) {
            (true, _) => {
                repairs.fetched += 1;
                repairs.records += one.records;
            }
            (false, 0) => repairs.compared += 1,
            (false, commits) => {
                repairs.chained += 1;
                repairs.commits += commits;
            }
        }
    }
    Ok(repairs)
}
