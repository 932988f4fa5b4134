//! The writer's side of the store, without a thread: takes a group of changes
//! and makes it durable, in the one right order.
//!
//! Frames first, then the batch that names them, then the acknowledged head
//! beside the engine; only then are views and numbers published and the changes
//! answered. A change that is refused fails alone. Anything that fails on the way
//! to the disk fails the whole group, and latches: nothing is answered as durable
//! that may not be, and nothing is tried twice. The committer's thread runs this
//! and so does the simulator, on the double.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gapless_core::ledger::UpstreamId;

use crate::apply::{Applied, apply};
use crate::change::{Ack, Change};
use crate::codec::RowFault;
use crate::contents::Contents;
use crate::cursor::{Cursors, LowWater, Position};
use crate::engine::{Engine, KeyRange};
use crate::error::{Contradiction, StoreError};
use crate::prepare::{Prepared, prepare};
use crate::table::upstream::{self, CursorRow};
use crate::table::{Table, key};
use crate::tx::{RepoCache, Tx};

/// What a group came to: an answer for each change, in order, or one failure for
/// all of them.
pub type Answers = Result<Vec<Result<Ack, StoreError>>, StoreError>;

/// What is done beside the engine's own batch.
pub trait Beside: Send {
    /// Before anything else: may more be written?
    fn check_room(&mut self) -> Result<(), StoreError>;

    /// Makes frames durable, each under its log number, in order.
    fn keep_frames(&mut self, frames: &[(u64, Vec<u8>)]) -> Result<(), StoreError>;

    /// Writes down outside the engine that a batch is about to be acknowledged.
    fn acknowledge(&mut self, head: DurableHead, bytes: usize) -> Result<(), StoreError>;

    /// The last of it, before the end.
    fn close(&mut self) -> Result<(), StoreError>;
}

/// Nothing is beside the engine.
pub struct Nothing;

