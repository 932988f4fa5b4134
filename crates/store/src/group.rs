//! A group of changes becomes one batch, in memory: no disk is asked but to read.
//!
//! A group may be applied while the one before it is still on its way to the
//! disk; then it stands on that one as well as on what is durable. Nothing of it
//! is seen by anybody before both are durable, and if the first never is, neither
//! is the second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gapless_core::ledger::UpstreamId;

use crate::apply::{ChangeEffects, apply};
use crate::change::Ack;
use crate::codec::RowFault;
use crate::cursor::{Cursors, EventPosition, LowWaterMark, SharedCursors};
use crate::engine::{KeyRange, RawBatch, View};
use crate::error::{Contradiction, StoreError};
use crate::prepare::PreparedChange;
use crate::row_cache::RowCache;
use crate::table::meta::Counters;
use crate::table::upstream::{self, CursorRow};
use crate::table::{Table, key};
use crate::tx::{self, Tx};
use crate::writer::{DurableHead, SpaceCheck};

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

/// Builds groups from changes, one at a time.
pub(crate) struct GroupBuilder {
    /// What is durable.
    view: Arc<dyn View>,
    /// The group that is on its way to the disk, and not in the view yet.
    pending: Option<Arc<RawBatch>>,
    /// With everything that is on its way.
    counters: Counters,
    row_cache: Arc<RowCache>,
    cursors: SharedCursors,
    space: Box<dyn SpaceCheck>,
    /// How often the disk was too full, and the last such refusal.
    refusals: Arc<AtomicU64>,
    refused: Option<StoreError>,
}

impl GroupBuilder {
    pub fn open(
        view: Arc<dyn View>,
        space: Box<dyn SpaceCheck>,
        row_cache: Arc<RowCache>,
    ) -> Result<GroupBuilder, StoreError> {
        Ok(GroupBuilder {
            counters: tx::counters(&*view)?,
            cursors: read_cursors(&*view)?,
            view,
            pending: None,
            row_cache,
            space,
            refusals: Arc::default(),
            refused: None,
        })
    }

    pub fn cursors(&self) -> SharedCursors {
        self.cursors.clone()
    }

    /// The cache that the builder shares with readers.
    pub fn row_cache(&self) -> Arc<RowCache> {
        self.row_cache.clone()
    }

    /// How often the disk was too full.
    pub fn refusals(&self) -> Arc<AtomicU64> {
        self.refusals.clone()
    }

    /// The head as it will be when everything on its way is durable.
    pub fn head(&self) -> DurableHead {
        DurableHead {
            batch: self.counters.batch,
            next_seq: self.counters.next_seq,
        }
    }

    /// Applies changes, each in turn, to what is durable and what is on its way,
    /// until there are no more or the batch has enough bytes: what a change weighs
    /// is known only then, because it keeps what it replaces. There are as many
    /// answers as changes were taken. A change that is refused fails alone. A
    /// group that fails for want of room leaves everything as it was; any other
    /// failure is for good.
    pub fn apply(
        &mut self,
        changes: &mut dyn Iterator<Item = Result<PreparedChange, Contradiction>>,
        enough_bytes: usize,
    ) -> Result<Group, StoreError> {
        if let Err(refused) = self.space.check() {
            // Counted before anybody is told.
            self.refusals.fetch_add(1, Ordering::SeqCst);
            self.refused = Some(refused.clone());
            return Err(refused);
        }
        let mut tx = Tx::on_batch(
            self.view.clone(),
            self.pending.clone(),
            self.counters,
            self.row_cache.clone(),
        );
        let mut parts = GroupParts::default();
        while tx.bytes() < enough_bytes
            && let Some(change) = changes.next()
        {
            let effects = match change {
                Ok(prepared) => match self.refused_dependency(&prepared) {
                    Some(refused) => Err(refused),
                    None => apply(&mut tx, prepared),
                },
                Err(contradiction) => Err(contradiction.into()),
            };
            match effects {
                Ok(effects) => parts.add(effects),
                Err(StoreError::Engine(failure)) => return Err(failure.into()),
                Err(refused) => parts.answers.push(Err(refused)),
            }
        }
        write_cursors(&mut tx, &mut self.cursors.lock(), &parts.steps);
        Ok(self.close_group(tx, parts))
    }

    /// The error for a change that was decided on another one which may have been refused
    /// because the disk was full: it is refused for the same reason, even if there is space now.
    fn refused_dependency(&self, prepared: &PreparedChange) -> Option<StoreError> {
        let counted = prepared.change.stands_on?;
        let lacked = counted < self.refusals.load(Ordering::SeqCst);
        self.refused.clone().filter(|_| lacked)
    }

    fn close_group(&mut self, tx: Tx, parts: GroupParts) -> Group {
        let mut batch = RawBatch::default();
        if !tx.is_empty() {
            let frames: usize = parts.frames.iter().map(|(_, frame)| frame.len()).sum();
            self.space.count_taken((tx.bytes() + frames) as u64);
            (batch, self.counters) = tx.finish();
        }
        let mut answers = parts.answers;
        for ack in answers.iter_mut().flatten() {
            ack.batch = self.counters.batch;
        }
        Group {
            batch: Arc::new(batch),
            frames: parts.frames,
            redact: parts.redact,
            head: self.head(),
            answers,
        }
    }

    /// This group goes to the disk, and the next one builds on it. The group before it
    /// must be durable.
    pub fn set_pending(&mut self, group: &Group) {
        assert!(self.pending.is_none(), "one is on its way already");
        self.pending = Some(group.batch.clone());
    }

    /// The pending group is durable, and in this view.
    pub fn durable(&mut self, view: Arc<dyn View>) {
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
            .insert(id, LowWaterMark::resume(numbering, cursor));
    }
    Ok(cursors)
}

/// What a change does to a cursor. Steps keep the order of the changes.
enum CursorStep {
    Numbering(UpstreamId, u32),
    Done(EventPosition),
}

/// What the changes of a group bring about beside their rows.
#[derive(Default)]
struct GroupParts {
    answers: Answers,
    steps: Vec<CursorStep>,
    frames: Vec<(u64, Vec<u8>)>,
    redact: Vec<u64>,
}

impl GroupParts {
    fn add(&mut self, effects: ChangeEffects) {
        if let Some((upstream, numbering)) = effects.numbering {
            self.steps.push(CursorStep::Numbering(upstream, numbering));
        }
        self.steps.extend(effects.done.map(CursorStep::Done));
        self.frames.extend(effects.frame);
        self.redact.extend(effects.redact);
        self.answers.push(Ok(effects.ack));
    }
}

/// Moves the marks by what is in this group, and writes those that moved. They
/// move before the batch is durable; if it never is, nobody reads them again.
fn write_cursors(tx: &mut Tx, cursors: &mut Cursors, steps: &[CursorStep]) {
    let mut moved = std::collections::BTreeMap::new();
    for step in steps {
        match step {
            CursorStep::Numbering(upstream, numbering) => {
                cursors.renumber(*upstream, *numbering);
                moved.retain(|id, row: &mut CursorRow| {
                    id != upstream || row.numbering == *numbering
                });
            }
            CursorStep::Done(position) => {
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
