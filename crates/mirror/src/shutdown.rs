//! Shutdown of the program: it begins with a signal, or with an error after which the
//! store cannot be written. Every task waits for [`Shutdown::begun`] beside its work.

use gapless_store::error::StoreError;
use tokio::sync::watch;

use gapless_store::sync::Mutex;

/// The signal to every task that the program shuts down.
pub struct Shutdown {
    begun: watch::Sender<bool>,
    fault: Mutex<Option<StoreError>>,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown {
            begun: watch::Sender::new(false),
            fault: Mutex::new(None),
        }
    }
}

impl Shutdown {
    /// Tells every task to end.
    pub fn begin(&self) {
        self.begun.send_replace(true);
    }

    pub fn has_begun(&self) -> bool {
        *self.begun.borrow()
    }

    /// Resolves when the shutdown begins.
    pub async fn begun(&self) {
        let mut begun = self.begun.subscribe();
        // The wait cannot fail: `self` owns the sender.
        let _ = begun.wait_for(|begun| *begun).await;
    }

    /// Begins the shutdown because the store cannot be written. The first error is the
    /// one that is reported.
    pub fn fail(&self, error: StoreError) {
        let mut fault = self.fault.lock();
        if fault.is_none() && !matches!(error, StoreError::Closed) {
            tracing::error!(
                %error,
                "the store cannot be written; Gapless stops, and no acknowledged write is lost"
            );
            *fault = Some(error);
        }
        self.begin();
    }

    /// The error that caused the shutdown; `None` after a signal.
    pub fn fault(&self) -> Option<StoreError> {
        let fault = self.fault.lock();
        fault.clone()
    }
}
