//! The life cycle of a mirror: opens the store, wires the parts, starts and supervises the
//! tasks, and stops everything in the right order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gapless_store::Store;
use gapless_store::error::StoreError;
use gapless_store::space::DiskFull;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::admission::Admission;
use crate::admission::candidates::Candidates;
use crate::admission::newcomers::Newcomers;
use crate::admission::scope::Scope;
use crate::admission::strays::Strays;
use crate::clock::Clock;
use crate::control::Control;
use crate::desk::Desks;
use crate::discover::found_repos::{self, FoundRepos};
use crate::discover::{Discovery, collections, hosts, newcomers, streams};
use crate::disk_space::{self, DiskSpace};
use crate::filter_generation::filter_in_force;
use crate::following::{Following, end_all};
use crate::hosts::HostRows;
use crate::inspect::Inspector;
use crate::inspect::counts::{self, RepoCounter};
use crate::inspect::proof::Prover;
use crate::log::consumer::{ConsumerInfo, report_position};
use crate::log::reader::StoreLog;
use crate::metrics::Metrics;
use crate::repair::reload::read_debts;
use crate::repair::worker::{Addresses as _, Fetcher};
use crate::schedule::Schedule;
use crate::services::{Rules, Services};
use crate::settings::MirrorSettings;
use crate::shutdown::Shutdown;
use crate::store_ids::ensure_ids;
use crate::sweep::Sweeper;
use crate::sweep::queue::Sweeps;
use crate::tracking::Tracking;
use crate::upkeep::UpkeepTask;
use crate::upstreams::Upstreams;
use gapless_store::sync::{Mutex, RwLock};

use gapless_net::{HostLimits, Net, NetError, NetSettings};

/// How long a shutdown may take. Work that is left then is done again after the next start.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// Why the mirror did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(StoreError),
    #[error("the disk is too full to start: {0}")]
    NoRoom(DiskFull),
    #[error(transparent)]
    Net(#[from] NetError),
    #[error("cannot create the folder {0} for large repositories: {1}")]
    Temp(String, std::io::Error),
    /// Neither the settings nor the store name anything to mirror. The program exits with 2.
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
            // At the start, no write is retried: the error ends the program.
            StoreError::Full(full) => StartError::NoRoom(full),
            error => StartError::Store(error),
        }
    }
}

/// A mirror: its parts and its running tasks.
pub struct Mirror {
    services: Arc<Services>,
    log: StoreLog,
    desks: Arc<Desks>,
    fetcher: Arc<Fetcher>,
    sweeps: Arc<Sweeps>,
    following: Arc<Following>,
    tracking: Arc<Tracking>,
    discovery: Arc<Discovery>,
    inspector: Arc<Inspector>,
    control: Arc<Control>,
    settings: Arc<MirrorSettings>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Whether the start is complete: upstreams and tracked repositories are loaded, and all
    /// tasks run.
    begun: Arc<AtomicBool>,
}

impl Mirror {
    /// Opens the store and starts everything.
    pub async fn start(
        settings: MirrorSettings,
        sweep_fixed: bool,
    ) -> Result<Arc<Mirror>, StartError> {
        let mirror = Mirror::open(settings).await?;
        if let Err(error) = mirror.begin(sweep_fixed).await {
            mirror.stop().await?;
            return Err(error);
        }
        Ok(mirror)
    }

