//! The writing half of the store on the caller's thread: applies a group of changes, then makes it
//! durable. The simulator runs this on the engine in memory; the committer uses a thread for each
//! of the two steps instead.
//!
//! The builder learns of a durable group as late as possible, after the next one was
//! applied. So every change is applied as it would be under load, on top of a group
//! that the view does not show yet.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gapless_core::ledger::UpstreamId;

use crate::change::{Ack, Change};
use crate::cursor::SharedCursors;
use crate::engine::{Engine, View};
use crate::error::StoreError;
use crate::group::{Answers, GroupBuilder};
use crate::prepare::prepare;
use crate::read_view::ReadView;
use crate::row_cache::{self, RowCache};
use crate::writer::DiskWriter;
pub use crate::writer::{DurableHead, NoSidecar, Sidecar, SpaceCheck};

/// Writes changes one group at a time. The only owner of an engine.
pub struct SyncWriter {
    builder: GroupBuilder,
    writer: DiskWriter,
    head: DurableHead,
    /// The state with the last group in it, which the builder does not know yet.
    late: Option<Arc<dyn View>>,
    /// The first final failure, after which nothing is written.
    latched: Option<StoreError>,
}

impl SyncWriter {
    /// Takes ownership of an engine with its present contents.
    pub fn open(
        engine: Box<dyn Engine>,
        sidecar: Box<dyn Sidecar>,
    ) -> Result<SyncWriter, StoreError> {
        SyncWriter::with_row_cache(engine, sidecar, row_cache::SMALL_CELLS)
    }

    /// Takes ownership of an engine, with a row cache of `rows` cells.
    pub(crate) fn with_row_cache(
        engine: Box<dyn Engine>,
        sidecar: Box<dyn Sidecar>,
        rows: usize,
    ) -> Result<SyncWriter, StoreError> {
        let mut writer = DiskWriter::new(engine, sidecar);
        let row_cache = Arc::new(RowCache::new(rows));
        let builder = GroupBuilder::open(writer.snapshot(), writer.space_check(), row_cache)?;
        Ok(SyncWriter {
            head: builder.head(),
            builder,
            writer,
            late: None,
            latched: None,
        })
    }

    /// Splits the writer into its two halves, for a thread each.
    pub(crate) fn split(self) -> (GroupBuilder, DiskWriter) {
        (self.builder, self.writer)
    }

    /// A view of everything written so far.
    pub fn view(&self) -> ReadView {
        ReadView::new(self.snapshot())
    }

    pub(crate) fn snapshot(&self) -> Arc<dyn View> {
        self.writer.snapshot()
    }

    pub(crate) fn row_cache(&self) -> Arc<RowCache> {
        self.builder.row_cache()
    }

    pub fn head(&self) -> DurableHead {
        self.head
    }

    pub fn cursors(&self) -> SharedCursors {
        self.builder.cursors()
    }

    /// How often a group was refused because the disk was too full.
    pub fn refusals(&self) -> Arc<AtomicU64> {
        self.builder.refusals()
    }

    /// The first final failure, after which nothing is written, if there was one.
    pub fn latched(&self) -> Option<&StoreError> {
        self.latched.as_ref()
    }

    /// Records that an event was read and will be done by a change. Call it in the order of
    /// reading.
    pub fn begin(&self, upstream: UpstreamId, numbering: u32, seq: u64) {
        self.builder
            .cursors()
            .lock()
            .begin(upstream, numbering, seq);
    }

    /// Writes one change. See [`SyncWriter::write_group`].
    pub fn write(&mut self, change: Change) -> Result<Ack, StoreError> {
        let mut answers = self.write_group(vec![change])?;
        match answers.pop() {
            Some(answer) => answer,
            None => Err(StoreError::CommitterGone),
        }
    }

    /// Applies changes in order and makes them durable in one batch. Returns one result for
    /// each change, or one failure for all of them.
    pub fn write_group(&mut self, changes: Vec<Change>) -> Result<Answers, StoreError> {
        if let Some(failure) = &self.latched {
            return Err(failure.clone());
        }
        let answers = self.try_write(changes);
        if let Err(failure) = &answers
            && failure.is_final()
        {
            self.latched = Some(failure.clone());
        }
        answers
    }

    fn try_write(&mut self, changes: Vec<Change>) -> Result<Answers, StoreError> {
        let group = self
            .builder
            .apply(&mut changes.into_iter().map(prepare), usize::MAX)?;
        if let Some(view) = self.late.take() {
            self.builder.durable(view);
        }
        self.builder.set_pending(&group);
        self.late = Some(self.writer.write(&group)?);
        self.head = group.head;
        Ok(group.answers)
    }

    /// Makes everything written durable and ends; returns the latched failure, if there is one.
    pub fn close(mut self) -> Result<(), StoreError> {
        match self.latched.take() {
            Some(failure) => Err(failure),
            None => self.writer.close(),
        }
    }
}
