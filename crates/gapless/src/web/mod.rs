//! The HTTP interface: questions about a running mirror, and an operator's orders.
//!
//! Every request is judged by [`guard`] before anything else is looked at. The
//! mirror is only called from threads that may block, a bounded number at a time.
//! Nothing in a request can make this panic; every error is JSON.

mod answer;
mod ask;
mod firehose;
mod guard;
mod import;
mod linger;
mod listener;
mod routes;
mod verify;
mod websocket;
mod xrpc;

use std::future::Future;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::api::{ApiError, Mirror};
use crate::config::Token;

/// Calls into the mirror at a time; more wait.
const CALLS_AT_ONCE: usize = 32;

/// Who may ask.
#[derive(Debug, Clone)]
pub struct WebSettings {
    pub token: Option<Token>,
    /// Whether only this machine can reach the address that is bound.
    pub loopback: bool,
    /// Whether anybody may read what is mirrored, under `/xrpc`.
    pub open: bool,
}

/// What every handler has.
struct Shared {
    mirror: Arc<dyn Mirror>,
    settings: WebSettings,
    calls: Arc<Semaphore>,
    /// One verification of everything at a time.
    verifying: Arc<Semaphore>,
    /// One import at a time.
    importing: Arc<Semaphore>,
    stopping: Stopping,
}

/// Whether the server ends. Cheap to clone.
#[derive(Clone)]
struct Stopping(watch::Sender<bool>);

impl Stopping {
    fn is_ending(&self) -> bool {
        *self.0.borrow()
    }

    /// Resolves when it ends.
    async fn ended(&self) {
        // The sender lives as long as we do.
        let _ = self.0.subscribe().wait_for(|ends| *ends).await;
    }
}

type App = Arc<Shared>;

/// Serves until `shutdown` ends, then answers what was asked and returns.
pub async fn serve(
    listener: TcpListener,
    mirror: Arc<dyn Mirror>,
    settings: WebSettings,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let app = Arc::new(Shared {
        mirror,
        settings,
        calls: Arc::new(Semaphore::new(CALLS_AT_ONCE)),
        verifying: Arc::new(Semaphore::new(1)),
        importing: Arc::new(Semaphore::new(1)),
        stopping: Stopping(watch::Sender::new(false)),
    });
    let router = routes::router(Arc::clone(&app));
    let router = router.into_make_service_with_connect_info::<listener::Peer>();
    axum::serve(listener::Bounded::new(listener), router)
        .with_graceful_shutdown(async move {
            shutdown.await;
            app.stopping.0.send_replace(true);
        })
        .await
}

/// Calls the mirror on a thread that may block.
async fn call<T: Send + 'static>(
    app: &App,
    work: impl FnOnce(&dyn Mirror) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let closed = |_| ApiError::Unavailable("the mirror is stopping".to_owned());
    let permit = Arc::clone(&app.calls).acquire_owned().await;
    let permit = permit.map_err(closed)?;
    let mirror = Arc::clone(&app.mirror);
    let done = tokio::task::spawn_blocking(move || {
        // Held until the call ends, even when nobody waits for it any more.
        let _permit = permit;
        work(mirror.as_ref())
    });
    match done.await {
        Ok(result) => result,
        Err(error) => Err(ApiError::Internal(format!(
            "the answer was not finished ({error}); the log may tell more"
        ))),
    }
}
