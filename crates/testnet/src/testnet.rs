//! A running network: starts it, drives it, stops it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gapless_atp::syntax::Did;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::config::{Config, ConfigError, check_rate};
use crate::faults::{Fault, Faults, Place, Spec};
use crate::net::{Net, Server, Urls, answer};
use crate::truth::Truth;
use crate::world::{ActionError, NewAccount, NewCommit, Status, World, Write, WriteError};
use crate::{control, http};

/// The number of bursts per second in which background commits are made.
const BURSTS_PER_SECOND: u64 = 50;
/// The most commits of one burst. After a burst other tasks run, and the rate is read
/// again.
const MOST_BURST_COMMITS: u64 = 64;

/// Why a network cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot listen on port {port} of loopback: {error}")]
    Bind { port: u16, error: std::io::Error },
    #[error("cannot fill the network: {0}")]
    Action(#[from] ActionError),
    #[error("the network panicked while its accounts were created")]
    Panic,
}

/// The outcome of setting a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetFault {
    /// The number with which the fault is cleared; `None` for an immediate fault.
    pub id: Option<u64>,
    /// How often an immediate fault was performed.
    pub fired: u64,
}

/// Drives a network. Tests in the same process and the HTTP control server use it alike.
pub struct Handle {
    pub(crate) net: Arc<Net>,
    rate: watch::Sender<f64>,
}

/// A running network. Dropping it stops the network.
pub struct Testnet {
    handle: Arc<Handle>,
    tasks: Vec<JoinHandle<()>>,
}

impl std::ops::Deref for Testnet {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

struct Listeners {
    plc: TcpListener,
    control: TcpListener,
    pds: Vec<TcpListener>,
    relay: Option<TcpListener>,
    jetstream: Option<TcpListener>,
}

impl Testnet {
    /// Creates the accounts of a world and serves it on loopback.
    pub async fn start(config: Config) -> Result<Testnet, StartError> {
        config.validate()?;
        let config = Arc::new(config);
        let listeners = Listeners::bind(&config).await?;
        let urls = listeners.urls();
        let ports: Vec<u16> = listeners.pds.iter().map(port_of).collect();
        let faults = Arc::new(Faults::default());
        let mut world = World::new(config.clone(), &ports, faults.clone());
        let world = tokio::task::spawn_blocking(move || {
            world.populate()?;
            Ok::<_, ActionError>(world)
        });
        let world = world.await.map_err(|_| StartError::Panic)??;
        let rate = watch::Sender::new(config.rate);
        let net = Arc::new(Net::new(config, faults, urls, world));
        let handle = Arc::new(Handle { net, rate });
        let mut tasks = listeners.serve(&handle);
        tasks.push(tokio::spawn(background(
            handle.net.clone(),
            handle.rate.subscribe(),
        )));
        let testnet = Testnet { handle, tasks };
        for spec in testnet.net.config.faults.clone() {
            testnet.fault(spec)?;
        }
        Ok(testnet)
    }
}

impl Drop for Testnet {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        let world = self.handle.net.world();
        for host in &world.hosts {
            host.feed.disconnect();
        }
        if let Some(relay) = &world.relay {
            relay.feed.disconnect();
        }
    }
}

impl Handle {
    pub fn urls(&self) -> &Urls {
        &self.net.urls
    }

    pub fn truth(&self) -> Truth {
        Truth(self.net.clone())
    }

    pub fn faults(&self) -> &Faults {
        &self.net.faults
    }

    /// Sets a fault, or performs it if it is an immediate one.
    pub fn fault(&self, mut spec: Spec) -> Result<SetFault, ActionError> {
        let mut world = self.net.world();
        if let Some(Place::Pds(index)) = spec.host
            && index >= world.hosts.len()
        {
            return Err(ActionError::NoHost(index));
        }
        spec.check(world.relay.is_some(), world.jetstream.is_some())?;
        if spec.fault.is_immediate() {
            let fired = world.act(&spec)?;
            for _ in 0..fired {
                self.net.faults.note(&spec.fault);
            }
            return Ok(SetFault { id: None, fired });
        }
        if let Fault::PlcStale { seq } = &mut spec.fault {
            seq.get_or_insert(world.plc.last_seq());
        }
        let id = Some(self.net.faults.arm(spec));
        Ok(SetFault { id, fired: 0 })
    }

    /// Clears a fault. Events that a reorder still holds back are sent now. Returns
    /// whether the fault was set.
    pub fn clear_fault(&self, id: u64) -> bool {
        let cleared = self.net.faults.clear(id);
        self.net.world().release_held();
        cleared
    }

    /// Clears all faults of a name, or all faults. Returns whether any was set.
    pub fn clear_faults(&self, name: Option<&str>) -> bool {
        let cleared = self.net.faults.clear_named(name);
        self.net.world().release_held();
        cleared
    }

    pub fn create_account(&self, new: NewAccount) -> Result<Did, ActionError> {
        self.net.world().create_account(new)
    }

    /// Makes one commit.
    pub fn write(&self, did: &Did, writes: &[Write]) -> Result<NewCommit, WriteError> {
        self.net.world().write(did, writes)
    }

    /// Lets random accounts act `count` times, and returns the number of commits made.
    pub fn stir(&self, count: u64) -> u64 {
        // The world is locked for one commit at a time, so servers answer in between.
        let stirred = (0..count).filter(|_| self.net.world().stir().is_some());
        stirred.count() as u64
    }

