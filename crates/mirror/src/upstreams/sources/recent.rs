//! Commits that came lately, in the order in which they were first seen, and who
//! brought each.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use gapless_core::ledger::{HostId, UpstreamId};

use crate::upstreams::sources::tally::SourceTally;
use crate::upstreams::sources::{CommitArrival, Proof};

/// Sources that are told apart for one commit. Where more bring it nobody is judged.
const MAX_SOURCES_PER_COMMIT: usize = 6;

/// One commit.
pub struct RecentCommit {
    mark: u64,
    pub host: Option<HostId>,
    pub cover: Option<UpstreamId>,
    pub tracked: bool,
    signed: bool,
    bringers: u8,
    brought: [u32; MAX_SOURCES_PER_COMMIT],
    /// When the first brought it, and when it was written down here.
    first: Instant,
    pub noted: Instant,
}

impl RecentCommit {
    /// Whether the owner signed it, and it is known who brought it.
    pub fn is_signed(&self) -> bool {
        self.signed && usize::from(self.bringers) < MAX_SOURCES_PER_COMMIT
    }

    fn bringers(&self) -> &[u32] {
        &self.brought[..usize::from(self.bringers)]
    }

    pub fn was_brought_by(&self, id: UpstreamId) -> bool {
        self.bringers().contains(&id.0)
    }

    /// Whether there was a place for one more.
    fn add(&mut self, id: UpstreamId) -> bool {
        let Some(place) = self.brought.get_mut(usize::from(self.bringers)) else {
            return false;
        };
        *place = id.0;
        self.bringers += 1;
        true
    }
}

/// What became of an arrival.
#[derive(Default)]
pub struct ArrivalOutcome {
    pub known: bool,
    /// A claim that nobody proves was brought by nobody.
    pub first: Option<UpstreamId>,
}

/// What is remembered no longer.
#[derive(Default)]
pub struct Expired {
    /// Of age: they can be judged.
    pub old: Vec<RecentCommit>,
    pub evicted: u64,
}

pub struct Recent {
    entries: VecDeque<RecentCommit>,
    /// Where an entry stands, counted from the first there ever was.
    positions: HashMap<u64, u64, FixedState>,
    /// How many have gone.
    expired: u64,
    evicted: u64,
    most: usize,
}

impl Recent {
    pub fn new(most: usize) -> Recent {
        Recent {
            entries: VecDeque::new(),
            positions: HashMap::with_hasher(FixedState::default()),
            expired: 0,
            evicted: 0,
            most,
        }
    }

    /// Says whether it is remembered now, and who brought it first if that is proven
    /// just now.
    pub fn brought(
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
        if self.entries.len() >= self.most {
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

    /// Takes those out that are older than this.
    pub fn take_expired(&mut self, now: Instant, age: Duration) -> Expired {
        let mut expired = Expired {
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
