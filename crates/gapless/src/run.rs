//! `gapless run`: the wiring, on one screen.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::config::{Config, LogFormat};
use crate::serve::Serving;
use crate::web::{self, App, Running, WebSettings};
use gapless_mirror::lifecycle::{Mirror, StartError};

/// Why the program ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(
        "cannot listen on {0}: {1}. Another program uses the address, or it is not ours to use; --bind names another"
    )]
    Bind(std::net::SocketAddr, std::io::Error),
    #[error("{0}")]
    Other(String),
}

impl RunError {
    /// Whether the command line is to blame.
    pub fn is_usage(&self) -> bool {
        matches!(self, RunError::Start(StartError::NoSources(_)))
    }
}

/// What is still at work when the program has stopped is not waited for any longer.
const LEFT_AFTER: Duration = Duration::from_secs(1);

/// Runs until it is told to stop, or until nothing can be written any more.
pub fn run(config: Config, sweep_fixed: bool) -> Result<(), RunError> {
    log_as(config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| RunError::Other(format!("cannot start the runtime: {error}")))?;
    let ended = runtime.block_on(serve(config, sweep_fixed));
    runtime.shutdown_timeout(LEFT_AFTER);
    ended
}

async fn serve(config: Config, sweep_fixed: bool) -> Result<(), RunError> {
    let mut signals = Signals::heed()?;
    let listener = TcpListener::bind(config.bind)
        .await
        .map_err(|error| RunError::Bind(config.bind, error))?;
    let settings = WebSettings {
        token: config.token.clone(),
        loopback: config.bind.ip().is_loopback(),
        open: config.serve.open,
    };
    let address = listener.local_addr().map(|at| at.to_string());
    tracing::info!(
        address = address.unwrap_or_default(),
        "serving; the store is opened"
    );
    let app = App::new(settings);
    let (close, closing) = watch::channel(false);
    let closed = wait_for(closing);
    let web = tokio::spawn(web::serve(listener, app.clone(), closed));
    let ended = run_mirror(config, sweep_fixed, &app, &mut signals, &close).await;
    web.abort();
    ended
}

/// Opens, starts, runs and stops the mirror. A signal ends each of these phases.
async fn run_mirror(
    config: Config,
    sweep_fixed: bool,
    app: &App,
    signals: &mut Signals,
    close: &watch::Sender<bool>,
) -> Result<(), RunError> {
    let serve_config = config.serve.clone();
    let mirror = tokio::select! {
        opened = Mirror::open(config.mirror_settings()) => opened?,
        () = signals.first() => {
            tracing::info!("stopped before the store was open");
            return Ok(());
        }
    };
    let serving = Serving::new(
        mirror.services().clone(),
        mirror.desks().clone(),
        mirror.fetcher().net.clone(),
        &serve_config,
    );
    app.set_running(Running::new(&mirror, Arc::new(serving)));
    let begun = tokio::select! {
        begun = mirror.begin(sweep_fixed) => Some(begun),
        () = signals.first() => None,
    };
    if let Some(Err(error)) = begun {
        // What is open is closed in good order; why it did not begin is the news.
        if let Err(error) = mirror.stop().await {
            tracing::warn!(%error, "the store was not closed in good order");
        }
        return Err(error.into());
    }
    let fault = match begun {
        None => None,
        Some(_) => {
            tracing::info!("started");
            tokio::select! {
                () = signals.first() => None,
                fault = mirror.ended() => fault,
            }
        }
    };
    tracing::info!("stopping: what is on its way is written first; once more ends at once");
    close.send_replace(true);
    let stopped = mirror.stop().await;
    match (fault, stopped) {
        (Some(fault), _) => Err(RunError::Other(fault.to_string())),
        (None, Err(error)) => Err(RunError::Other(error.to_string())),
        (None, Ok(())) => {
            tracing::info!("stopped");
            Ok(())
        }
    }
}

async fn wait_for(mut closing: watch::Receiver<bool>) {
    // When nobody can say it any more, it is the end, too.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Ctrl-C, and what the system sends when it wants us to end.
struct Signals {
    told: watch::Receiver<bool>,
}

impl Signals {
    /// From now on: the first one is told, the second ends the program at once.
    fn heed() -> Result<Signals, RunError> {
        use tokio::signal::unix::{SignalKind, signal};
        let heed = |kind| {
            let heeded = signal(kind);
            heeded.map_err(|error| RunError::Other(format!("cannot heed signals: {error}")))
        };
        let mut terminate = heed(SignalKind::terminate())?;
        let mut interrupt = heed(SignalKind::interrupt())?;
        let (tell, told) = watch::channel(false);
        tokio::spawn(async move {
            for _ in 0..2 {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if tell.send_replace(true) {
                    // Nothing that was acknowledged is lost: it is on the disk.
                    tracing::warn!("ended at once");
                    std::process::exit(1);
                }
            }
        });
        Ok(Signals { told })
    }

    async fn first(&mut self) {
        wait_for(self.told.clone()).await;
    }
}

fn log_as(format: LogFormat) {
    let builder = tracing_subscriber::fmt().with_writer(std::io::stderr);
    // A second one in the same process, as in tests, changes nothing.
    let _ = match format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.try_init(),
    };
}
