//! Compares the sources: which commits each source brought, with which delay, and which
//! commits it missed.
//!
//! With several sources the same commit arrives several times and is applied once. RecentCommits
//! commits are remembered by repository and rev, with the sources that brought them. A
//! source that brings a commit after the first source is late by the difference. A source
//! that should have brought a commit within [`MISSED_AFTER`] and did not has missed the
//! commit. Gapless decides nothing about a repository by these counts. A miss by the
//! stream that covers a repository only brings the sweep of its host forward.
//!
//! A host's own stream should bring every commit of the repositories on that host. A relay
//! should bring the commits of every host of which it has brought a commit before, because
//! relays follow hosts, not accounts. A Jetstream is expected to bring nothing, because
//! its filters and its wire format leave commits out. Only sources that were connected the
//! whole time are judged, and only by commits with a verified signature. With a single
//! source nothing is remembered.

mod recent;
mod tally;

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::{HostId, Tick, Time, Upstream, UpstreamId, UpstreamKind};

use crate::clock::Clock;
use gapless_store::sync::{Mutex, RwLock};
use recent::{ExpiredCommits, RecentCommit, RecentCommits};
pub use tally::{SourceFigures, SourceTally};

/// How long after its first arrival a commit counts as missed by the other sources.
pub const MISSED_AFTER: Duration = Duration::from_secs(60);
/// Commits that are remembered, about 128 bytes each. A commit that is evicted before
/// [`MISSED_AFTER`] counts as missed by no source.
pub(crate) const MAX_RECENT_COMMITS: usize = 131_072;
/// Shards of the memory, each with its own lock, so that desks do not wait for each other.
const SHARDS: usize = 16;
/// How often expired commits are looked for while no commit arrives.
const EXPIRE_EVERY: Duration = Duration::from_millis(500);
/// The shortest time between two sweeps of a host because of missed commits. Without this
/// limit, a relay that misses many commits would cause sweeps without end.
pub(crate) const DOUBT_SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// Hosts that wait for a sweep because of missed commits. Further hosts wait for their
/// regular sweep.
const MAX_DOUBTED_HOSTS: usize = 10_000;

/// One arrival of a commit, as the desk judged it.
pub struct CommitArrival<'a> {
    pub did: &'a Did,
    pub rev: Rev,
    pub host: Option<HostId>,
    pub cover: Option<UpstreamId>,
    /// Whether the repository is tracked.
    pub tracked: bool,
    pub proof: Proof,
    /// When the event was read.
    pub at: Instant,
}

/// What an arrival proves about the other sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// The signature is verified: other sources should bring the commit, too.
    Signed,
    /// The signature is not verified: the arrival counts once another arrival proves the
    /// commit.
    Claimed,
    /// The commit is not newer than the held state: the arrival counts if the commit is
    /// remembered.
    Replay,
}

/// The sources whose misses are counted.
#[derive(Default)]
struct JudgedSources {
    relays: Vec<Arc<SourceTally>>,
    hosts: HashMap<HostId, Arc<SourceTally>>,
}

/// The sources, and the commits that they brought recently.
pub struct Sources {
    clock: Arc<Clock>,
    hasher: FixedState,
    tallies: Mutex<BTreeMap<UpstreamId, Arc<SourceTally>>>,
    judged: RwLock<Arc<JudgedSources>>,
    several: AtomicBool,
    recent: Vec<Mutex<RecentCommits>>,
    began: Instant,
    /// When expired commits were last looked for, in milliseconds since `began`.
    last_expiry: AtomicU64,
    /// Commits that were evicted before [`MISSED_AFTER`].
    unjudged: AtomicU64,
    doubted: Mutex<BTreeMap<HostId, Tick>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Sources {
    pub fn new(clock: Arc<Clock>) -> Sources {
        let mut recent = Vec::new();
        recent.resize_with(SHARDS, || {
            Mutex::new(RecentCommits::new(MAX_RECENT_COMMITS / SHARDS))
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

    /// Adds a source that is followed from now on.
    pub fn add(&self, id: UpstreamId, row: &Upstream) -> Arc<SourceTally> {
        let tracked_only = !row.followed.reads_all();
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
        let mut current = self.judged.write();
        *current = Arc::new(judged);
        // The streams of two hosts never bring the same commit, so they cannot be compared.
        let services = tallies.values().any(|one| one.kind != UpstreamKind::Pds);
        let several = tallies.len() > 1 && services;
        self.several.store(several, Ordering::Relaxed);
    }

    /// Whether there are several sources to compare.
    pub fn has_several(&self) -> bool {
        self.several.load(Ordering::Relaxed)
    }

    /// Records the arrival of a commit.
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
            // The source is catching up. Its connection counts from now, so it misses nothing.
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

    /// Counts misses of expired commits, at most every [`EXPIRE_EVERY`].
    pub(crate) fn expire_due(&self) {
        let now = Instant::now();
        let passed = now.duration_since(self.began).as_millis() as u64;
        let last = self.last_expiry.load(Ordering::Relaxed);
        if passed < last.saturating_add(EXPIRE_EVERY.as_millis() as u64) {
            return;
        }
        self.last_expiry.store(passed, Ordering::Relaxed);
        self.expire_due_at(now);
    }

    /// Counts misses of the commits that are expired at `now`.
    pub fn expire_due_at(&self, now: Instant) {
        for part in &self.recent {
            let expired = lock(part).take_expired(now, MISSED_AFTER);
            self.judge(expired);
        }
    }

    fn judge(&self, expired: ExpiredCommits) {
        if expired.evicted > 0 {
            self.unjudged.fetch_add(expired.evicted, Ordering::Relaxed);
        }
        if expired.old.is_empty() {
            return;
        }
        let judged = {
            let judged = self.judged.read();
            judged.clone()
        };
        let now = self.clock.last_tick_now();
        for entry in expired.old.iter().filter(|entry| entry.is_signed()) {
            let own = entry.host.and_then(|host| judged.hosts.get(&host));
            for tally in judged.relays.iter().chain(own) {
                if !tally.should_have_brought(entry) {
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

    /// Notes that the stream that covers repositories of a host has missed a commit, and
    /// therefore perhaps others.
    fn doubt_host(&self, host: HostId, tick: Tick) {
        let mut doubted = lock(&self.doubted);
        if doubted.len() < MAX_DOUBTED_HOSTS || doubted.contains_key(&host) {
            doubted.insert(host, tick);
        }
    }

    /// Whether a host needs a sweep because of missed commits. `swept` and `age` are the tick
    /// and the age of its last sweep.
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

    /// Commits that were evicted before [`MISSED_AFTER`].
    pub fn unjudged(&self) -> u64 {
        self.unjudged.load(Ordering::Relaxed)
    }

    /// The counts of a source since it was added; `None` if it is not followed.
    pub fn figures(&self, id: UpstreamId) -> Option<SourceFigures> {
        let tally = lock(&self.tallies).get(&id).cloned();
        tally.map(|tally| tally.figures())
    }
}

impl SourceTally {
    /// Whether the source should have brought a commit and did not, although it was
    /// connected the whole time.
    fn should_have_brought(&self, entry: &RecentCommit) -> bool {
        // Events of untracked repositories are skipped before they are counted.
        let reads = !self.tracked_only || entry.tracked;
        let expected = match self.kind {
            UpstreamKind::Pds => reads,
            UpstreamKind::Relay => reads && entry.host.is_some_and(|host| self.brings(host)),
            UpstreamKind::Jetstream => false,
        };
        expected && !entry.was_brought_by(self.id) && self.was_connected_since(entry.noted)
    }
}

#[cfg(test)]
mod tests;
