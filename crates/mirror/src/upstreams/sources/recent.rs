//! RecentCommits commits in the order of their first arrival, and the sources that brought each. The
//! memory is bounded: a new commit evicts the oldest.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use gapless_core::ledger::{HostId, UpstreamId};

use crate::upstreams::sources::tally::SourceTally;
use crate::upstreams::sources::{CommitArrival, Proof};

/// Sources remembered for one commit. A commit that more sources bring counts as missed
/// by none.
const MAX_SOURCES_PER_COMMIT: usize = 6;

/// One commit, and the sources that brought it.
pub(super) struct RecentCommit {
    mark: u64,
    pub host: Option<HostId>,
    pub cover: Option<UpstreamId>,
    pub tracked: bool,
    signed: bool,
    bringers: u8,
    brought: [u32; MAX_SOURCES_PER_COMMIT],
    /// When the first source brought the commit; `noted` is when this entry was made.
    first: Instant,
    pub noted: Instant,
}

impl RecentCommit {
    /// Whether the signature is verified and all sources that brought the commit are known.
    pub(super) fn is_signed(&self) -> bool {
        self.signed && usize::from(self.bringers) < MAX_SOURCES_PER_COMMIT
    }

    fn bringers(&self) -> &[u32] {
        &self.brought[..usize::from(self.bringers)]
    }

    pub(super) fn was_brought_by(&self, id: UpstreamId) -> bool {
        self.bringers().contains(&id.0)
    }

    /// Adds a source. Returns `false` if there is no room for another.
    fn add(&mut self, id: UpstreamId) -> bool {
        let Some(place) = self.brought.get_mut(usize::from(self.bringers)) else {
            return false;
        };
        *place = id.0;
        self.bringers += 1;
        true
    }
}

/// The result of one arrival.
#[derive(Default)]
pub(super) struct ArrivalOutcome {
    /// Whether the commit is remembered now.
    pub known: bool,
    /// The source that brought the commit first, if the arrival proves the commit. A
    /// claim that is never proven counts for no source.
    pub first: Option<UpstreamId>,
}

/// Commits that are no longer remembered.
#[derive(Default)]
pub(super) struct ExpiredCommits {
    /// Commits that reached the age at which misses are counted.
    pub old: Vec<RecentCommit>,
    /// Commits that were evicted before that age.
    pub evicted: u64,
}

/// The memory of recent commits.
pub(super) struct RecentCommits {
    entries: VecDeque<RecentCommit>,
    /// The position of each entry, counted from the first entry ever made.
    positions: HashMap<u64, u64, FixedState>,
    /// Entries that were removed since the start.
    expired: u64,
    evicted: u64,
    max_commits: usize,
}

impl RecentCommits {
    pub(super) fn new(max_commits: usize) -> RecentCommits {
        RecentCommits {
            entries: VecDeque::new(),
            positions: HashMap::with_hasher(FixedState::default()),
            expired: 0,
            evicted: 0,
            max_commits,
        }
    }

    /// Records that a source brought a commit.
    pub(super) fn brought(
        &mut self,
        mark: u64,
        tally: &SourceTally,
        sight: &CommitArrival<'_>,
        now: Instant,
    ) -> ArrivalOutcome {
        let place = self.positions.get(&mark).copied();
        let entry = place.and_then(|place| {
            let at = usize::try_from(place.checked_sub(self.expired)?).ok()?;
            self.entries.get_mut(at)
        });
        let Some(entry) = entry else {
            if sight.proof == Proof::Replay {
                return ArrivalOutcome::default();
            }
            self.insert(mark, tally, sight, now);
            return ArrivalOutcome {
                known: true,
                first: (sight.proof == Proof::Signed).then_some(tally.id),
            };
        };
        let mut noted = ArrivalOutcome {
            known: true,
            first: None,
        };
        if sight.proof == Proof::Signed && !entry.signed {
            entry.signed = true;
            noted.first = entry.bringers().first().copied().map(UpstreamId);
            entry.host = sight.host;
            entry.cover = sight.cover;
            entry.tracked = sight.tracked;
        }
        if !entry.was_brought_by(tally.id) && entry.add(tally.id) {
            tally.late(sight.at.saturating_duration_since(entry.first));
        }
        noted
    }

    fn insert(&mut self, mark: u64, tally: &SourceTally, sight: &CommitArrival<'_>, now: Instant) {
        if self.entries.len() >= self.max_commits {
            self.pop();
            self.evicted += 1;
        }
        let mut entry = RecentCommit {
            mark,
            host: sight.host,
            cover: sight.cover,
            tracked: sight.tracked,
            signed: sight.proof == Proof::Signed,
            bringers: 0,
            brought: [0; MAX_SOURCES_PER_COMMIT],
            first: sight.at,
            noted: now,
        };
        entry.add(tally.id);
        let place = self.expired + self.entries.len() as u64;
        self.positions.insert(mark, place);
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<RecentCommit> {
        let entry = self.entries.pop_front()?;
        self.expired += 1;
        self.positions.remove(&entry.mark);
        Some(entry)
    }

    /// Removes and returns the commits that are at least `age` old.
    pub(super) fn take_expired(&mut self, now: Instant, age: Duration) -> ExpiredCommits {
        let mut expired = ExpiredCommits {
            old: Vec::new(),
            evicted: std::mem::take(&mut self.evicted),
        };
        let is_old = |entry: &RecentCommit| now.saturating_duration_since(entry.noted) >= age;
        while self.entries.front().is_some_and(is_old) {
            expired.old.extend(self.pop());
        }
        expired
    }
}
