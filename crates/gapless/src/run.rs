//! `gapless run`: the wiring, on one screen.

use std::future::Future;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::config::{Config, LogFormat};
use crate::mirror::{Mirror, StartError};
use crate::web::{self, WebSettings};

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

/// Runs until it is told to stop, or until nothing can be written any more.
pub fn run(config: Config, sweep_fixed: bool) -> Result<(), RunError> {
    log_as(config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| RunError::Other(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(async move {
        let listener = TcpListener::bind(config.bind)
            .await
            .map_err(|error| RunError::Bind(config.bind, error))?;
        let settings = WebSettings {
            token: config.token.clone(),
            loopback: config.bind.ip().is_loopback(),
        };
        let signals = signalled();
        let mirror = Mirror::start(config, sweep_fixed).await?;
        let address = listener.local_addr().map(|at| at.to_string());
        tracing::info!(address = address.unwrap_or_default(), "serving");
        let ends = mirror.shared.clone();
        let served: Arc<dyn crate::api::Mirror> = mirror.clone();
        let web = tokio::spawn(web::serve(listener, served, settings, async move {
            ends.end.ended().await;
        }));
        let fault = tokio::select! {
            () = signals => None,
            fault = mirror.ended() => fault,
        };
        tracing::info!("stopping: what is on its way is written first");
        let stopped = mirror.stop().await;
        web.abort();
        match (fault, stopped) {
            (Some(fault), _) => Err(RunError::Other(fault.to_string())),
            (None, Err(error)) => Err(RunError::Other(error.to_string())),
            (None, Ok(())) => {
                tracing::info!("stopped");
                Ok(())
            }
        }
    })
}

/// Resolves at Ctrl-C, or when the system asks us to end.
fn signalled() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let terminate = signal(SignalKind::terminate());
    let interrupt = signal(SignalKind::interrupt());
    async move {
        match (terminate, interrupt) {
            (Ok(mut terminate), Ok(mut interrupt)) => {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            }
            // Without signals the program ends by other means.
            _ => std::future::pending().await,
        }
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
