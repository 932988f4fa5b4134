//! The simulated mirror, which plays the program. It reads sockets, asks hosts and writes batches;
//! the ledger takes every decision.
//!
//! Work is cut into steps, between which anything may happen: a job takes its note, asks, fetches
//! and writes in different steps. A written batch is visible at once and durable after a sync; a
//! crash loses unsynced batches and everything that was not written.

pub(crate) mod book;
pub(crate) mod claims;
pub(crate) mod diff;
pub(crate) mod feed;
pub(crate) mod ingest;
pub(crate) mod job;
pub mod log_event;
pub(crate) mod operate;
pub(crate) mod purge;
pub(crate) mod retention;
pub(crate) mod snapshot;
pub(crate) mod sweep;
pub(crate) mod tx;

use std::collections::{BTreeMap, BTreeSet};

use gapless_atp::syntax::Rev;
use gapless_core::ledger::complete::{self, Completeness};
use gapless_core::ledger::cover::Covers;
use gapless_core::ledger::debt::{self, DebtKind};
use gapless_core::ledger::event::Context;
use gapless_core::ledger::rollback::BehindShare;
use gapless_core::ledger::{
    DebtReason, HostId, Lived, Notice, Now, Repo, RepoId, Tick, Ticks, Time, UpstreamId,
};
use gapless_core::repo_tx::Rules;

use crate::world::{OwnerId, PdsId, World};
use book::{Batch, Book};
use feed::Feed;
use job::Job;
use sweep::Sweep;

/// The key of an owner, as last resolved.
#[derive(Debug, Clone, Copy)]
pub struct KnownKey {
    pub key: u32,
    /// The tick at which the document was requested.
    pub asked: Tick,
}

/// The simulated mirror: the rules of core over a store in memory, with sockets and jobs that
/// the simulator steps.
pub struct SimMirror {
    pub book: Book,
    pub covers: Covers,
    pub rules: Rules,
    pub ticks: Ticks,
    pub feeds: BTreeMap<UpstreamId, Feed>,
    pub jobs: Vec<Job>,
    pub sweeps: Vec<Sweep>,
    /// Hosts that are not swept before a time, after a failure.
    pub sweep_not_before: BTreeMap<HostId, Time>,
    pub keys: BTreeMap<RepoId, KnownKey>,
    /// Repositories whose row or records changed since the last check.
    pub touched: BTreeSet<RepoId>,
    pub notices: Vec<Notice>,
    pub counts: Counts,
    /// For each repository, the rev since which a difference was last requested.
    pub tried: BTreeMap<RepoId, Rev>,
    /// How often each repository was fetched.
    pub fetches: BTreeMap<RepoId, u64>,
    /// The upstreams that the configuration names.
    pub followed: BTreeSet<UpstreamId>,
    pub purge_grace: std::time::Duration,
    /// Repositories that were purged since the last check.
    pub purged: Vec<RepoId>,
    /// Whether something may happen between two parts of a purge. Otherwise a purge goes on to its
    /// end, as far as no crash interrupts it.
    pub purges_pause: bool,
    /// Repositories of which the disk damaged a record, with the number that the log gave next.
    pub damaged: BTreeMap<RepoId, u64>,
    /// The rows of purges that were redacted before every reader had read them.
    pub overdue: BTreeSet<u64>,
}

/// Counts of what the mirror did, for the outcome and the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub frames: u64,
    pub parked: u64,
    pub unparked: u64,
    pub dropped: u64,
    pub resolved: u64,
    pub fetched: u64,
    /// Fetched differences, and how many of them led to the signed root.
    pub differences: u64,
    pub differences_right: u64,
    pub adopted: u64,
    /// Filter changes that a walk over the held records paid.
    pub walked: u64,
    /// Claims for which a question was owed.
    pub claimed: u64,
    pub crashes: u64,
    pub sweeps: u64,
    pub resets: u64,
}

impl Default for SimMirror {
    fn default() -> SimMirror {
        SimMirror::new(0)
    }
}

