//! The mirror, running: everything started, wired, supervised, and stopped in the
//! right order.

mod answers;
mod counting;
mod dead;
mod discovery;
mod measures;
mod operate;
mod proof;
mod reach;
mod since;
mod sourced;
mod unheard;
mod unswept;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use gapless_store::Store;
use gapless_store::error::StoreError;
use gapless_store::space::DiskFull;
use gapless_store::table::dead::Resolution;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::admission::Admission;
use crate::admission::candidates::Candidates;
use crate::admission::newcomers::Newcomers;
use crate::admission::scope::Scope;
use crate::admission::strays::Strays;
use crate::clock::Clock;
use crate::config::{Config, KeepKeys};
use crate::disk_space::{self, DiskSpace};
use crate::fetch::counted::read_debts;
use crate::fetch::sweep::Sweeper;
use crate::fetch::turns::Sweeps;
use crate::fetch::work::{Addresses as _, FetchSettings, Fetcher};
use crate::filter::Filter;
use crate::filter_generation::filter_in_force;
use crate::following::{Following, end_all};
use crate::hosts::HostRows;
use crate::ingest::desk::Desks;
use crate::metrics::Metrics;
use crate::schedule::Schedule;
use crate::services::{Rules, Services};
use crate::shutdown::Shutdown;
use crate::totals::Totals;
use crate::tracking::Tracking;
use crate::upkeep::UpkeepTask;
use crate::upstreams::Upstreams;
use counting::Counted;
use discovery::{Discovery, Found};
use gapless_net::{HostLimits, Net, NetError, NetSettings};

/// How long the end may take before what is left is left for the next start.
const END_WITHIN: Duration = Duration::from_secs(8);

/// Why the mirror did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(StoreError),
    #[error("there is no room to start: {0}")]
    NoRoom(DiskFull),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("cannot make the folder {0} for large repositories: {1}")]
    Temp(String, std::io::Error),
    /// The program exits with 2.
    #[error(
        "there is nothing to mirror: name an upstream (--upstream pds=https://… or relay=https://…), \
         or repositories (--dids FILE), or put either into gapless.toml. What was added while running \
         (gapless upstream add, gapless track add) is remembered in the data folder, and there is none in {0}"
    )]
    NoSources(String),
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> StartError {
        match error {
            // Whoever does not start does not read on.
            StoreError::Full(full) => StartError::NoRoom(full),
            error => StartError::Store(error),
        }
    }
}

pub struct Mirror {
    pub services: Arc<Services>,
    pub desks: Arc<Desks>,
    pub fetcher: Arc<Fetcher>,
    sweeps: Arc<Sweeps>,
    following: Arc<Following>,
    tracking: Tracking,
    /// What listings of hosts and collections have told.
    discovery: Discovery,
    /// Repositories that were found by a collection.
    found: Found,
    config: Config,
    handle: Handle,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    counted: Mutex<Option<Counted>>,
    /// Held by whoever counts.
    counting: Mutex<()>,
    /// Somebody was told an older count.
    recount: Arc<Notify>,
    /// Upstreams and tracked repositories are taken in, and everything runs.
    begun: AtomicBool,
}

impl Mirror {
    /// Opens the store and starts everything.
    pub async fn start(config: Config, sweep_fixed: bool) -> Result<Arc<Mirror>, StartError> {
        let mirror = Mirror::open(config).await?;
        if let Err(error) = mirror.begin(sweep_fixed).await {
            mirror.stop().await?;
            return Err(error);
        }
        Ok(mirror)
    }