    /// Opens the store. The mirror can answer questions from then on.
    pub async fn open(settings: MirrorSettings) -> Result<Arc<Mirror>, StartError> {
        // Opening may take long; on its own thread it does not block the signal handler.
        let copy = settings.clone();
        let opened = tokio::task::spawn_blocking(move || open_store(&copy)).await;
        let store = Arc::new(opened.map_err(|fault| {
            StoreError::Fault(format!("opening the store ended unexpectedly: {fault}").into())
        })??);
        let services = Arc::new(build_services(&settings, store).await?);
        let log = StoreLog::listen_to(&services.store);
        let desks = Arc::new(Desks::start(&services, settings.workers)?);
        let net = build_net(&settings)?;
        let following = Arc::new(Following::new(services.clone(), desks.clone(), net.clone()));
        std::fs::create_dir_all(&settings.fetch.temp)
            .map_err(|error| StartError::Temp(settings.fetch.temp.display().to_string(), error))?;
        let fetcher = Arc::new(Fetcher::new(
            services.clone(),
            desks.clone(),
            net,
            settings.fetch.clone(),
            Arc::new(following.clone()),
        ));
        let tracking = Arc::new(Tracking::new(
            services.clone(),
            desks.clone(),
            following.clone(),
            fetcher.last_errors.clone(),
        ));
        let (settings, sweeps) = (Arc::new(settings), Arc::new(Sweeps::default()));
        let discovery = Arc::new(Discovery {
            services: services.clone(),
            desks: desks.clone(),
            fetcher: fetcher.clone(),
            following: following.clone(),
            tracking: tracking.clone(),
            settings: settings.clone(),
            listings: Arc::default(),
            found: FoundRepos::default(),
        });
        let begun = Arc::new(AtomicBool::new(false));
        let inspector = Arc::new(Inspector {
            services: services.clone(),
            desks: desks.clone(),
            following: following.clone(),
            sweeps: sweeps.clone(),
            last_errors: fetcher.last_errors.clone(),
            listings: discovery.listings.clone(),
            settings: settings.clone(),
            begun: begun.clone(),
            counter: Arc::new(RepoCounter::new(
                services.clone(),
                desks.clone(),
                &settings.ready,
            )),
            prover: Prover::new(services.clone(), desks.clone(), Handle::current()),
        });
        let control = Arc::new(Control {
            services: services.clone(),
            desks: desks.clone(),
            following: following.clone(),
            tracking: tracking.clone(),
            sweeps: sweeps.clone(),
            settings: settings.clone(),
            inspector: inspector.clone(),
            handle: Handle::current(),
        });
        let mirror = Arc::new(Mirror {
            services,
            log,
            desks,
            fetcher,
            sweeps,
            following,
            tracking,
            discovery,
            inspector,
            control,
            settings,
            tasks: Mutex::default(),
            begun,
        });
        let services = mirror.services.clone();
        mirror.supervise("disk", move || {
            let (clock, disk) = (services.clock.clone(), services.disk.clone());
            disk_space::watch(clock, disk, services.shutdown.clone())
        });
        Ok(mirror)
    }

    /// Loads the upstreams and tracked repositories, and starts the tasks.
    pub async fn begin(self: &Arc<Self>, sweep_fixed: bool) -> Result<(), StartError> {
        self.following.resume(&self.settings.upstreams).await?;
        self.tracking.resume(&self.settings.dids).await?;
        // The last run may have ended between a move and leaving the old host.
        for host in self.following.for_tracked() {
            self.following.tracked_left(host);
        }
        let nothing = self.following.is_empty()
            && self.tracking.tracked_count() == 0
            && !self.settings.has_sources();
        if nothing {
            let folder = self.settings.data.display().to_string();
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
                    // The supervisor starts this task again.
                    Err(fault) => std::panic::resume_unwind(fault.into_panic()),
                }
            }
        });
        let fetcher = self.fetcher.clone();
        self.supervise("fetcher", move || fetcher.clone().run());
        let sweeper = Arc::new(Sweeper {
            fetcher: self.fetcher.clone(),
            sweeps: self.sweeps.clone(),
            fixed_interval: sweep_fixed,
            requests_per_second: self.settings.fetch.requests_per_second,
        });
        self.supervise("sweeper", move || sweeper.clone().run());
        let upkeep = Arc::new(UpkeepTask::new(
            self.services.clone(),
            self.desks.clone(),
            self.settings.clone(),
        ));
        let watch = upkeep.clone();
        self.supervise("upkeep", move || upkeep.clone().run());
        self.supervise("watch", move || watch.clone().watch());
        let counter = self.inspector.counter.clone();
        self.supervise("counting", move || counts::run(counter.clone()));
        self.begin_discovery();
        self.begun.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Starts the tasks of discovery that the scope needs.
    fn begin_discovery(&self) {
        let scope = &self.services.admission.scope;
        let discovery = self.discovery.clone();
        self.supervise("newcomers", move || newcomers::run(discovery.clone()));
        if scope.network {
            let discovery = self.discovery.clone();
            self.supervise("hosts", move || hosts::run(discovery.clone()));
        }
        if scope.network && scope.by_hosts {
            let discovery = self.discovery.clone();
            self.supervise("streams", move || streams::run(discovery.clone()));
        }
        if scope.is_narrow() {
            let discovery = self.discovery.clone();
            self.supervise("collections", move || collections::run(discovery.clone()));
            let discovery = self.discovery.clone();
            self.supervise("found", move || found_repos::run(discovery.clone()));
        }
    }

    /// Answers questions about this mirror.
    pub fn inspector(&self) -> &Arc<Inspector> {
        &self.inspector
    }

    /// Carries out an operator's orders to this mirror.
    pub fn control(&self) -> &Arc<Control> {
        &self.control
    }

    /// The services that serving needs.
    pub fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// The log, for its consumers.
    pub fn log(&self) -> &StoreLog {
        &self.log
    }

    /// Records that a consumer of the log has processed everything below `next`; see
    /// [`report_position`]. A new consumer gets the hold of the settings.
    pub fn report_consumer(&self, info: &ConsumerInfo, next: u64) -> Result<(), StoreError> {
        let Services { store, clock, .. } = &*self.services;
        report_position(store, clock, self.settings.hold, info, next)
    }

    /// The desks, which serving uses to report damage.
    pub fn desks(&self) -> &Arc<Desks> {
        &self.desks
    }

    /// The fetcher, which settles debts, and which imports use.
    pub fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    /// Starts a task, and restarts it after a panic.
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
                        tracing::error!(name, %error, "a task ended unexpectedly; Gapless restarts it");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        });
        let mut tasks = self.tasks.lock();
        tasks.push(supervisor);
    }

    /// Stops the connections first, then the desks, then the store. Events that were read and
    /// not written are read again after the next start.
    pub async fn stop(&self) -> Result<(), StoreError> {
        self.services.shutdown.begin();
        self.following.stop().await;
        let tasks = {
            let mut tasks = self.tasks.lock();
            std::mem::take(&mut *tasks)
        };
        end_all(tasks, STOP_WITHIN / 4).await;
        let (desks, store) = (self.desks.clone(), self.services.store.clone());
        let closed = tokio::task::spawn_blocking(move || {
            desks.close();
            store.close()
        });
        match tokio::time::timeout(STOP_WITHIN, closed).await {
            Ok(Ok(closed)) => closed,
            Ok(Err(error)) => Err(StoreError::Fault(
                format!("closing the desks and the store failed: {error}").into(),
            )),
            Err(_) => Err(StoreError::System(
                "the store did not close in time; no acknowledged write is lost".into(),
            )),
        }
    }

    /// Resolves when the shutdown begins, with the error that caused it, if any.
    pub async fn ended(&self) -> Option<StoreError> {
        self.services.shutdown.begun().await;
        self.services.shutdown.fault()
    }
}

