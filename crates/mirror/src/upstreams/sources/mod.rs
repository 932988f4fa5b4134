//! Which source brought what, how late, and what it never brought.
//!
//! With several sources the same commit comes several times and is applied once.
//! What came lately is remembered by repository and rev, with who brought it and
//! when: whoever comes after the first is late by so much, and whoever should have
//! brought it within [`MISSED_AFTER`] and has not has missed it. Nothing about a
//! repository is decided by this. A miss by the stream that speaks for a repository
//! brings the sweep of its host forward, and that decides.
//!
//! A host's own stream should bring what lives there. A relay should bring what
//! lives on a host of which it has brought anything before: relays follow hosts, not
//! accounts. A Jetstream should bring nothing: filters and its wire leave things out.
//! Only who was connected all the time is judged, and only by what an owner signed.
//! With one source alone nothing is remembered.

mod recent;
mod tally;

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{FollowReason, HostId, Tick, Time, Upstream, UpstreamId, UpstreamKind};

use crate::clock::Clock;
use recent::{Entry, Gone, Recent};
pub use tally::{Figures, Tally};

/// What was not brought so long after the first brought it was missed.
pub const MISSED_AFTER: Duration = Duration::from_secs(60);
/// Commits that are remembered, about 128 bytes each. What is pushed out before its
/// time is not judged.
pub const REMEMBERED: usize = 131_072;
/// Parts of the memory, so that desks do not wait for each other.
const PARTS: usize = 16;
/// How often what has come of age is looked for when nothing comes.
const SETTLE_EVERY: Duration = Duration::from_millis(500);
/// A host is not swept for missed commits again before so long: a relay that misses
/// many would have everybody swept for ever.
pub const DOUBTED_EVERY: Duration = Duration::from_secs(60);
/// Hosts that wait for such a sweep; more are left to their turn.
const DOUBTED: usize = 10_000;

/// One arrival of a commit, as a desk judged it.
pub struct Sight<'a> {
    pub did: &'a Did,
    pub rev: Rev,
    pub host: Option<HostId>,
    pub cover: Option<UpstreamId>,
    /// An operator wants it by name.
    pub tracked: bool,
    pub proof: Proof,
    /// When it was read.
    pub at: Instant,
}

/// How much an arrival says about others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The owner signed it: others should have it too.
    Signed,
    /// Nobody can tell yet: it is remembered, and counts if somebody proves it.
    Claimed,
    /// Nothing new: it counts if it is remembered.
    Replay,
}

/// Those whom misses are looked for at.
#[derive(Default)]
struct Judged {
    relays: Vec<Arc<Tally>>,
    hosts: HashMap<HostId, Arc<Tally>>,
}

