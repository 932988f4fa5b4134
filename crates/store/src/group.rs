//! A group of changes becomes one batch, in memory: no disk is asked but to read.
//!
//! A group may be applied while the one before it is still on its way to the
//! disk; then it stands on that one as well as on what is durable. Nothing of it
//! is seen by anybody before both are durable, and if the first never is, neither
//! is the second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gapless_core::ledger::UpstreamId;

use crate::apply::{Applied, apply};
use crate::change::Ack;
use crate::codec::RowFault;
use crate::cursor::{Cursors, LowWater, Position, SharedCursors};
use crate::engine::{KeyRange, RawBatch, View};
use crate::error::{Contradiction, StoreError};
use crate::prepare::Prepared;
use crate::rows::RecentRows;
use crate::table::meta::Counters;
use crate::table::upstream::{self, CursorRow};
use crate::table::{Table, key};
use crate::tx::{self, Tx};
use crate::writer::{DurableHead, Room};

/// An answer for each change, in order.
pub type Answers = Vec<Result<Ack, StoreError>>;

/// One batch on its way, and what goes with it.
pub(crate) struct Group {
    pub batch: Arc<RawBatch>,
    pub frames: Vec<(u64, Vec<u8>)>,
    /// Frames whose bytes go, by their numbers.
    pub redact: Vec<u64>,
    /// How far the store is durable once this is.
    pub head: DurableHead,
    /// What may be told then.
    pub answers: Answers,
}

impl Group {
    /// Whether there is anything to write. Its answers still wait for the groups
    /// before it.
    pub fn is_empty(&self) -> bool {
        self.batch.writes.is_empty()
    }
}

/// Where groups are made, one at a time.
pub(crate) struct Desk {
    /// What is durable.
    view: Arc<dyn View>,
    /// What was handed on and is not in the view yet.
    pending: Option<Arc<RawBatch>>,
    /// With everything handed on.
    counters: Counters,
    recent: Arc<RecentRows>,
    cursors: SharedCursors,
    room: Box<dyn Room>,
    /// How often room was lacking, and how it was last.
    refusals: Arc<AtomicU64>,
    refused: Option<StoreError>,
}

impl Desk {
    pub fn open(
        view: Arc<dyn View>,
        room: Box<dyn Room>,
        recent: Arc<RecentRows>,
    ) -> Result<Desk, StoreError> {
        Ok(Desk {
            counters: tx::counters(&*view)?,
            cursors: read_cursors(&*view)?,
            view,
            pending: None,
            recent,
            room,
            refusals: Arc::default(),
            refused: None,
        })
    }

    pub fn cursors(&self) -> SharedCursors {
        self.cursors.clone()
    }

    /// What it shares with readers.
    pub fn recent(&self) -> Arc<RecentRows> {
        self.recent.clone()
    }

    /// How often room was lacking.
    pub fn refusals(&self) -> Arc<AtomicU64> {
        self.refusals.clone()
    }

    /// As it will be when everything handed on is durable.
    pub fn head(&self) -> DurableHead {
        DurableHead {
            batch: self.counters.batch,
            next_seq: self.counters.next_seq,
        }
    }

    /// Applies changes, each in turn, to what is durable and what was handed on,
    /// until there are no more or the batch has enough bytes: what a change weighs
    /// is known only then, because it keeps what it replaces. There are as many
    /// answers as changes were taken. A change that is refused fails alone. A
    /// group that fails for want of room leaves everything as it was; any other
    /// failure is for good.
    pub fn apply(
        &mut self,
        changes: &mut dyn Iterator<Item = Result<Prepared, Contradiction>>,
        enough_bytes: usize,
    ) -> Result<Group, StoreError> {
        if let Err(refused) = self.room.check() {
            // Counted before anybody is told.
            self.refusals.fetch_add(1, Ordering::SeqCst);
            self.refused = Some(refused.clone());
            return Err(refused);
        }
        let mut tx = Tx::standing(
            self.view.clone(),
            self.pending.clone(),
            self.counters,
            self.recent.clone(),
        );
        let mut made = Made::default();
        while tx.bytes() < enough_bytes
            && let Some(change) = changes.next()
        {
            let applied = match change {
                Ok(prepared) => match self.stands_on_nothing(&prepared) {
                    Some(refused) => Err(refused),
                    None => apply(&mut tx, prepared),
                },
                Err(contradiction) => Err(contradiction.into()),
            };
            match applied {
                Ok(applied) => made.take(applied),
                Err(StoreError::Engine(failure)) => return Err(failure.into()),
                Err(refused) => made.answers.push(Err(refused)),
            }
        }
        write_cursors(&mut tx, &mut self.cursors.lock(), &made.steps);
        Ok(self.close_group(tx, made))
    }

    /// What this change was decided on was perhaps refused for want of room; then
    /// it is refused for the same reason, whether or not there is room by now.
    fn stands_on_nothing(&self, prepared: &Prepared) -> Option<StoreError> {
        let counted = prepared.change.stands_on?;
        let lacked = counted < self.refusals.load(Ordering::SeqCst);
        self.refused.clone().filter(|_| lacked)
    }

    fn close_group(&mut self, tx: Tx, made: Made) -> Group {
        let mut batch = RawBatch::default();
        if !tx.is_empty() {
            let frames: usize = made.frames.iter().map(|(_, frame)| frame.len()).sum();
            self.room.taken((tx.bytes() + frames) as u64);
            (batch, self.counters) = tx.finish();
        }
        let mut answers = made.answers;
        for ack in answers.iter_mut().flatten() {
            ack.batch = self.counters.batch;
        }
        Group {
            batch: Arc::new(batch),
            frames: made.frames,
            redact: made.redact,
            head: self.head(),
            answers,
        }
    }

    /// This group goes to the disk; the next one stands on it. The one before it
    /// must be durable.
    pub fn hand_on(&mut self, group: &Group) {
        assert!(self.pending.is_none(), "one is on its way already");
        self.pending = Some(group.batch.clone());
    }

    /// What was handed on is durable, and in this view.
    pub fn settle(&mut self, view: Arc<dyn View>) {
        self.view = view;
        self.pending = None;
    }
}

fn read_cursors(view: &dyn View) -> Result<SharedCursors, StoreError> {
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
    Ok(cursors)
}

/// What a change means for the cursors, in the order of the changes.
enum Step {
    Numbering(UpstreamId, u32),
    Done(Position),
}

/// What came of the changes beside their rows.
#[derive(Default)]
struct Made {
    answers: Answers,
    steps: Vec<Step>,
    frames: Vec<(u64, Vec<u8>)>,
    redact: Vec<u64>,
}

impl Made {
    fn take(&mut self, applied: Applied) {
        if let Some((upstream, numbering)) = applied.numbering {
            self.steps.push(Step::Numbering(upstream, numbering));
        }
        self.steps.extend(applied.done.map(Step::Done));
        self.frames.extend(applied.frame);
        self.redact.extend(applied.redact);
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