    /// Opens the store. Questions can be answered from then on.
    pub async fn open(config: Config) -> Result<Arc<Mirror>, StartError> {
        // A large journal takes its time; whoever waits for signals goes on.
        let place = config.clone();
        let opened = tokio::task::spawn_blocking(move || open(&place)).await;
        let store = Arc::new(opened.map_err(|fault| {
            StoreError::Fault(format!("opening the store ended unexpectedly: {fault}").into())
        })??);
        let services = Arc::new(share(&config, store).await?);
        let desks = Arc::new(Desks::start(&services, config.limits.workers)?);
        let authorities = config.authorities.clone();
        let net = Net::with_limits(
            NetSettings {
                allow_private: config.allow_private,
                contact: config.contact.clone(),
                authorities: authorities.map_or(Vec::new(), |found| found.certificates),
                plc: config.plc.clone(),
                plc_requests_per_second: config.plc_requests_per_second,
            },
            HostLimits {
                concurrency: config.fetch.per_host,
                requests_per_second: config.fetch.requests_per_second,
                ..HostLimits::default()
            },
        )?;
        let following = Arc::new(Following::new(services.clone(), desks.clone(), net.clone()));
        std::fs::create_dir_all(&config.fetch.temp)
            .map_err(|error| StartError::Temp(config.fetch.temp.display().to_string(), error))?;
        let fetcher = Arc::new(Fetcher::new(
            services.clone(),
            desks.clone(),
            net,
            FetchSettings {
                at_a_time: config.fetch.concurrency,
                per_host: config.fetch.per_host,
                repo_bytes: config.fetch.max_repo_bytes,
                temp: config.fetch.temp.clone(),
            },
            Arc::new(following.clone()),
        ));
        let tracking = Tracking::new(
            services.clone(),
            desks.clone(),
            following.clone(),
            fetcher.last_errors.clone(),
        );
        let mirror = Arc::new(Mirror {
            services,
            desks,
            fetcher,
            sweeps: Arc::new(Sweeps::default()),
            following,
            tracking,
            discovery: Discovery::default(),
            found: Found::default(),
            config,
            handle: Handle::current(),
            tasks: Mutex::default(),
            counted: Mutex::default(),
            counting: Mutex::default(),
            recount: Arc::default(),
            begun: AtomicBool::new(false),
        });
        let services = mirror.services.clone();
        mirror.supervise("disk", move || {
            let (clock, disk) = (services.clock.clone(), services.disk.clone());
            disk_space::watch(clock, disk, services.shutdown.clone())
        });
        Ok(mirror)
    }