    pub fn rotate_key(&self, did: &Did, quiet: bool) -> Result<(), ActionError> {
        self.net.world().rotate_key(did, quiet)
    }

    pub fn migrate(&self, did: &Did, to: usize, import: bool) -> Result<(), ActionError> {
        self.net.world().migrate(did, to, import)
    }

    pub fn set_status(&self, did: &Did, status: Status) -> Result<(), ActionError> {
        self.net.world().set_status(did, status)
    }

    pub fn tombstone(&self, did: &Did) -> Result<(), ActionError> {
        self.net.world().tombstone(did)
    }

    /// Sets the rate of background commits, in commits per second.
    pub fn set_rate(&self, commits_per_second: f64) -> Result<(), ConfigError> {
        check_rate(commits_per_second)?;
        self.rate.send_replace(commits_per_second);
        Ok(())
    }

    pub fn rate(&self) -> f64 {
        *self.rate.borrow()
    }

    /// The numbers of commits made and events sequenced since the start.
    pub fn counts(&self) -> (u64, u64) {
        let world = self.net.world();
        (world.commits, world.events)
    }

    /// The last number that the stream of a PDS or the relay gave; `None` for other
    /// servers.
    pub fn last_seq(&self, place: Place) -> Option<u64> {
        let world = self.net.world();
        match place {
            Place::Pds(index) => Some(world.hosts.get(index)?.feed.last_seq()),
            Place::Relay => Some(world.relay.as_ref()?.feed.last_seq()),
            _ => None,
        }
    }

    /// All frames that the stream of a PDS or the relay still keeps; `None` for other
    /// servers.
    pub fn frames(&self, place: Place) -> Option<Vec<Bytes>> {
        let world = self.net.world();
        match place {
            Place::Pds(index) => Some(world.hosts.get(index)?.feed.frames()),
            Place::Relay => Some(world.relay.as_ref()?.feed.frames()),
            _ => None,
        }
    }
}

fn port_of(listener: &TcpListener) -> u16 {
    listener.local_addr().map_or(0, |address| address.port())
}

fn url_of(listener: &TcpListener) -> String {
    format!("http://localhost:{}", port_of(listener))
}

impl Listeners {
    /// Binds the listeners, from the first port upwards: directory, control, PDSs, relay,
    /// Jetstream.
    async fn bind(config: &Config) -> Result<Listeners, StartError> {
        let mut next = config.port;
        let mut port = || {
            let port = next;
            next = if next == 0 { 0 } else { next + 1 };
            port
        };
        let bind = async |port| {
            let bound = http::bind(port).await;
            bound.map_err(|error| StartError::Bind { port, error })
        };
        let plc = bind(port()).await?;
        let control = bind(port()).await?;
        let mut pds = Vec::new();
        for _ in 0..config.pds {
            pds.push(bind(port()).await?);
        }
        let relay = if config.relay {
            Some(bind(port()).await?)
        } else {
            None
        };
        let jetstream = if config.jetstream {
            Some(bind(port()).await?)
        } else {
            None
        };
        Ok(Listeners {
            plc,
            control,
            pds,
            relay,
            jetstream,
        })
    }

    fn urls(&self) -> Urls {
        Urls {
            plc: url_of(&self.plc),
            pds: self.pds.iter().map(url_of).collect(),
            relay: self.relay.as_ref().map(url_of),
            jetstream: self.jetstream.as_ref().map(url_of),
            control: url_of(&self.control),
        }
    }

    fn serve(self, handle: &Arc<Handle>) -> Vec<JoinHandle<()>> {
        let start = |listener, place| {
            let net = handle.net.clone();
            http::serve(listener, Arc::new(Server { net, place }), answer)
        };
        let mut tasks = vec![
            http::serve(self.control, handle.clone(), control::answer),
            start(self.plc, Place::Plc),
        ];
        for (index, listener) in self.pds.into_iter().enumerate() {
            tasks.push(start(listener, Place::Pds(index)));
        }
        tasks.extend(self.relay.map(|listener| start(listener, Place::Relay)));
        tasks.extend(
            self.jetstream
                .map(|listener| start(listener, Place::Jetstream)),
        );
        tasks
    }
}

/// Makes background traffic at the current rate.
async fn background(net: Arc<Net>, mut rate: watch::Receiver<f64>) {
    let mut ticks = interval(Duration::from_millis(1000 / BURSTS_PER_SECOND));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut owed: f64 = 0.0;
    let mut last = Instant::now();
    loop {
        if *rate.borrow_and_update() == 0.0 {
            if rate.changed().await.is_err() {
                return;
            }
            (owed, last) = (0.0, Instant::now());
            continue;
        }
        if owed >= 1.0 {
            tokio::task::yield_now().await
        } else {
            ticks.tick().await;
        }
        let (now, per_second) = (Instant::now(), *rate.borrow());
        owed += per_second * (now - last).as_secs_f64();
        last = now;
        // A machine that cannot keep up drops the commits that it is behind.
        owed = owed.min(per_second.max(1.0));
        let burst = (owed as u64).min(MOST_BURST_COMMITS);
        for _ in 0..burst {
            net.world().stir();
        }
        owed -= burst as f64;
    }
}
