//! The stage: a test network on this machine and a mirror of it, in one process. The mirror
//! can be stopped and started again while the network continues.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use gapless_store::Store;
use gapless_testnet::{Config as NetConfig, Place, Testnet};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::{self, Config, Flags};
use crate::demo::DemoError;
use crate::demo::acts::HOSTS;
use crate::demo::acts::network::MirroredNetwork;
use crate::serve::Serving;
use crate::web::{self, App, Running, WebSettings};
use gapless_mirror::Mirror;
use gapless_mirror::api::{Inspect as _, RepoAnswer, Status};
use gapless_store::sync::Mutex;

/// Records of each repository at the beginning.
const RECORDS: usize = 30;
/// The sweep interval of the mirror. The default is too long for a demonstration.
const SWEEP_EVERY: &str = "3s";
/// Requests per second to one host, which is a local one.
const REQUESTS_PER_SECOND: f64 = 1000.0;
/// How long the last users of a closed store may take to release it.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// The network and the mirror.
pub struct Stage {
    pub net: Testnet,
    config: Config,
    up: Mutex<Option<RunningMirror>>,
    address: SocketAddr,
}

/// A running mirror and its HTTP server.
struct RunningMirror {
    mirror: Arc<Mirror>,
    close: watch::Sender<bool>,
    web: JoinHandle<std::io::Result<()>>,
}

/// The options of the stage.
pub struct StageOptions {
    pub repos: usize,
    /// The first port of the network; 0 takes free ones.
    pub port: u16,
    pub bind: SocketAddr,
}

impl Stage {
    pub async fn build(options: &StageOptions, folder: &Path) -> Result<Stage, DemoError> {
        let net = Testnet::start(NetConfig {
            repos: options.repos,
            pds: HOSTS,
            records: RECORDS,
            port: options.port,
            wall_clock: true,
            did_web: false,
            ..NetConfig::default()
        })
        .await
        .map_err(|error| DemoError::Network(error.to_string()))?;
        let config = configuration(&net, folder, options.bind)?;
        let mut stage = Stage {
            net,
            config,
            up: Mutex::default(),
            address: options.bind,
        };
        let up = stage.start().await?;
        stage.put(Some(up.0));
        stage.address = up.1;
        Ok(stage)
    }

    fn put(&self, up: Option<RunningMirror>) -> Option<RunningMirror> {
        let mut place = self.up.lock();
        std::mem::replace(&mut *place, up)
    }

    /// Where the mirror listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The mirror; `None` while it is stopped.
    pub fn mirror(&self) -> Option<Arc<Mirror>> {
        let up = self.up.lock();
        up.as_ref().map(|up| up.mirror.clone())
    }

    /// The mirror; fails while it is stopped.
    pub fn running(&self) -> Result<Arc<Mirror>, DemoError> {
        self.mirror()
            .ok_or_else(|| DemoError::Mirror("it is not running".to_owned()))
    }

    async fn start(&self) -> Result<(RunningMirror, SocketAddr), DemoError> {
        let bind = self.address;
        let listener = TcpListener::bind(bind)
            .await
            .map_err(|error| DemoError::Bind(bind, error))?;
        let address = listener
            .local_addr()
            .map_err(|error| DemoError::Bind(bind, error))?;
        let mirror = Mirror::start(self.config.mirror.clone(), true)
            .await
            .map_err(|error| DemoError::Mirror(error.to_string()))?;
        let app = App::new(WebSettings {
            token: None,
            loopback: address.ip().is_loopback(),
            open: true,
        });
        let serving = Serving::new(&mirror, &self.config.serve);
        app.set_running(Running::new(&mirror, Arc::new(serving)));
        let (close, mut closing) = watch::channel(false);
        let closed = async move {
            // A dropped sender also ends the server.
            let _ = closing.wait_for(|closing| *closing).await;
        };
        let web = tokio::spawn(web::serve(listener, app, closed));
        Ok((RunningMirror { mirror, close, web }, address))
    }

    /// Stops the mirror gracefully.
    pub(crate) async fn take_down(&self) -> Result<(), DemoError> {
        let Some(up) = self.put(None) else {
            return Ok(());
        };
        up.close.send_replace(true);
        up.web.abort();
        // The only possible error is the abort.
        let _ = up.web.await;
        let store: Weak<Store> = Arc::downgrade(&up.mirror.services().store);
        let stopped = up.mirror.stop().await;
        drop(up.mirror);
        stopped.map_err(|error| DemoError::Mirror(error.to_string()))?;
        // Tasks that still read release the store in a moment.
        let began = Instant::now();
        while store.strong_count() > 0 && began.elapsed() < RELEASE_TIMEOUT {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

impl MirroredNetwork for &Stage {
    fn net(&self) -> &Testnet {
        &self.net
    }

    fn stream(&self, host: usize) -> Place {
        Place::Pds(host)
    }

    async fn repo(&mut self, did: &Did) -> Result<Option<RepoAnswer>, DemoError> {
        let answer = self.running()?.inspector().repo(did);
        answer.map_err(|error| DemoError::Mirror(error.to_string()))
    }

    async fn status(&mut self) -> Result<Status, DemoError> {
        let status = self.running()?.inspector().status();
        status.map_err(|error| DemoError::Mirror(error.to_string()))
    }

    async fn stop_mirror(&mut self) -> Result<(), DemoError> {
        self.take_down().await
    }

    async fn start_mirror(&mut self) -> Result<(), DemoError> {
        let (up, _) = self.start().await?;
        self.put(Some(up));
        Ok(())
    }
}

fn configuration(net: &Testnet, folder: &Path, bind: SocketAddr) -> Result<Config, DemoError> {
    let urls = net.urls();
    let flags = Flags {
        data: Some(data(folder).display().to_string()),
        bind: Some(bind.to_string()),
        plc: Some(urls.plc.clone()),
        upstream: urls.pds.iter().map(|url| format!("pds={url}")).collect(),
        sweep_every: Some(SWEEP_EVERY.to_owned()),
        allow_private: true,
        ..Flags::default()
    };
    // Neither a file nor the environment configures a demonstration.
    let loaded = config::load(&flags, &[], &data(folder));
    let mut config = loaded
        .map_err(|error| DemoError::Mirror(error.to_string()))?
        .config;
    config.mirror.fetch.requests_per_second = REQUESTS_PER_SECOND;
    Ok(config)
}

/// The data folder of the mirror inside the folder of a demonstration.
pub(super) fn data(folder: &Path) -> PathBuf {
    folder.join("mirror")
}
