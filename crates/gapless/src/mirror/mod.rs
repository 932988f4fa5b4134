//! The mirror, running: everything started, wired, supervised, and stopped in the
//! right order.

mod answers;
mod following;
mod operate;
mod upkeep;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use gapless_core::ledger::{FilterGen, Settings};
use gapless_store::Store;
use gapless_store::change::{Change, WishChange};
use gapless_store::error::StoreError;
use gapless_store::table::wish;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::config::{Config, KeepKeys, Pattern};
use crate::fetch::sweep::{Sweeper, Sweeps};
use crate::fetch::work::{FetchSettings, Fetcher, read_debts};
use crate::filter::Filter;
use crate::hosts::HostRows;
use crate::ingest::desk::Desks;
use crate::ingest::upstreams::{Upstreams, write};
use crate::metrics::Metrics;
use crate::net::{HostLimits, Net, NetError, NetSettings};
use crate::schedule::Schedule;
use crate::shared::{End, Shared};
use answers::Counted;
use following::Following;

/// How long the end may take before what is left is left for the next start.
const END_WITHIN: Duration = Duration::from_secs(8);

/// Why the mirror did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] StoreError),
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

pub struct Mirror {
    pub shared: Arc<Shared>,
    pub desks: Arc<Desks>,
    pub fetcher: Arc<Fetcher>,
    sweeps: Arc<Sweeps>,
    following: Arc<Following>,
    config: Config,
    handle: Handle,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    counted: Mutex<Option<Counted>>,
}

