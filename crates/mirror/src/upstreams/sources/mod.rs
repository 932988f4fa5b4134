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
use recent::{Expired, Recent, RecentCommit};
pub use tally::{SourceFigures, SourceTally};

/// What was not brought so long after the first brought it was missed.
pub const MISSED_AFTER: Duration = Duration::from_secs(60);
/// Commits that are remembered, about 128 bytes each. What is pushed out before its
/// time is not judged.
pub const MAX_RECENT_COMMITS: usize = 131_072;
/// Parts of the memory, so that desks do not wait for each other.
const SHARDS: usize = 16;
/// How often what has come of age is looked for when nothing comes.
const EXPIRE_EVERY: Duration = Duration::from_millis(500);
/// A host is not swept for missed commits again before so long: a relay that misses
/// many would have everybody swept for ever.
pub const DOUBT_SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Hosts that wait for such a sweep; more are left to their turn.
const MAX_DOUBTED_HOSTS: usize = 10_000;

/// One arrival of a commit, as a desk judged it.
pub struct CommitArrival<'a> {
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
struct JudgedSources {
    relays: Vec<Arc<SourceTally>>,
    hosts: HashMap<HostId, Arc<SourceTally>>,
}

pub struct Sources {
    clock: Arc<Clock>,
    hasher: FixedState,
    tallies: Mutex<BTreeMap<UpstreamId, Arc<SourceTally>>>,
    judged: RwLock<Arc<JudgedSources>>,
    several: AtomicBool,
    recent: Vec<Mutex<Recent>>,
    began: Instant,
    /// When what had come of age was last looked for, in milliseconds since then.
    last_expiry: AtomicU64,
    /// Pushed out before their time.
    unjudged: AtomicU64,
    doubted: Mutex<BTreeMap<HostId, Tick>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing in here can panic half way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sources {
    pub fn new(clock: Arc<Clock>) -> Sources {
        let mut recent = Vec::new();
        recent.resize_with(SHARDS, || {
            Mutex::new(Recent::new(MAX_RECENT_COMMITS / SHARDS))
        });
        Sources {
            clock,
            hasher: FixedState::with_seed(0x73_6f_75_72),
            tallies: Mutex::default(),
            judged: RwLock::default(),
            several: AtomicBool::new(false),
            recent,
            began: Instant::now(),
            last_expiry: AtomicU64::new(0),
            unjudged: AtomicU64::new(0),
            doubted: Mutex::default(),
        }
    }

    /// A source is followed from now on.
    pub fn add(&self, id: UpstreamId, row: &Upstream) -> Arc<SourceTally> {
        let tracked_only = row.followed == FollowReason::ForTracked;
        let tally = Arc::new(SourceTally::new(id, row.kind, row.host, tracked_only));
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

    fn index(&self, tallies: &BTreeMap<UpstreamId, Arc<SourceTally>>) {
        let mut judged = JudgedSources::default();
        for tally in tallies.values() {
            match (tally.kind, tally.host) {
                (UpstreamKind::Relay, _) => judged.relays.push(tally.clone()),
                (UpstreamKind::Pds, Some(host)) => {
                    judged.hosts.entry(host).or_insert_with(|| tally.clone());
                }
                (UpstreamKind::Pds, None) | (UpstreamKind::Jetstream, _) => {}
            }
        }
        let mut current = self.judged.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(judged);
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
    pub fn brought(&self, tally: &SourceTally, sight: &CommitArrival<'_>) {
        let mark = self
            .hasher
            .hash_one((sight.did.as_str(), sight.rev.to_bits()));
        let part = &self.recent[(mark % SHARDS as u64) as usize];
        let now = Instant::now();
        let (noted, expired) = {
            let mut recent = lock(part);
            let noted = recent.brought(mark, tally, sight, now);
            (noted, recent.take_expired(now, MISSED_AFTER))
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
            tally.note_host(host);
        }
        self.judge(expired);
    }

    fn is_old(&self, rev: Rev) -> bool {
        self.clock.time().since(Time(rev.micros())) >= MISSED_AFTER
    }

    /// Looks for what has come of age, now and then.
    pub fn expire_due(&self) {
        let now = Instant::now();
        let passed = now.duration_since(self.began).as_millis() as u64;
        let last = self.last_expiry.load(Ordering::Relaxed);
        if passed < last.saturating_add(EXPIRE_EVERY.as_millis() as u64) {
            return;
        }
        self.last_expiry.store(passed, Ordering::Relaxed);
        self.expire_due_at(now);
    }

    /// The same, as if it were then.
    pub fn expire_due_at(&self, now: Instant) {
        for part in &self.recent {
            let expired = lock(part).take_expired(now, MISSED_AFTER);
            self.judge(expired);
        }
    }

    fn judge(&self, expired: Expired) {
        if expired.evicted > 0 {
            self.unjudged.fetch_add(expired.evicted, Ordering::Relaxed);
        }
        if expired.old.is_empty() {
            return;
        }
        let judged = {
            let judged = self.judged.read().unwrap_or_else(PoisonError::into_inner);
            judged.clone()
        };
        let now = self.clock.glance();
        for entry in expired.old.iter().filter(|entry| entry.is_signed()) {
            let own = entry.host.and_then(|host| judged.hosts.get(&host));
            for tally in judged.relays.iter().chain(own) {
                if !tally.should_have(entry) {
                    continue;
                }
                tally.missed(now.time);
                if entry.cover == Some(tally.id)
                    && let Some(host) = entry.host
                {
                    self.doubt_host(host, now.tick);
                }
            }
        }
    }

    /// The stream that speaks for repositories of this host has missed something:
    /// perhaps not that alone.
    fn doubt_host(&self, host: HostId, tick: Tick) {
        let mut doubted = lock(&self.doubted);
        if doubted.len() < MAX_DOUBTED_HOSTS || doubted.contains_key(&host) {
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
            Some(_) => age >= DOUBT_SWEEP_INTERVAL,
        }
    }

    /// Commits that were pushed out of the memory before their time.
    pub fn unjudged(&self) -> u64 {
        self.unjudged.load(Ordering::Relaxed)
    }

    /// What is known of a source since it was added; none when it is not followed.
    pub fn figures(&self, id: UpstreamId) -> Option<SourceFigures> {
        let tally = lock(&self.tallies).get(&id).cloned();
        tally.map(|tally| tally.figures())
    }
}

impl SourceTally {
    /// Whether a source that was there all the time should have brought this.
    fn should_have(&self, entry: &RecentCommit) -> bool {
        let expected = match self.kind {
            UpstreamKind::Pds => !self.tracked_only || entry.tracked,
            UpstreamKind::Relay => entry.host.is_some_and(|host| self.brings(host)),
            UpstreamKind::Jetstream => false,
        };
        expected && !entry.was_brought_by(self.id) && self.was_connected_since(entry.noted)
    }
}

#[cfg(test)]
mod tests;