/// Builds the network client within the configured limits.
fn build_net(settings: &MirrorSettings) -> Result<Net, NetError> {
    Net::with_limits(
        NetSettings {
            allow_private: settings.allow_private,
            contact: settings.contact.clone(),
            authorities: settings.authorities.clone(),
            plc: settings.plc.clone(),
            plc_requests_per_second: settings.plc_requests_per_second,
        },
        HostLimits {
            concurrency: settings.fetch.per_host,
            requests_per_second: settings.fetch.requests_per_second,
            ..HostLimits::default()
        },
    )
}

fn open_store(settings: &MirrorSettings) -> Result<Store, StoreError> {
    let defaults = gapless_store::Settings::default();
    let store = gapless_store::Settings {
        min_free_disk_bytes: settings.min_free_disk,
        frames: gapless_store::frames::FramesSettings {
            max_age_ms: settings.window.as_millis() as u64,
            max_bytes: settings.window_bytes,
            // A firehose of some collections cannot be verified, so none is served.
            keep: settings.collections.is_empty(),
            ..defaults.frames
        },
        ..defaults
    };
    Store::open(&settings.data, &store)
}

async fn build_services(
    settings: &MirrorSettings,
    store: Arc<Store>,
) -> Result<Services, StartError> {
    if let Some(frames) = store.frames() {
        // Until the upkeep believes the clock.
        frames.doubt_clock(true);
    }
    let view = store.view();
    let counters = view.counters()?;
    let clock = Arc::new(Clock::resume(counters.last_tick, view.lived()?));
    let generation = filter_in_force(settings, &store, clock.time()).await?;
    ensure_ids(&store).await?;
    let mut tracked = std::collections::HashSet::new();
    let mut found = std::collections::HashMap::new();
    for row in view.tracked() {
        let (did, row) = row?;
        if let Some(collection) = row.found {
            found.insert(did.clone(), (collection.into(), row.since));
        }
        tracked.insert(did);
    }
    let disk = Arc::new(DiskSpace::new(&settings.data, settings.min_free_disk));
    let shutdown = Arc::new(Shutdown::default());
    Ok(Services {
        hosts: HostRows::open(store.clone(), clock.clone())?,
        upstreams: Upstreams::new(store.clone(), clock.clone(), disk.clone(), shutdown.clone()),
        clock,
        store,
        rules: Rules {
            settings: settings.ledger(generation),
            filter: settings.filter(),
        },
        schedule: Schedule::default(),
        metrics: Metrics::default(),
        admission: Admission {
            scope: Scope::of(&settings.discover),
            tracked: RwLock::new(tracked),
            found: RwLock::new(found),
            newcomers: Newcomers::new(settings.newcomers),
            candidates: Candidates::default(),
            strays: Strays::default(),
        },
        disk,
        shutdown,
    })
}