impl Mirror {
    /// Opens the store and starts everything.
    pub async fn start(config: Config, sweep_fixed: bool) -> Result<Arc<Mirror>, StartError> {
        let store = Arc::new(open(&config)?);
        let shared = Arc::new(share(&config, store).await?);
        let desks = Arc::new(Desks::start(&shared, config.limits.workers)?);
        let net = Net::with_limits(
            NetSettings {
                allow_private: config.allow_private,
                contact: config.contact.clone(),
                plc: config.plc.clone(),
            },
            HostLimits {
                concurrency: config.fetch.per_host,
                requests_per_second: config.fetch.requests_per_second,
                ..HostLimits::default()
            },
        )?;
        let following = Arc::new(Following::new(shared.clone(), desks.clone(), net.clone()));
        std::fs::create_dir_all(&config.fetch.temp)
            .map_err(|error| StartError::Temp(config.fetch.temp.display().to_string(), error))?;
        let fetcher = Arc::new(Fetcher::new(
            shared.clone(),
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
        let mirror = Arc::new(Mirror {
            shared,
            desks,
            fetcher,
            sweeps: Arc::new(Sweeps::default()),
            following,
            config,
            handle: Handle::current(),
            tasks: Mutex::default(),
            counted: Mutex::default(),
        });
        mirror.begin(sweep_fixed).await?;
        Ok(mirror)
    }

    async fn begin(self: &Arc<Self>, sweep_fixed: bool) -> Result<(), StartError> {
        self.following.resume(&self.config.upstreams).await?;
        self.track_all(&self.config.dids).await?;
        let nothing = self.following.is_empty() && self.tracked_count() == 0;
        if nothing {
            let folder = self.config.data.display().to_string();
            self.stop().await?;
            return Err(StartError::NoSources(folder));
        }
        let shared = self.shared.clone();
        self.supervise("debts", move || {
            let shared = shared.clone();
            async move {
                let worker = shared.clone();
                let read = tokio::task::spawn_blocking(move || read_debts(&worker)).await;
                match read {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => shared.end.fail(error),
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
        });
        self.supervise("sweeper", move || sweeper.clone().run());
        let upkeep = Arc::downgrade(self);
        self.supervise("upkeep", move || upkeep::run(upkeep.clone()));
        Ok(())
    }

    /// Starts a task, and starts it again when it ends by a fault of ours.
    fn supervise<F>(&self, name: &'static str, mut task: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shared = self.shared.clone();
        let supervisor = tokio::spawn(async move {
            loop {
                match tokio::spawn(task()).await {
                    Ok(()) => return,
                    Err(_) if shared.end.is_ending() => return,
                    Err(error) => {
                        shared.metrics.restarts.inc();
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
        self.shared.end.end();
        self.following.stop().await;
        let tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        for mut task in tasks {
            if tokio::time::timeout(END_WITHIN / 4, &mut task)
                .await
                .is_err()
            {
                task.abort();
            }
        }
        let (desks, store) = (self.desks.clone(), self.shared.store.clone());
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
        self.shared.end.ended().await;
        self.shared.end.fault()
    }
}

fn open(config: &Config) -> Result<Store, StoreError> {
    let defaults = gapless_store::Settings::default();
    let settings = gapless_store::Settings {
        min_free_disk_bytes: config.min_free_disk,
        frames: gapless_store::frames::FramesSettings {
            max_age_ms: config.serve.window.as_millis() as u64,
            max_bytes: config.serve.window_bytes,
            ..defaults.frames
        },
        ..defaults
    };
    Store::open(&config.data, &settings)
}

async fn share(config: &Config, store: Arc<Store>) -> Result<Shared, StartError> {
    let view = store.view();
    let counters = view.counters()?;
    let clock = Arc::new(Clock::resume(counters.last_tick));
    let generation = filter_in_force(config, &store).await?;
    let mut tracked = std::collections::HashSet::new();
    for row in view.tracked() {
        tracked.insert(row?.0);
    }
    let mut dead_letters = 0;
    for row in view.dead_letters() {
        row?;
        dead_letters += 1;
    }
    let settings: Settings = config.ledger(generation);
    Ok(Shared {
        hosts: HostRows::open(store.clone())?,
        upstreams: Upstreams::new(store.clone(), clock.clone()),
        clock,
        store,
        settings,
        filter: Filter {
            wanted: config.collections.clone(),
            wanted_keys_only: config.keep_keys == KeepKeys::Wanted,
        },
        schedule: Schedule::default(),
        metrics: Metrics::default(),
        tracked: RwLock::new(tracked),
        parked_bytes: AtomicU64::new(0),
        dead_letters: AtomicU64::new(dead_letters),
        end: End::default(),
    })
}

/// The generation of the filter: a wider one than before is a new one, and what
/// was fetched under the old one is fetched again.
async fn filter_in_force(config: &Config, store: &Arc<Store>) -> Result<FilterGen, StoreError> {
    let patterns: Vec<String> = config.collections.iter().map(ToString::to_string).collect();
    let wanted_keys_only = config.keep_keys == KeepKeys::Wanted;
    let old = store.view().filter()?;
    let generation = match &old {
        None => FilterGen(0),
        Some(old) => {
            let was: Vec<Pattern> = old
                .patterns
                .iter()
                .filter_map(|text| Pattern::parse(text))
                .collect();
            let wider =
                wider(&was, &config.collections) || (old.wanted_keys_only && !wanted_keys_only);
            FilterGen(old.generation.0 + u32::from(wider))
        }
    };
    let filter = wish::Filter {
        generation,
        patterns,
        wanted_keys_only,
    };
    if old.as_ref() != Some(&filter) {
        let change = Change {
            wish: Some(WishChange::Filter(filter)),
            ..Change::default()
        };
        write(store, change).await?;
    }
    Ok(generation)
}

/// Whether a filter wants something that another did not.
fn wider(was: &[Pattern], now: &[Pattern]) -> bool {
    match (was.is_empty(), now.is_empty()) {
        (true, _) => false,
        (false, true) => true,
        (false, false) => !now.iter().all(|new| {
            was.iter().any(|old| match (old, new) {
                (Pattern::Exactly(old), Pattern::Exactly(new)) => old == new,
                (Pattern::Below(old), Pattern::Exactly(new) | Pattern::Below(new)) => {
                    new.starts_with(old.as_str())
                }
                (Pattern::Exactly(_), Pattern::Below(_)) => false,
            })
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(text: &[&str]) -> Vec<Pattern> {
        text.iter()
            .map(|one| Pattern::parse(one).unwrap())
            .collect()
    }

    #[test]
    fn wider_is_what_wants_something_new() {
        let posts = patterns(&["app.bsky.feed.post"]);
        let feed = patterns(&["app.bsky.feed.*"]);
        assert!(!wider(&[], &posts), "from all to some");
        assert!(wider(&posts, &[]), "from some to all");
        assert!(wider(&posts, &feed));
        assert!(!wider(&feed, &posts));
        assert!(!wider(&posts, &posts));
        assert!(wider(&posts, &patterns(&["app.bsky.feed.like"])));
    }
}
