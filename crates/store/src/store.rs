//! The store as the program uses it: open, view, submit, close.
//!
//! Readers take views and never wait for the writer. Writers hand changes over
//! and are told when they are durable; they wait only while the queue is full.
//! Every error is told to everybody whom it concerns, and none is passed over.

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

/// A store that is open. Share it in an `Arc`.
pub struct Store {
    cursors: SharedCursors,
    refusals: Arc<AtomicU64>,
    committer: Committer,
    #[cfg(feature = "engine")]
    frames: Option<crate::frames::FramesReader>,
    #[cfg(feature = "engine")]
    scourer: crate::sync::Mutex<Option<crate::engine::Scourer>>,
    /// Until the end of this and of the writer, nobody else opens the folder.
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

    /// Verified frames as they came, by log number; none in memory. What is not
    /// below the durable head may be there and may yet go: do not read it.
    #[cfg(feature = "engine")]
    pub fn frames(&self) -> Option<&crate::frames::FramesReader> {
        self.frames.as_ref()
    }

    /// Who gets deleted bytes off the disk; none in memory, and none after the end.
    #[cfg(feature = "engine")]
    pub fn scourer(&self) -> Option<crate::engine::Scourer> {
        self.scourer.lock().clone()
    }

    /// The newest durable state.
    pub fn view(&self) -> ReadView {
        self.committer.published.view()
    }

    /// How far it is durable. A view taken later has at least this.
    pub fn durable_head(&self) -> DurableHead {
        self.committer.published.head()
    }

    /// Tells of every new head from now on, on one of the store's own threads, so it
    /// must be short. There is one who is told; false if there was one already.
    pub fn on_durable(&self, tell: impl Fn(DurableHead) + Send + Sync + 'static) -> bool {
        self.committer.published.listen(Box::new(tell))
    }

    /// An event was read and will be done by a change. Call it in the order of
    /// reading, before the change is submitted.
    pub fn begin(&self, upstream: UpstreamId, numbering: u32, seq: u64) {
        self.cursors.lock().begin(upstream, numbering, seq);
    }

    /// What was begun and is not done will never be; a new epoch makes good for
    /// it.
    pub fn abandon(&self, upstream: UpstreamId) {
        self.cursors.lock().abandon(upstream);
    }

    /// How often room was lacking so far, for [`Change::stands_on`].
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::SeqCst)
    }

    /// Hands a change over, waiting for room in the queue. `tell` is called once,
    /// on one of the store's own threads, when the change is durable or never will
    /// be; on the caller's if it contradicts itself or comes after the end.
    /// Changes are applied in the order in which they were handed over.
    pub fn submit(
        &self,
        change: Change,
        tell: impl FnOnce(Result<Ack, StoreError>) + Send + 'static,
    ) {
        if let Some(work) = Submission::new(change, AckCallback::new(tell)) {
            self.committer.queue.push(work);
        }
    }

    /// Likewise, but hands it back at once when there is no room.
    pub fn try_submit(&self, work: Box<Submission>) -> Result<(), Box<Submission>> {
        self.committer.queue.try_push(work)
    }

    /// Hands a change over and waits until it is durable.
    pub fn write(&self, change: Change) -> Result<Ack, StoreError> {
        let (tell, told) = sync_channel(1);
        self.submit(change, move |answer| {
            // Nobody waits any more: then nobody is told.
            let _ = tell.send(answer);
        });
        told.recv().unwrap_or(Err(StoreError::CommitterGone))
    }

    /// Changes that wait to be written, and their bytes.
    pub fn queue_depth(&self) -> (usize, usize) {
        self.committer.queue.depth()
    }

    /// Writes what waits and ends in good order. Views stay good. Whoever calls it
    /// again is told the same; whoever calls it from within an answer does not
    /// wait for the end.
    pub fn close(&self) -> Result<(), StoreError> {
        #[cfg(feature = "engine")]
        drop(self.scourer.lock().take());
        self.committer.close()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // Who wants to know how it ended calls `close`.
        let _ = self.close();
    }
}