impl Beside for Nothing {
    fn check_room(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn keep_frames(&mut self, _: &[(u64, Vec<u8>)]) -> Result<(), StoreError> {
        Ok(())
    }

    fn acknowledge(&mut self, _: DurableHead, _: usize) -> Result<(), StoreError> {
        Ok(())
    }

    fn close(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// How far the store is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurableHead {
    pub batch: u64,
    /// Every log number below this one is durable and can be read.
    pub next_seq: u64,
}

/// The marks of all upstreams, shared with those who read events.
#[derive(Clone, Default)]
pub struct SharedCursors(Arc<Mutex<Cursors>>);

impl SharedCursors {
    pub fn lock(&self) -> MutexGuard<'_, Cursors> {
        // Each call leaves the marks whole, a panic elsewhere notwithstanding.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The one owner of an engine.
pub struct Book {
    engine: Box<dyn Engine>,
    beside: Box<dyn Beside>,
    cursors: SharedCursors,
    head: DurableHead,
    repos: RepoCache,
    /// Why nothing is written any more.
    latched: Option<StoreError>,
}

impl Book {
    /// Takes over an engine, as it is.
    pub fn open(engine: Box<dyn Engine>, beside: Box<dyn Beside>) -> Result<Book, StoreError> {
        let view = engine.snapshot();
        let counters = crate::tx::counters(&*view)?;
        let cursors = SharedCursors::default();
        for row in view.range(Table::Upstream, KeyRange::all()) {
            let (place, row) = row?;
            let failed = |fault: RowFault| StoreError::row(Table::Upstream, &place, fault);
            let (id, is_row) = key::read_upstream(&place).map_err(failed)?;
            if !is_row {
                continue;
            }
            let numbering = upstream::decode(&row).map_err(failed)?.numbering;
            let cursor = match view.get(Table::Upstream, &key::cursor(id))? {
                None => None,
                Some(row) => Some(upstream::decode_cursor(&row).map_err(failed)?),
            };
            let cursor = cursor
                .filter(|row| row.numbering == numbering)
                .map(|row| row.cursor);
            cursors
                .lock()
                .insert(id, LowWater::resume(numbering, cursor));
        }
        Ok(Book {
            engine,
            beside,
            cursors,
            head: DurableHead {
                batch: counters.batch,
                next_seq: counters.next_seq,
            },
            repos: RepoCache::default(),
            latched: None,
        })
    }

    /// Everything written so far.
    pub fn view(&self) -> Contents {
        Contents::new(self.engine.snapshot())
    }

    pub fn head(&self) -> DurableHead {
        self.head
    }

    pub fn cursors(&self) -> SharedCursors {
        self.cursors.clone()
    }

    /// Why nothing is written any more, if so.
    pub fn latched(&self) -> Option<&StoreError> {
        self.latched.as_ref()
    }

    /// An event was read and will be done by a change. Call it in the order of
    /// reading.
    pub fn begin(&self, upstream: UpstreamId, numbering: u32, seq: u64) {
        self.cursors.lock().begin(upstream, numbering, seq);
    }

    /// Writes one change. See [`Book::write_group`].
    pub fn write(&mut self, change: Change) -> Result<Ack, StoreError> {
        let mut answers = self.write_group(vec![change])?;
        match answers.pop() {
            Some(answer) => answer,
            None => Err(StoreError::CommitterGone),
        }
    }

    /// Makes a group durable, each change in turn and all in one batch.
    pub fn write_group(&mut self, changes: Vec<Change>) -> Answers {
        self.write_prepared(changes.into_iter().map(prepare))
    }

    /// Likewise, with what was prepared elsewhere.
    pub(crate) fn write_prepared(
        &mut self,
        changes: impl Iterator<Item = Result<Prepared, Contradiction>>,
    ) -> Answers {
        if let Some(failure) = &self.latched {
            return Err(failure.clone());
        }
        self.beside.check_room()?;
        let answers = self.apply(changes).and_then(|group| self.commit(group));
        if let Err(failure) = &answers
            && failure.is_final()
        {
            self.latched = Some(failure.clone());
        }
        answers
    }

    fn apply(
        &mut self,
        changes: impl Iterator<Item = Result<Prepared, Contradiction>>,
    ) -> Result<Group, StoreError> {
        let repos = std::mem::take(&mut self.repos);
        let tx = Tx::new(self.engine.snapshot())?.with_cache(repos);
        Group::apply(tx, changes)
    }

    fn commit(&mut self, group: Group) -> Answers {
        let Group {
            mut tx,
            mut answers,
            steps,
            frames,
        } = group;
        write_cursors(&mut tx, &mut self.cursors.lock(), &steps);
        let repos = tx.take_cache();
        if tx.is_empty() {
            self.repos = repos;
            for ack in answers.iter_mut().flatten() {
                ack.batch = self.head.batch;
            }
            return Ok(answers);
        }
        if !frames.is_empty() {
            self.beside.keep_frames(&frames)?;
        }
        let bytes = tx.bytes();
        let next_seq = tx.counters.next_seq;
        let batch = tx.counters.batch + 1;
        self.engine.commit(tx.finish())?;
        self.repos = repos;
        let head = DurableHead { batch, next_seq };
        self.beside.acknowledge(head, bytes)?;
        self.head = head;
        for ack in answers.iter_mut().flatten() {
            ack.batch = batch;
        }
        Ok(answers)
    }

    /// Ends in good order.
    pub fn close(mut self) -> Result<(), StoreError> {
        match self.latched.take() {
            Some(failure) => Err(failure),
            None => self.beside.close(),
        }
    }
}

/// What a change means for the cursors, in the order of the changes.
enum Step {
    Numbering(UpstreamId, u32),
    Done(Position),
}

struct Group {
    tx: Tx,
    answers: Vec<Result<Ack, StoreError>>,
    steps: Vec<Step>,
    frames: Vec<(u64, Vec<u8>)>,
}

impl Group {
    fn apply(
        tx: Tx,
        changes: impl Iterator<Item = Result<Prepared, Contradiction>>,
    ) -> Result<Group, StoreError> {
        let mut group = Group {
            tx,
            answers: Vec::new(),
            steps: Vec::new(),
            frames: Vec::new(),
        };
        for change in changes {
            let applied = match change {
                Ok(prepared) => apply(&mut group.tx, prepared),
                Err(contradiction) => Err(contradiction.into()),
            };
            match applied {
                Ok(applied) => group.take(applied),
                Err(StoreError::Engine(failure)) => return Err(failure.into()),
                Err(refused) => group.answers.push(Err(refused)),
            }
        }
        Ok(group)
    }

    fn take(&mut self, applied: Applied) {
        if let Some((upstream, numbering)) = applied.numbering {
            self.steps.push(Step::Numbering(upstream, numbering));
        }
        self.steps.extend(applied.done.map(Step::Done));
        self.frames.extend(applied.frame);
        self.answers.push(Ok(applied.ack));
    }
}

/// Moves the marks by what is in this group, and writes those that moved. They
/// move before the batch is durable; if it never is, nobody reads them again.
fn write_cursors(tx: &mut Tx, cursors: &mut Cursors, steps: &[Step]) {
    let mut moved = std::collections::BTreeMap::new();
    for step in steps {
        match step {
            Step::Numbering(upstream, numbering) => {
                cursors.renumber(*upstream, *numbering);
                moved.retain(|id, row: &mut CursorRow| {
                    id != upstream || row.numbering == *numbering
                });
            }
            Step::Done(position) => {
                if let Some(cursor) = cursors.done(position) {
                    let row = CursorRow {
                        numbering: position.numbering,
                        cursor,
                    };
                    moved.insert(position.upstream, row);
                }
            }
        }
    }
    for (upstream, row) in moved {
        let row = upstream::encode_cursor(&row);
        tx.put(Table::Upstream, key::cursor(upstream), row);
    }
    tx.keep();
}
