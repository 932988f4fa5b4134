//! How a fault was found and repaired, as the mirror itself tells it: from what it
//! counts, from its log, and from the reasons that it gave while something was
//! missing. Nothing here knows which fault was injected.

use std::collections::{BTreeMap, BTreeSet};

use gapless_atp::syntax::Did;
use gapless_core::ledger::debt::DebtKind;
use gapless_core::ledger::{HostId, RepoId};
use gapless_store::error::StoreError;
use gapless_store::table::log::LogKind;

use gapless_mirror::Mirror;
use gapless_mirror::api::{owed_name, why_name};

/// Everything that the mirror counts, by name.
pub type Counts = BTreeMap<String, u64>;

pub fn counts(mirror: &Mirror) -> Counts {
    let mut text = String::new();
    mirror.services().metrics.write(&mut text);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        // How long things took is another story.
        let counts = name.contains("_total");
        counts.then_some((name.to_owned(), value.parse().ok()?))
    });
    pairs.collect()
}

/// Where the mirror stands before something is broken.
#[derive(Debug, Default)]
pub struct Mark {
    counts: Counts,
    log_next: u64,
    /// Where repositories lived.
    hosts: BTreeMap<RepoId, HostId>,
}

impl Mark {
    pub fn set(mirror: &Mirror) -> Result<Mark, StoreError> {
        let log_next = mirror.services().store.durable_head().next_seq;
        let mut hosts = BTreeMap::new();
        for row in mirror.services().store.view().repos(RepoId(0)) {
            let (id, repo) = row?;
            hosts.extend(repo.host.map(|host| (id, host)));
        }
        Ok(Mark {
            counts: counts(mirror),
            log_next,
            hosts,
        })
    }

    /// The same place in the log, for a mirror that was started again and counts
    /// from zero.
    pub fn anew(self) -> Mark {
        Mark {
            counts: Counts::new(),
            ..self
        }
    }
}

/// What a repository said of itself while something was missing.
#[derive(Debug, Default)]
struct Said {
    /// Why it was not complete.
    reasons: BTreeSet<&'static str>,
    /// What was owed to it, and why.
    owed: BTreeSet<(&'static str, &'static str)>,
}

/// What was seen of repositories that were not complete at some time.
#[derive(Debug, Default)]
pub struct Seen(BTreeMap<Did, Said>);

impl Seen {
    /// Looks at a repository once.
    pub fn look(&mut self, mirror: &Mirror, did: &Did) -> Result<(), StoreError> {
        let Some((_, repo)) = mirror.services().store.view().repo_by_did(did)? else {
            return Ok(());
        };
        let answer = mirror.inspector().answer(&repo);
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

    /// What was seen of others does not belong here.
    pub fn keep(&mut self, dids: &[Did]) {
        self.0.retain(|did, _| dids.contains(did));
    }

    /// How many were not complete.
    pub fn doubted(&self) -> usize {
        self.0.len()
    }

    pub fn reasons(&self) -> BTreeSet<&'static str> {
        let all = self.0.values();
        all.flat_map(|said| said.reasons.iter().copied()).collect()
    }

    pub fn owed(&self) -> BTreeSet<(&'static str, &'static str)> {
        let all = self.0.values();
        all.flat_map(|said| said.owed.iter().copied()).collect()
    }

    fn owed_for(&self, why: &str) -> bool {
        self.owed().iter().any(|(_, one)| *one == why)
    }
}

/// How repositories came to be complete again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Fetched, with so many records put right.
    pub fetched: u64,
    pub records: u64,
    /// By commits of the stream, each leading from root to root.
    pub chained: u64,
    pub commits: u64,
    /// By a comparison of heads alone.
    pub compared: u64,
    /// Those of all these that live on another host than before.
    pub moved: u64,
}

/// What became of the mirror between a mark and now.
#[derive(Debug, Default)]
pub struct Story {
    /// By how much each count has grown.
    pub grown: Counts,
    pub seen: Seen,
    pub ways: Ways,
}

impl Story {
    pub fn of(mirror: &Mirror, mark: &Mark, seen: Seen, dids: &[Did]) -> Result<Story, StoreError> {
        let mut grown = counts(mirror);
        for (name, before) in &mark.counts {
            if let Some(count) = grown.get_mut(name) {
                *count = count.saturating_sub(*before);
            }
        }
        grown.retain(|_, count| *count > 0);
        let ways = ways(mirror, mark, dids)?;
        Ok(Story { grown, seen, ways })
    }