impl SimMirror {
    pub fn new(seed: u64) -> SimMirror {
        SimMirror {
            book: Book::new(seed),
            covers: Covers::new(),
            rules: Rules::default(),
            ticks: Ticks::default(),
            feeds: BTreeMap::new(),
            jobs: Vec::new(),
            sweeps: Vec::new(),
            sweep_not_before: BTreeMap::new(),
            keys: BTreeMap::new(),
            touched: BTreeSet::new(),
            notices: Vec::new(),
            counts: Counts::default(),
            tried: BTreeMap::new(),
            fetches: BTreeMap::new(),
            followed: BTreeSet::new(),
            purge_grace: std::time::Duration::from_secs(3600),
            purged: Vec::new(),
            purges_pause: false,
            damaged: BTreeMap::new(),
            overdue: BTreeSet::new(),
        }
    }

    /// Takes the next tick.
    pub fn tick(&mut self, world: &World) -> Now {
        self.ticks.next(world.now, lived(world))
    }

    pub fn context(&self, now: Now) -> Context<'_> {
        Context {
            now,
            covers: &self.covers,
            settings: &self.rules.settings,
        }
    }

    /// The present moment without a new tick, for a question that decides nothing.
    pub fn last_tick_now(&self, world: &World) -> Now {
        Now {
            time: world.now,
            tick: self.ticks.last(),
            lived: lived(world),
        }
    }

    pub fn batch(&self) -> Batch {
        Batch::default()
    }

    pub fn commit(&mut self, batch: Batch) {
        let touched = self.book.commit(self.ticks.last(), batch);
        self.touched.extend(touched);
    }

    /// Writes one row of a repository.
    pub fn put(&mut self, world: &World, id: RepoId, repo: Repo) {
        let mut tx = self.row_tx(id);
        tx.repo = repo;
        self.submit(world, tx);
    }

    /// The repository of an owner. Adds the repository if it is not known.
    pub fn repo_of(&mut self, world: &World, owner: OwnerId) -> RepoId {
        let did = &world.owners[owner].did;
        if let Some(id) = self.book.find(did) {
            return id;
        }
        // A crash would forget a repository for which nothing is owed.
        let now = self.tick(world);
        let mut repo = Repo::new(did.clone());
        debt::owe(now, &mut repo, DebtKind::Resolve, DebtReason::FirstSighting);
        let id = self.book.found(now.tick, repo);
        self.touched.insert(id);
        id
    }

    pub(crate) fn owner_of(&self, world: &World, id: RepoId) -> OwnerId {
        let did = self.book.repo(id).did;
        world.owner_of(&did).expect("every DID has an owner")
    }

    /// The ledger's number of a host. Adds the host if it is not known.
    pub fn host_id(&mut self, pds: PdsId) -> HostId {
        self.book.name_host(&host_name(pds))
    }

    pub fn pds_of(&self, id: HostId) -> PdsId {
        let host = self.book.host(id).expect("a host that is named has a row");
        let number = host
            .name
            .trim_start_matches("pds")
            .trim_end_matches(".test");
        number.parse().expect("hosts are numbered")
    }

    pub fn census(&self, host: HostId) -> BehindShare {
        let mut census = BehindShare::default();
        for (_, repo) in self.book.repo_rows() {
            if repo.host == Some(host) {
                census.repos += 1;
                census.behind += u64::from(repo.behind.is_some());
            }
        }
        census
    }

    pub fn is_complete(&self, world: &World, repo: &Repo) -> bool {
        let now = self.last_tick_now(world);
        let host = repo.host.and_then(|host| self.book.host(host));
        complete::is_complete(self.context(now), repo, host)
    }

    pub fn answer(&self, world: &World, repo: &Repo) -> Completeness {
        let now = self.last_tick_now(world);
        let host = repo.host.and_then(|host| self.book.host(host));
        complete::completeness(self.context(now), repo, host)
    }
}

pub(crate) fn host_name(pds: PdsId) -> String {
    format!("pds{pds}.test")
}

/// The time that the mirror has lived through: the world's clock is never set.
pub(crate) fn lived(world: &World) -> Lived {
    Lived(world.now.0)
}
