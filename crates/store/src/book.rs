//! The writer's side of the store, without a thread: takes a group of changes,
//! applies it and makes it durable, one after the other. The simulator runs this,
//! on the double; the committer does the same with a thread for each half.
//!
//! The desk hears of a durable group as late as it may, after the next one was
//! applied: so every change here is applied as it would be under load, on a group
//! that the view does not show yet.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gapless_core::ledger::UpstreamId;

use crate::change::{Ack, Change};
use crate::contents::Contents;
use crate::cursor::SharedCursors;
use crate::engine::{Engine, View};
use crate::error::StoreError;
use crate::group::{Answers, Desk};
use crate::prepare::prepare;
use crate::rows::{self, RecentRows};
use crate::writer::Writer;
pub use crate::writer::{Beside, DurableHead, Nothing, Room};

/// The one owner of an engine.
pub struct Book {
    desk: Desk,
    writer: Writer,
    head: DurableHead,
    /// With the last group, of which the desk has not heard.
    late: Option<Arc<dyn View>>,
    /// Why nothing is written any more.
    latched: Option<StoreError>,
}

impl Book {
    /// Takes over an engine, as it is.
    pub fn open(engine: Box<dyn Engine>, beside: Box<dyn Beside>) -> Result<Book, StoreError> {
        Book::with_recent(engine, beside, rows::FEW)
    }

    /// Likewise, with so many rows at hand.
    pub(crate) fn with_recent(
        engine: Box<dyn Engine>,
        beside: Box<dyn Beside>,
        rows: usize,
    ) -> Result<Book, StoreError> {
        let mut writer = Writer::new(engine, beside);
        let recent = Arc::new(RecentRows::new(rows));
        let desk = Desk::open(writer.snapshot(), writer.room(), recent)?;
        Ok(Book {
            head: desk.head(),
            desk,
            writer,
            late: None,
            latched: None,
        })
    }

    /// Both halves.
    pub(crate) fn split(self) -> (Desk, Writer) {
        (self.desk, self.writer)
    }

    /// Everything written so far.
    pub fn view(&self) -> Contents {
        Contents::new(self.snapshot())
    }

    pub(crate) fn snapshot(&self) -> Arc<dyn View> {
        self.writer.snapshot()
    }

    pub(crate) fn recent(&self) -> Arc<RecentRows> {
        self.desk.recent()
    }

    pub fn head(&self) -> DurableHead {
        self.head
    }

    pub fn cursors(&self) -> SharedCursors {
        self.desk.cursors()
    }

    /// How often room was lacking so far.
    pub fn refusals(&self) -> Arc<AtomicU64> {
        self.desk.refusals()
    }

    /// Why nothing is written any more, if so.
    pub fn latched(&self) -> Option<&StoreError> {
        self.latched.as_ref()
    }

    /// An event was read and will be done by a change. Call it in the order of
    /// reading.
    pub fn begin(&self, upstream: UpstreamId, numbering: u32, seq: u64) {
        self.desk.cursors().lock().begin(upstream, numbering, seq);
    }

    /// Writes one change. See [`Book::write_group`].
    pub fn write(&mut self, change: Change) -> Result<Ack, StoreError> {
        let mut answers = self.write_group(vec![change])?;
        match answers.pop() {
            Some(answer) => answer,
            None => Err(StoreError::CommitterGone),
        }
    }

    /// Makes a group durable, each change in turn and all in one batch: an answer
    /// for each change, or one failure for all of them.
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
            .desk
            .apply(&mut changes.into_iter().map(prepare), usize::MAX)?;
        if let Some(view) = self.late.take() {
            self.desk.settle(view);
        }
        self.desk.hand_on(&group);
        self.late = Some(self.writer.write(&group)?);
        self.head = group.head;
        Ok(group.answers)
    }

    /// Ends in good order.
    pub fn close(mut self) -> Result<(), StoreError> {
        match self.latched.take() {
            Some(failure) => Err(failure),
            None => self.writer.close(),
        }
    }
}