    /// By how much the count of this name has grown; without `gapless_` and `_total`.
    pub fn grew(&self, name: &str) -> u64 {
        let count = self.grown.get(&format!("gapless_{name}_total"));
        count.copied().unwrap_or(0)
    }

    /// Why snapshots were refused.
    fn refused(&self) -> Vec<String> {
        const BEGINS: &str = "gapless_snapshots_refused_by_reason_total{reason=\"";
        let refused = self.grown.iter().filter_map(|(name, count)| {
            let reason = name.strip_prefix(BEGINS)?.strip_suffix("\"}")?;
            let reason = reason.replace('_', " ");
            Some(format!("{count} ({reason})"))
        });
        refused.collect()
    }

    /// What told the mirror that something was amiss.
    fn noticed(&self) -> Vec<String> {
        let seen = &self.seen;
        let mut told = Vec::new();
        if seen.reasons().contains("epoch_changed") {
            let many = plural(seen.doubted(), "repository", "repositories");
            told.push(format!("a new epoch put {many} in doubt at once"));
        }
        if seen.owed_for("account_event") {
            told.push("the host was asked about accounts that it listed otherwise".to_owned());
        }
        if seen.owed_for("broken_chain") {
            told.push("the next commit did not chain".to_owned());
        }
        if seen.owed_for("listed_newer") || seen.owed_for("newer_head") {
            told.push("the host named a newer head".to_owned());
        } else if told.is_empty() && self.ways.fetched > 0 && self.grew("suspects") > 0 {
            // Too quick to be seen in doubt.
            told.push("a sweep listed a newer head".to_owned());
        }
        if self.ways.moved > 0 {
            told.push("the directory named its new host".to_owned());
        }
        if self.grew("unauthenticated") > 0 {
            told.push("the known key did not fit, so the directory was asked again".to_owned());
        }
        if self.grew("unresolved") > 0 {
            told.push("what could not be judged yet waited on disk".to_owned());
        }
        let failed = [
            ("dial_failures", "refused connection", "refused connections"),
            ("request_failures", "failed request", "failed requests"),
            (
                "resolution_failures",
                "question in vain to the directory",
                "questions in vain to the directory",
            ),
        ];
        for (name, one, many) in failed {
            if self.grew(name) > 0 {
                let times = plural(self.grew(name) as usize, one, many);
                told.push(format!("after {times} it was tried again"));
            }
        }
        let refused = self.refused();
        if !refused.is_empty() {
            told.push(format!("snapshots refused: {}", refused.join(", ")));
        }
        told
    }

    /// What put it right.
    fn repaired(&self) -> Vec<String> {
        let ways = &self.ways;
        let mut told = Vec::new();
        if ways.fetched > 0 {
            let (all, new) = (
                self.grew("snapshots_written"),
                self.grew("differences_written"),
            );
            let how = match (new, all.saturating_sub(new)) {
                (0, _) => "by full fetch",
                (_, 0) => "by difference",
                (_, _) => "by difference or full fetch",
            };
            let repos = plural(ways.fetched as usize, "repository", "repositories");
            told.push(format!(
                "{repos} {how} ({} put right)",
                records(ways.records)
            ));
        }
        if ways.chained > 0 {
            let repos = plural(ways.chained as usize, "repository", "repositories");
            let commits = plural(ways.commits as usize, "commit", "commits");
            told.push(format!("{repos} by chain ({commits})"));
        }
        if ways.compared > 0 {
            let repos = plural(ways.compared as usize, "repository", "repositories");
            told.push(format!("{repos} by sweep, without a fetch"));
        }
        told
    }

    /// In one line, for people.
    pub fn told(&self) -> String {
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

/// What the log tells of these repositories since the mark.
fn ways(mirror: &Mirror, mark: &Mark, dids: &[Did]) -> Result<Ways, StoreError> {
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
        // Shown again, a repository is said to be where it was: nothing was fetched.
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
    let mut ways = Ways {
        moved,
        ..Ways::default()
    };
    for one in ours.values() {
        match (one.fetched, one.commits) {
            (true, _) => {
                ways.fetched += 1;
                ways.records += one.records;
            }
            (false, 0) => ways.compared += 1,
            (false, commits) => {
                ways.chained += 1;
                ways.commits += commits;
            }
        }
    }
    Ok(ways)
}
