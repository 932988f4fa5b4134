//! Reads and writes of the store from asynchronous tasks.
//!
//! The store blocks. [`blocking`] runs a read on a thread that may wait for the disk;
//! [`write`] submits a change and waits until it is durable. A panic in a read is a
//! fault of Gapless that concerns this read alone: it becomes
//! [`StoreError::Fault`], which is not final, so the caller fails its own piece of
//! work and retries it later, and the mirror keeps running.

use std::sync::Arc;
use std::time::Duration;

use gapless_store::Store;
use gapless_store::change::{Ack, Change};
use gapless_store::error::StoreError;
use gapless_store::queue::{AckCallback, Submission};
use tokio::sync::oneshot;
use tokio::task::JoinError;

use crate::metrics::Metrics;

/// How long [`write`] waits before it submits a change again to a full queue.
const QUEUE_PAUSE: Duration = Duration::from_millis(2);

/// Runs a read of the store on a blocking thread. `work` names the read in the log.
///
/// If the read panics, the panic is logged and counted in `gapless_faults_total`, and
/// the result is [`StoreError::Fault`].
pub(crate) async fn blocking<T: Send + 'static>(
    metrics: &Metrics,
    work: &'static str,
    read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(read).await {
        Ok(result) => result,
        Err(error) => Err(reader_failed(metrics, work, error)),
    }
}

fn reader_failed(metrics: &Metrics, work: &'static str, error: JoinError) -> StoreError {
    if error.is_cancelled() {
        // The runtime is shutting down.
        return StoreError::Closed;
    }
    metrics.faults.inc();
    tracing::error!(
        work, %error,
        "a read of the store ended unexpectedly; the work that needed it is retried later"
    );
    StoreError::Fault(format!("{work} ended unexpectedly, a fault of Gapless").into())
}

/// The error for an acknowledgement without the number of what was written, which a fault of
/// Gapless alone can cause.
pub(crate) fn unnumbered(what: &str) -> StoreError {
    StoreError::Fault(format!("the store gave {what} no number, a fault of Gapless").into())
}

/// Submits a change and waits until it is durable.
pub async fn write(store: &Arc<Store>, change: Change) -> Result<Ack, StoreError> {
    let (sender, receiver) = oneshot::channel();
    let reply = AckCallback::new(move |result| {
        // The receiver is gone if the task that waited was cancelled.
        let _ = sender.send(result);
    });
    let mut waiting = Submission::new(change, reply).map(Box::new);
    while let Some(work) = waiting.take() {
        if let Err(back) = store.try_submit(work) {
            waiting = Some(back);
            tokio::time::sleep(QUEUE_PAUSE).await;
        }
    }
    receiver.await.unwrap_or(Err(StoreError::CommitterGone))
}
