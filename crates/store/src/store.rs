//! The store as the program uses it: open, view, submit, close.
//!
//! Readers take views and never wait for the writer. Writers submit changes and get a
//! callback once a change is durable; a writer blocks only while the queue is full.
//! Every change gets exactly one result, so no error is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use gapless_core::ledger::UpstreamId;

use crate::change::{Ack, Change};
use crate::committer::Committer;
use crate::cursor::SharedCursors;
use crate::engine::{Engine, MemoryEngine};
use crate::error::StoreError;
use crate::queue::{AckCallback, GroupLimits, Queue, Submission};
use crate::read_view::ReadView;
use crate::row_cache;
use crate::sync_writer::{DurableHead, NoSidecar, Sidecar, SyncWriter};

/// An open store. Share it in an `Arc`.
pub struct Store {
    cursors: SharedCursors,
    refusals: Arc<AtomicU64>,
    committer: Committer,
    #[cfg(feature = "engine")]
    frames: Option<crate::frames::FramesReader>,
    #[cfg(feature = "engine")]
    scourer: crate::sync::Mutex<Option<crate::engine::Scourer>>,
    /// Held by the store and by the writer, so that no other process opens the folder before
    /// both have ended.
    #[cfg(feature = "engine")]
    _lock: Option<std::sync::Arc<crate::lock::Lock>>,
}

impl Store {
    /// Opens a store in memory, with the committer's threads. [`SyncWriter`] has none.
    pub fn memory() -> Result<Store, StoreError> {
        Store::in_memory(MemoryEngine::new(), GroupLimits::default())
    }

    /// Opens a store in memory on an engine that the caller keeps a handle of.
    pub fn in_memory(engine: MemoryEngine, limits: GroupLimits) -> Result<Store, StoreError> {
        Store::start(Box::new(engine), Box::new(NoSidecar), limits)
    }

    /// Starts a store on any engine, with the sidecar that belongs to it.
    pub fn start(
        engine: Box<dyn Engine>,
        sidecar: Box<dyn Sidecar>,
        limits: GroupLimits,
    ) -> Result<Store, StoreError> {
        let writer = SyncWriter::with_row_cache(engine, sidecar, row_cache::STORE_CELLS)?;
        let (cursors, refusals) = (writer.cursors(), writer.refusals());
        let committer = Committer::start(writer, Queue::new(limits))?;
        Ok(Store {
            cursors,
            refusals,
            committer,
            #[cfg(feature = "engine")]
            frames: None,
            #[cfg(feature = "engine")]
            scourer: crate::sync::Mutex::default(),
            #[cfg(feature = "engine")]
            _lock: None,
        })
    }

    #[cfg(feature = "engine")]
    pub(crate) fn with_files(
        mut self,
        frames: crate::frames::FramesReader,
        scourer: crate::engine::Scourer,
        lock: std::sync::Arc<crate::lock::Lock>,
    ) -> Store {
        self.frames = Some(frames);
        self.scourer = crate::sync::Mutex::new(Some(scourer));
        self._lock = Some(lock);
        self
    }

    /// Verified frames as they were received, by log number; `None` for a store in memory. Read
    /// only below the durable head: frames above it may disappear again.
    #[cfg(feature = "engine")]
    pub fn frames(&self) -> Option<&crate::frames::FramesReader> {
        self.frames.as_ref()
    }

    /// The handle that removes deleted bytes from the disk; `None` for a store in memory, and after
    /// [`Store::close`].
    #[cfg(feature = "engine")]
    pub fn scourer(&self) -> Option<crate::engine::Scourer> {
        self.scourer.lock().clone()
    }

    /// The newest durable state.
    pub fn view(&self) -> ReadView {
        self.committer.published.view()
    }

    /// How far the store is durable. A view taken later shows at least this.
    pub fn durable_head(&self) -> DurableHead {
        self.committer.published.head()
    }

    /// Sets the one listener, which is called with every new durable head, on one of the store's own
    /// threads, so it must be short. Returns false if there is a listener already.
    pub fn on_durable(&self, tell: impl Fn(DurableHead) + Send + Sync + 'static) -> bool {
        self.committer.published.listen(Box::new(tell))
    }

    /// Records that an event was read and will be done by a change. Call it in the order of
    /// reading, before the change is submitted.
    pub fn begin(&self, upstream: UpstreamId, numbering: u32, seq: u64) {
        self.cursors.lock().begin(upstream, numbering, seq);
    }

    /// Forgets the begun events of an upstream, which will never be done; a new epoch covers
    /// what they would have changed.
    pub fn abandon(&self, upstream: UpstreamId) {
        self.cursors.lock().abandon(upstream);
    }

    /// How often a group was refused because the disk was too full, for [`Change::refusals_seen`].
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::SeqCst)
    }

    /// Submits a change, blocking while the queue is full. `tell` is called exactly once,
    /// when the change is durable or has failed: on one of the store's own threads, or on
    /// the caller's if the change contradicts itself or the store is closed. Changes are
    /// applied in the order in which they were submitted.
    pub fn submit(
        &self,
        change: Change,
        tell: impl FnOnce(Result<Ack, StoreError>) + Send + 'static,
    ) {
        if let Some(work) = Submission::new(change, AckCallback::new(tell)) {
            self.committer.queue.push(work);
        }
    }

    /// Submits a prepared change without blocking. Returns the change if the queue is full.
    pub fn try_submit(&self, work: Box<Submission>) -> Result<(), Box<Submission>> {
        self.committer.queue.try_push(work)
    }

    /// Submits a change and waits until it is durable.
    pub fn write(&self, change: Change) -> Result<Ack, StoreError> {
        let (tell, told) = sync_channel(1);
        self.submit(change, move |answer| {
            // Sending fails only if the caller no longer waits.
            let _ = tell.send(answer);
        });
        told.recv().unwrap_or(Err(StoreError::CommitterGone))
    }

    /// The number of queued changes, and their bytes.
    pub fn queue_depth(&self) -> (usize, usize) {
        self.committer.queue.depth()
    }

    /// Writes the queued changes and ends the store's threads. Views stay valid. Every
    /// call returns how the threads ended, except that a call from within a callback
    /// returns at once, without waiting.
    pub fn close(&self) -> Result<(), StoreError> {
        #[cfg(feature = "engine")]
        drop(self.scourer.lock().take());
        self.committer.close()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // A caller that needs the result calls `close`.
        let _ = self.close();
    }
}