    /// Takes in what is to be followed, and begins to work.
    pub async fn begin(self: &Arc<Self>, sweep_fixed: bool) -> Result<(), StartError> {
        self.following.resume(&self.config.upstreams).await?;
        self.tracking.resume(&self.config.dids).await?;
        // The end may have come between a move and its consequence.
        for host in self.following.for_tracked() {
            self.following.tracked_left(host);
        }
        let nothing = self.following.is_empty()
            && self.tracking.tracked_count() == 0
            && !self.config.has_sources();
        if nothing {
            let folder = self.config.data.display().to_string();
            return Err(StartError::NoSources(folder));
        }
        let services = self.services.clone();
        self.supervise("debts", move || {
            let services = services.clone();
            async move {
                let worker = services.clone();
                let read = tokio::task::spawn_blocking(move || read_debts(&worker)).await;
                match read {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => services.shutdown.fail(error),
                    // Whoever supervises it starts it again.
                    Err(fault) => std::panic::resume_unwind(fault.into_panic()),
                }
            }
        });
        let fetcher = self.fetcher.clone();
        self.supervise("fetcher", move || fetcher.clone().run());
        let sweeper = Arc::new(Sweeper {
            fetcher: self.fetcher.clone(),
            sweeps: self.sweeps.clone(),
            fixed: sweep_fixed,
            requests_per_second: self.config.fetch.requests_per_second,
        });
        self.supervise("sweeper", move || sweeper.clone().run());
        let upkeep = Arc::new(UpkeepTask::new(
            self.services.clone(),
            self.desks.clone(),
            self.config.purge_grace,
            self.config.keep_versions,
        ));
        self.supervise("upkeep", move || upkeep.clone().run());
        let counting = Arc::downgrade(self);
        self.supervise("counting", move || counting::run(counting.clone()));
        self.discover();
        self.begun.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What answers questions about this mirror.
    pub fn inspector(&self) -> &Mirror {
        self
    }

    /// What carries out an operator's orders to this mirror.
    pub fn control(&self) -> &Mirror {
        self
    }

    /// Starts a task, and starts it again when it ends by a fault of ours.
    fn supervise<F>(&self, name: &'static str, mut task: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let services = self.services.clone();
        let supervisor = tokio::spawn(async move {
            loop {
                match tokio::spawn(task()).await {
                    Ok(()) => return,
                    Err(_) if services.shutdown.has_begun() => return,
                    Err(error) => {
                        services.metrics.restarts.inc();
                        tracing::error!(name, %error, "a task ended unexpectedly; started again");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        });
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push(supervisor);
    }

    /// Stops: sockets first, then the desks, then the store. What was read and is
    /// not written is read again at the next start.
    pub async fn stop(&self) -> Result<(), StoreError> {
        self.services.shutdown.begin();
        self.following.stop().await;
        let tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        end_all(tasks, END_WITHIN / 4).await;
        let (desks, store) = (self.desks.clone(), self.services.store.clone());
        let closed = tokio::task::spawn_blocking(move || {
            desks.close();
            store.close()
        });
        match tokio::time::timeout(END_WITHIN, closed).await {
            Ok(Ok(closed)) => closed,
            Ok(Err(_)) => Err(StoreError::CommitterGone),
            Err(_) => Err(StoreError::System(
                "the store did not close in time; nothing that was acknowledged is lost".into(),
            )),
        }
    }

    /// Resolves when the program is to end; the reason, if it is a fault.
    pub async fn ended(&self) -> Option<StoreError> {
        self.services.shutdown.begun().await;
        self.services.shutdown.fault()
    }
}

fn open(config: &Config) -> Result<Store, StoreError> {
    let defaults = gapless_store::Settings::default();
    let settings = gapless_store::Settings {
        min_free_disk_bytes: config.min_free_disk,
        frames: gapless_store::frames::FramesSettings {
            max_age_ms: config.serve.window.as_millis() as u64,
            max_bytes: config.serve.window_bytes,
            // Nobody can stand on a part of the repositories: no firehose is served then.
            keep: config.collections.is_empty(),
            ..defaults.frames
        },
        ..defaults
    };
    Store::open(&config.data, &settings)
}

async fn share(config: &Config, store: Arc<Store>) -> Result<Services, StartError> {
    let view = store.view();
    let counters = view.counters()?;
    let clock = Arc::new(Clock::resume(counters.last_tick));
    let generation = filter_in_force(config, &store, clock.time()).await?;
    let mut tracked = std::collections::HashSet::new();
    let mut found = std::collections::HashMap::new();
    for row in view.tracked() {
        let (did, row) = row?;
        if let Some(collection) = row.found {
            found.insert(did.clone(), (collection.into(), row.since));
        }
        tracked.insert(did);
    }
    let mut dead_letters = 0;
    for row in view.dead_letters() {
        let (_, letter) = row?;
        dead_letters += u64::from(letter.resolution == Resolution::Open);
    }
    let totals = Totals {
        dead_letters: AtomicU64::new(dead_letters),
        ..Totals::default()
    };
    totals.claims.recount(&view)?;
    let disk = Arc::new(DiskSpace::new(&config.data, config.min_free_disk));
    let shutdown = Arc::new(Shutdown::default());
    Ok(Services {
        hosts: HostRows::open(store.clone(), clock.clone())?,
        upstreams: Upstreams::new(store.clone(), clock.clone(), disk.clone(), shutdown.clone()),
        clock,
        store,
        rules: Rules {
            settings: config.ledger(generation),
            filter: Filter {
                wanted: config.collections.clone(),
                wanted_keys_only: config.keep_keys == KeepKeys::Wanted,
            },
        },
        schedule: Schedule::default(),
        metrics: Metrics::default(),
        admission: Admission {
            scope: Scope::of(&config.discover),
            tracked: RwLock::new(tracked),
            found: RwLock::new(found),
            newcomers: Newcomers::new(config.limits.newcomers),
            candidates: Candidates::default(),
            strays: Strays::default(),
        },
        totals,
        disk,
        shutdown,
    })
}
