//! The HTTP interface: queries about a running mirror, the orders of an operator, and the
//! methods of `/xrpc` for other programs.
//!
//! `guard` checks every request before a handler sees it. Handlers call the mirror only
//! on blocking threads, at most `CALLS_AT_ONCE` at the same time, and answer 503 until
//! the store is open. No request can make this module panic; every error is JSON.

mod drain;
mod firehose;
mod guard;
mod import;
mod listener;
mod request;
mod response;
mod routes;
mod verify;
mod websocket;
mod xrpc;

use std::future::Future;
use std::sync::{Arc, OnceLock};

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::config::Token;
use crate::serve::Serving;
use gapless_mirror::Mirror;
use gapless_mirror::api::{ApiError, Inspect, Operate};
use gapless_mirror::repair::import::Importer;

/// Calls into the mirror that run at the same time; further calls wait.
const CALLS_AT_ONCE: usize = 32;

const STARTING: &str = "starting: the store is being opened";
const NOTHING_SERVED: &str = "no repository is served here";

/// The rules for who may send requests.
#[derive(Debug, Clone)]
pub struct WebSettings {
    pub token: Option<Token>,
    /// Whether the bound address is a loopback address.
    pub loopback: bool,
    /// Whether clients without a token may read `/xrpc`.
    pub open: bool,
}

/// What the handlers call once the store is open.
pub struct Running {
    pub inspector: Arc<dyn Inspect>,
    pub control: Arc<dyn Operate>,
    /// What `/xrpc` reads from. Without it, `/xrpc` answers 503.
    pub serving: Option<Arc<Serving>>,
    /// What `/v1/import` writes with. Without it, `/v1/import` answers 503.
    pub importer: Option<Importer>,
}

impl Running {
    /// The parts of a mirror that the handlers call.
    pub fn new(mirror: &Arc<Mirror>, serving: Arc<Serving>) -> Running {
        Running {
            inspector: mirror.inspector().clone(),
            control: mirror.control().clone(),
            serving: Some(serving),
            importer: Some(Importer::new(mirror.fetcher().clone())),
        }
    }

    fn serving(&self) -> Result<&Arc<Serving>, ApiError> {
        let serving = self.serving.as_ref();
        serving.ok_or_else(|| ApiError::Unavailable(NOTHING_SERVED.to_owned()))
    }

    fn importer(&self) -> Result<&Importer, ApiError> {
        let importer = self.importer.as_ref();
        importer.ok_or_else(|| ApiError::Unavailable(NOTHING_SERVED.to_owned()))
    }

    /// The metrics of the mirror, and those of what is served.
    fn metrics(&self) -> Result<String, ApiError> {
        let mut text = self.inspector.metrics()?;
        if let Some(serving) = &self.serving {
            serving.firehose.write_metrics(&mut text);
        }
        Ok(text)
    }
}

/// The state that every handler shares.
pub struct App {
    /// Set once the store is open; until then calls are answered with 503.
    running: OnceLock<Running>,
    settings: WebSettings,
    calls: Arc<Semaphore>,
    /// Permits one verification of everything at a time.
    verifying: Arc<Semaphore>,
    /// Permits one import at a time.
    importing: Arc<Semaphore>,
    stopping: Stopping,
}

impl App {
    pub fn new(settings: WebSettings) -> Arc<App> {
        Arc::new(App {
            running: OnceLock::new(),
            settings,
            calls: Arc::new(Semaphore::new(CALLS_AT_ONCE)),
            verifying: Arc::new(Semaphore::new(1)),
            importing: Arc::new(Semaphore::new(1)),
            stopping: Stopping(watch::Sender::new(false)),
        })
    }

    /// Lets the handlers call the mirror from now on. Only the first call counts.
    pub fn set_running(&self, running: Running) {
        // A program has one mirror, which is opened once.
        let _ = self.running.set(running);
    }

    /// What the handlers call, or 503 while the store is being opened.
    fn running(&self) -> Result<&Running, ApiError> {
        let running = self.running.get();
        running.ok_or_else(|| ApiError::Unavailable(STARTING.to_owned()))
    }
}

/// Whether the server is stopping. Cheap to clone.
#[derive(Clone)]
struct Stopping(watch::Sender<bool>);

impl Stopping {
    fn is_ending(&self) -> bool {
        *self.0.borrow()
    }

    /// Resolves when the server stops.
    async fn ended(&self) {
        // `self` holds the sender.
        let _ = self.0.subscribe().wait_for(|ends| *ends).await;
    }
}

/// Serves until `shutdown` ends, then answers the pending requests and returns.
pub async fn serve(
    listener: TcpListener,
    app: Arc<App>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let stopping = app.stopping.clone();
    let router = routes::router(app);
    let signal = stopping.clone();
    // This is a separate task, so that handlers learn of the end even if the server is
    // aborted.
    tokio::spawn(async move {
        shutdown.await;
        signal.0.send_replace(true);
    });
    listener::serve(listener, router, stopping).await;
    Ok(())
}

/// Calls the mirror on a thread that may block.
async fn call<T: Send + 'static>(
    app: &Arc<App>,
    work: impl FnOnce(&Running) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let closed = |_| ApiError::Unavailable("the mirror is stopping".to_owned());
    let permit = Arc::clone(&app.calls).acquire_owned().await;
    let permit = permit.map_err(closed)?;
    let app = Arc::clone(app);
    let done = tokio::task::spawn_blocking(move || {
        // Held until the call ends, even when the client has disconnected.
        let _permit = permit;
        work(app.running()?)
    });
    match done.await {
        Ok(result) => result,
        Err(error) => Err(ApiError::Internal(format!(
            "the answer was not finished ({error}); the log may tell more"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::State;
    use axum::http::StatusCode;

    use super::*;
    use gapless_mirror::api::Readiness;

    #[tokio::test]
    async fn before_the_store_is_open_nothing_is_ready_and_nothing_is_answered() {
        let app = App::new(WebSettings {
            token: None,
            loopback: true,
            open: true,
        });
        let status = call(&app, |running| running.inspector.status()).await;
        assert!(matches!(status, Err(ApiError::Unavailable(_))));
        let ready = routes::ready(State(app)).await;
        assert_eq!(ready.status(), StatusCode::SERVICE_UNAVAILABLE);
        let body = axum::body::to_bytes(ready.into_body(), 1 << 16).await;
        let ready: Readiness =
            serde_json::from_slice(&body.expect("a body")).expect("a readiness answer");
        assert!(!ready.ready);
        assert!(ready.reasons[0].contains("starting"), "{ready:?}");
    }
}
