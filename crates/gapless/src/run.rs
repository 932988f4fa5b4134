//! `gapless run`: starts the HTTP interface, opens and runs the mirror, and stops both on a
//! signal.

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
pub(crate) enum RunError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(
        "cannot listen on {0}: {1}. Another program uses the address, or this user may not use it; --bind names another"
    )]
    Bind(std::net::SocketAddr, std::io::Error),
    #[error("{0}")]
    Other(String),
}

impl RunError {
    /// Whether the error is a usage error.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(self, RunError::Start(StartError::NoSources(_)))
    }
}

/// How long the runtime waits for blocking tasks at the end.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs until a signal arrives, or until the store cannot be written any more.
pub(crate) fn run(config: Config, sweep_fixed: bool) -> Result<(), RunError> {
    init_logging(config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| RunError::Other(format!("cannot start the runtime: {error}")))?;
    let ended = runtime.block_on(serve(config, sweep_fixed));
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    ended
}

async fn serve(config: Config, sweep_fixed: bool) -> Result<(), RunError> {
    let mut signals = Signals::install()?;
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
        "listening; opening the store"
    );
    let app = App::new(settings);
    let (close, closing) = watch::channel(false);
    let closed = wait_for(closing);
    let web = tokio::spawn(web::serve(listener, app.clone(), closed));
    let ended = run_mirror(config, sweep_fixed, &app, &mut signals, &close).await;
    web.abort();
    ended
}

/// Opens, starts, runs and stops the mirror. A signal ends any of these phases.
async fn run_mirror(
    config: Config,
    sweep_fixed: bool,
    app: &App,
    signals: &mut Signals,
    close: &watch::Sender<bool>,
) -> Result<(), RunError> {
    let serve_config = config.serve.clone();
    let mirror = tokio::select! {
        opened = Mirror::open(config.mirror.clone()) => opened?,
        () = signals.first() => {
            tracing::info!("stopped before the store was open");
            return Ok(());
        }
    };
    let serving = Serving::new(&mirror, &serve_config);
    app.set_running(Running::new(&mirror, Arc::new(serving)));
    let begun = tokio::select! {
        begun = mirror.begin(sweep_fixed) => Some(begun),
        () = signals.first() => None,
    };
    if let Some(Err(error)) = begun {
        // The store is closed properly; the error of the start is what the caller reports.
        if let Err(error) = mirror.stop().await {
            tracing::warn!(%error, "the store was not closed properly; the next start recovers it");
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
    tracing::info!(
        "stopping: pending writes are finished first; a second signal ends the program at once"
    );
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
    // A dropped sender also ends the wait.
    let _ = closing.wait_for(|closing| *closing).await;
}

/// SIGINT and SIGTERM.
struct Signals {
    first: watch::Receiver<bool>,
}

impl Signals {
    /// Handles signals from now on: the first one is passed on, the second one ends the
    /// program at once.
    fn install() -> Result<Signals, RunError> {
        use tokio::signal::unix::{SignalKind, signal};
        let handle = |kind| {
            let handled = signal(kind);
            handled.map_err(|error| RunError::Other(format!("cannot handle signals: {error}")))
        };
        let mut terminate = handle(SignalKind::terminate())?;
        let mut interrupt = handle(SignalKind::interrupt())?;
        let (sender, first) = watch::channel(false);
        tokio::spawn(async move {
            for _ in 0..2 {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if sender.send_replace(true) {
                    // Everything that was acknowledged is durable.
                    tracing::warn!(
                        "second signal: the program ends without waiting for pending writes"
                    );
                    std::process::exit(1);
                }
            }
        });
        Ok(Signals { first })
    }

    async fn first(&mut self) {
        wait_for(self.first.clone()).await;
    }
}

fn init_logging(format: LogFormat) {
    // A log that cannot be written, on a full disk or a closed pipe, must not end anything: the
    // subscriber would report its own error on standard error, and panic.
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .log_internal_errors(false);
    // A second subscriber in one process, as in tests, has no effect.
    let _ = match format {
        LogFormat::Json => builder.json().try_init(),
        LogFormat::Text => builder.try_init(),
    };
}