pub struct Sources {
    clock: Arc<Clock>,
    hasher: FixedState,
    tallies: Mutex<BTreeMap<UpstreamId, Arc<Tally>>>,
    judged: RwLock<Arc<Judged>>,
    several: AtomicBool,
    recent: Vec<Mutex<Recent>>,
    began: Instant,
    /// When what had come of age was last looked for, in milliseconds since then.
    settled: AtomicU64,
    /// Pushed out before their time.
    unjudged: AtomicU64,
    doubted: Mutex<BTreeMap<HostId, Tick>>,
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can panic half way.
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sources {
    pub fn new(clock: Arc<Clock>) -> Sources {
        let mut recent = Vec::new();
        recent.resize_with(PARTS, || Mutex::new(Recent::new(REMEMBERED / PARTS)));
        Sources {
            clock,
            hasher: FixedState::with_seed(0x73_6f_75_72),
            tallies: Mutex::default(),
            judged: RwLock::default(),
            several: AtomicBool::new(false),
            recent,
            began: Instant::now(),
            settled: AtomicU64::new(0),
            unjudged: AtomicU64::new(0),
            doubted: Mutex::default(),
        }
    }

    /// A source is followed from now on.
    pub fn add(&self, id: UpstreamId, row: &Upstream) -> Arc<Tally> {
        let tracked_only = row.followed == FollowReason::ForTracked;
        let tally = Arc::new(Tally::new(id, row.kind, row.host, tracked_only));
        let mut tallies = lock(&self.tallies);
        tallies.insert(id, tally.clone());
        self.index(&tallies);
        tally
    }

    pub fn remove(&self, id: UpstreamId) {
        let mut tallies = lock(&self.tallies);
        tallies.remove(&id);
        self.index(&tallies);
    }

    fn index(&self, tallies: &BTreeMap<UpstreamId, Arc<Tally>>) {
        let mut judged = Judged::default();
        for tally in tallies.values() {
            match (tally.kind, tally.host) {
                (UpstreamKind::Relay, _) => judged.relays.push(tally.clone()),
                (UpstreamKind::Pds, Some(host)) => {
                    judged.hosts.entry(host).or_insert_with(|| tally.clone());
                }
                (UpstreamKind::Pds, None) | (UpstreamKind::Jetstream, _) => {}
            }
        }
        let mut kept = self.judged.write().unwrap_or_else(PoisonError::into_inner);
        *kept = Arc::new(judged);
        // Two hosts' own streams never bring the same: one of them is no second source.
        let services = tallies.values().any(|one| one.kind != UpstreamKind::Pds);
        let several = tallies.len() > 1 && services;
        self.several.store(several, Ordering::Relaxed);
    }

    /// Whether there is anything to compare.
    pub fn several(&self) -> bool {
        self.several.load(Ordering::Relaxed)
    }

    /// A commit has come.
    pub fn brought(&self, tally: &Tally, sight: &Sight<'_>) {
        let mark = self
            .hasher
            .hash_one((sight.did.as_str(), sight.rev.to_bits()));
        let part = &self.recent[(mark % PARTS as u64) as usize];
        let now = Instant::now();
        let (noted, gone) = {
            let mut recent = lock(part);
            let noted = recent.brought(mark, tally, sight, now);
            (noted, recent.take_old(now, MISSED_AFTER))
        };
        match noted.first {
            None => {}
            Some(id) if id == tally.id => tally.first(),
            Some(id) => {
                if let Some(first) = lock(&self.tallies).get(&id) {
                    first.first();
                }
            }
        }
        if !noted.known && self.is_old(sight.rev) {
            // It catches up: until it has, it is late for everything and misses nothing.
            tally.connected();
        }
        if sight.proof != Proof::Claimed
            && let Some(host) = sight.host
        {
            tally.has_brought_of(host);
        }
        self.judge(gone);
    }

    fn is_old(&self, rev: Rev) -> bool {
        self.clock.time().since(Time(rev.micros())) >= MISSED_AFTER
    }

    /// Looks for what has come of age, now and then.
    pub fn settle(&self) {
        let now = Instant::now();
        let passed = now.duration_since(self.began).as_millis() as u64;
        let last = self.settled.load(Ordering::Relaxed);
        if passed < last.saturating_add(SETTLE_EVERY.as_millis() as u64) {
            return;
        }
        self.settled.store(passed, Ordering::Relaxed);
        self.settle_at(now);
    }

    /// The same, as if it were then.
    pub fn settle_at(&self, now: Instant) {
        for part in &self.recent {
            let gone = lock(part).take_old(now, MISSED_AFTER);
            self.judge(gone);
        }
    }

    fn judge(&self, gone: Gone) {
        if gone.pushed_out > 0 {
            self.unjudged.fetch_add(gone.pushed_out, Ordering::Relaxed);
        }
        if gone.old.is_empty() {
            return;
        }
        let judged = {
            let judged = self.judged.read().unwrap_or_else(PoisonError::into_inner);
            judged.clone()
        };
        let now = self.clock.glance();
        for entry in gone.old.iter().filter(|entry| entry.is_signed()) {
            let own = entry.host.and_then(|host| judged.hosts.get(&host));
            for tally in judged.relays.iter().chain(own) {
                if !tally.should_have(entry) {
                    continue;
                }
                tally.missed(now.time);
                if entry.cover == Some(tally.id)
                    && let Some(host) = entry.host
                {
                    self.doubt(host, now.tick);
                }
            }
        }
    }

    /// The stream that speaks for repositories of this host has missed something:
    /// perhaps not that alone.
    fn doubt(&self, host: HostId, tick: Tick) {
        let mut doubted = lock(&self.doubted);
        if doubted.len() < DOUBTED || doubted.contains_key(&host) {
            doubted.insert(host, tick);
        }
    }

    /// Whether a host is to be swept for that, when it was last swept at this tick
    /// and so long ago.
    pub fn wants_sweep(&self, host: HostId, swept: Tick, age: Duration) -> bool {
        let mut doubted = lock(&self.doubted);
        match doubted.get(&host) {
            None => false,
            Some(since) if *since < swept => {
                doubted.remove(&host);
                false
            }
            Some(_) => age >= DOUBTED_EVERY,
        }
    }

    /// Commits that were pushed out of the memory before their time.
    pub fn unjudged(&self) -> u64 {
        self.unjudged.load(Ordering::Relaxed)
    }

    /// What is known of a source since it was added; none when it is not followed.
    pub fn figures(&self, id: UpstreamId) -> Option<Figures> {
        let tally = lock(&self.tallies).get(&id).cloned();
        tally.map(|tally| tally.figures())
    }
}

impl Tally {
    /// Whether a source that was there all the time should have brought this.
    fn should_have(&self, entry: &Entry) -> bool {
        let expected = match self.kind {
            UpstreamKind::Pds => !self.tracked_only || entry.tracked,
            UpstreamKind::Relay => entry.host.is_some_and(|host| self.brings(host)),
            UpstreamKind::Jetstream => false,
        };
        expected && !entry.was_brought_by(self.id) && self.was_there_since(entry.noted)
    }
}

#[cfg(test)]
mod tests;
