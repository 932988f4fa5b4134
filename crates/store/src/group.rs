//! Turns a group of changes into one batch, in memory; the disk is only read.
//!
//! A group may be applied while the previous group is still on its way to the disk. The group then
//! builds on the previous group as well as on what is durable. Readers see neither group before it
//! is durable, and if the previous group never becomes durable, the next one does not either.

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

/// The results of the changes of a group, in order.
pub(crate) type Answers = Vec<Result<Ack, StoreError>>;

/// One batch on its way to the disk, with its frames and results.
pub(crate) struct Group {
    pub batch: Arc<RawBatch>,
    pub frames: Vec<(u64, Vec<u8>)>,
    /// The numbers of the frames to redact.
    pub redact: Vec<u64>,
    /// The durable head once this group is durable.
    pub head: DurableHead,
    /// The results to deliver once this group is durable.
    pub answers: Answers,
}

impl Group {
    /// Whether there is nothing to write. The results still wait for the previous
    /// groups.
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.writes.is_empty()
    }
}

/// Builds groups from changes, one at a time.
pub(crate) struct GroupBuilder {
    /// The durable state.
    view: Arc<dyn View>,
    /// The group that is on its way to the disk and not in the view yet.
    pending: Option<Arc<RawBatch>>,
    /// The counters, with everything that is on its way to the disk.
    counters: Counters,
    row_cache: Arc<RowCache>,
    cursors: SharedCursors,
    space: Box<dyn SpaceCheck>,
    /// How often a group was refused because the disk was too full, and the last such error.
    refusals: Arc<AtomicU64>,
    refused: Option<StoreError>,
}

impl GroupBuilder {
    pub(crate) fn open(
        view: Arc<dyn View>,
        space: Box<dyn SpaceCheck>,
        row_cache: Arc<RowCache>,
    ) -> Result<GroupBuilder, StoreError> {
        Ok(GroupBuilder {
            counters: tx::counters_to_write(&*view)?,
            cursors: read_cursors(&*view)?,
            view,
            pending: None,
            row_cache,
            space,
            refusals: Arc::default(),
            refused: None,
        })
    }

    pub(crate) fn cursors(&self) -> SharedCursors {
        self.cursors.clone()
    }

    /// The cache that the builder shares with readers.
    pub(crate) fn row_cache(&self) -> Arc<RowCache> {
        self.row_cache.clone()
    }

    /// How often a group was refused because the disk was too full.
    pub(crate) fn refusals(&self) -> Arc<AtomicU64> {
        self.refusals.clone()
    }

    /// The durable head once everything on its way to the disk is durable.
    pub(crate) fn head(&self) -> DurableHead {
        DurableHead {
            batch: self.counters.batch,
            next_seq: self.counters.next_seq,
        }
    }

    /// Applies changes in order to what is durable and what is on its way, until there
    /// are no more or the batch has `enough_bytes`; the size of a change is only known
    /// once it is applied, because the records that it replaces are kept. Returns one
    /// result for each change taken. A refused change fails alone. If the disk is
    /// almost full, the group fails and leaves everything as it was; any other failure
    /// is final.
    pub(crate) fn apply(
        &mut self,
        changes: &mut dyn Iterator<Item = Result<PreparedChange, Contradiction>>,
        enough_bytes: usize,
    ) -> Result<Group, StoreError> {
        if let Err(refused) = self.space.check() {
            // Counted before any change gets the error.
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
        let counted = prepared.change.refusals_seen?;
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

    /// Makes a group the pending one, on which the next group builds. The previous group
    /// must be durable.
    pub(crate) fn set_pending(&mut self, group: &Group) {
        assert!(self.pending.is_none(), "a group is pending already");
        self.pending = Some(group.batch.clone());
    }

    /// Records that the pending group is durable and in this view.
    pub(crate) fn durable(&mut self, view: Arc<dyn View>) {
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

/// The effects of a group's changes beyond their rows.
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

/// Moves the low-water marks by the events of this group and writes those that moved.
/// The marks move before the batch is durable; if it never is, they are not used again.
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
