//! The environment of a transaction: reads the book and the world's clock, where the program reads
//! its store and its own clock. The steps of a transaction then go into a batch.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Deref;
use std::sync::Arc;

use gapless_atp::cid::Cid;
use gapless_atp::frame::Action;
use gapless_atp::syntax::Rev;
use gapless_atp::verify::CheckedOp;
use gapless_core::ledger::cover::Covers;
use gapless_core::ledger::event::Event;
use gapless_core::ledger::{Lived, PriorState, RepoId, Tick, Ticks, Time};
use gapless_core::repo_tx::step::ParkedFrame;
use gapless_core::repo_tx::{
    ChangedKeys, JudgeBy, Moment, ReadFrame, RepoEnv, RepoTx, Rules, Unusable,
};
use gapless_store::read_view::{ReadView, RootError};

use super::book::{Batch, read_frame_bytes};
use super::{KnownKey, SimMirror};
use crate::world::commit::bytes_of;
use crate::world::{Body, Commit, Frame, Op, World};

/// The number of bytes that every frame counts as.
const FRAME_BYTES: u32 = 100;

/// The environment of one transaction.
pub struct Env<'a> {
    view: ReadView,
    covers: &'a Covers,
    frames: &'a BTreeMap<u64, Arc<Frame>>,
    key: Option<KnownKey>,
    ticks: Cell<Ticks>,
    now: Time,
}

impl RepoEnv for Env<'_> {
    type Error = Infallible;

    fn moment(&self) -> Moment<impl Deref<Target = Covers> + '_> {
        let mut ticks = self.ticks.get();
        let now = ticks.next(self.now, Lived(self.now.0));
        self.ticks.set(ticks);
        Moment {
            now,
            covers: self.covers,
        }
    }

    fn time(&self) -> Time {
        self.now
    }

    fn parked_bytes_in_all(&self) -> u64 {
        0
    }

    fn parked_frame(&self, id: RepoId, rev: Rev) -> Result<Option<ParkedFrame>, Infallible> {
        let frame = self.view.parked_frame(id, rev);
        Ok(frame.expect("the double does not fail"))
    }

    fn open<'f>(
        &'f self,
        frame: &'f ParkedFrame,
        by: Option<JudgeBy<'_>>,
    ) -> Result<ReadFrame<'f>, Unusable> {
        let (number, seq) = read_frame_bytes(&frame.frame).ok_or(Unusable)?;
        let frame = self.frames.get(&number).ok_or(Unusable)?;
        let event = by.map(|by| judge(frame, self.key, by.read));
        Ok(ReadFrame {
            event,
            ops: body_ops(&frame.body),
            commit: &[],
            seq,
        })
    }

    fn root_with(&self, id: RepoId, changed: &ChangedKeys) -> Result<Option<Cid>, Infallible> {
        match self.view.root_with(id, changed) {
            Ok(root) => Ok(Some(root)),
            Err(RootError::Tree(_)) => Ok(None),
            Err(RootError::Store(error)) => panic!("the double fails: {error}"),
        }
    }

    fn record(&self, id: RepoId, path: &[u8]) -> Result<Option<Cid>, Infallible> {
        let record = self.view.record(id, path);
        let record = record.expect("the double does not fail");
        Ok(record.map(|record| record.cid))
    }
}

/// Verifies a frame with the key that is known.
pub(crate) fn judge(frame: &Frame, known: Option<KnownKey>, read: Tick) -> Event {
    let commit = match &frame.body {
        Body::Identity => return Event::Identity,
        Body::Account(state) => return Event::Account(*state),
        Body::Garbage | Body::Unreadable => return Event::Unsigned,
        Body::Commit { commit, .. } | Body::Sync { commit } => commit,
    };
    match known {
        Some(known) if commit.key == Some(known.key) => Event::Signed {
            head: commit.head,
            before: before(commit, &frame.body),
            bytes: FRAME_BYTES,
        },
        // The document was requested after the event was read, so the event is not signed.
        Some(known) if known.asked > read => Event::Unsigned,
        _ => Event::Unresolved {
            claimed: commit.head,
            bytes: FRAME_BYTES,
        },
    }
}

/// A frame with its event, as the transaction takes it.
pub(crate) fn read_frame(frame: &Frame, event: Event, seq: u64) -> ReadFrame<'_> {
    ReadFrame {
        event: Some(event),
        ops: body_ops(&frame.body),
        commit: &[],
        seq,
    }
}

/// The operations that a frame contains.
fn body_ops(body: &Body) -> Vec<CheckedOp<'_>> {
    match body {
        Body::Commit { ops, .. } => ops.iter().map(checked_op).collect(),
        _ => Vec::new(),
    }
}

fn checked_op(op: &Op) -> CheckedOp<'_> {
    CheckedOp {
        path: &op.path,
        action: match (op.before, op.after) {
            (None, _) => Action::Create,
            (Some(_), Some(_)) => Action::Update,
            (Some(_), None) => Action::Delete,
        },
        cid: op.after,
        prev: op.before,
        record: op.after.as_ref().and_then(bytes_of),
    }
}

/// What a signed frame proves about the state before it.
fn before(commit: &Commit, body: &Body) -> PriorState {
    match body {
        Body::Commit { too_big: true, .. } => PriorState::Untold,
        Body::Commit { proved: false, .. } => PriorState::Recompute,
        Body::Commit { ops, .. } => match commit.undone(ops) {
            Some(root) if root == commit.previous => PriorState::Root(root),
            // The operations are not those that were signed, so they are of no use.
            _ => PriorState::Untold,
        },
        _ => PriorState::Untold,
    }
}

impl SimMirror {
    /// Begins a transaction.
    pub fn tx(&self, id: RepoId) -> RepoTx {
        let parked = self.book.parked(id);
        RepoTx::new(Some(id), self.book.repo(id), parked)
    }

    /// Begins a transaction that changes the row alone.
    pub(crate) fn row_tx(&self, id: RepoId) -> RepoTx {
        RepoTx::row_only(Some(id), self.book.repo(id))
    }

    /// Lets a transaction decide, with the ticks of this mirror.
    pub fn decide<T>(
        &mut self,
        world: &World,
        tx: &mut RepoTx,
        act: impl FnOnce(&mut RepoTx, &Env<'_>, &Rules) -> Result<T, Infallible>,
    ) -> T {
        let key = tx.id.and_then(|id| self.keys.get(&id).copied());
        let env = Env {
            view: self.book.view(),
            covers: &self.covers,
            frames: self.book.frames(),
            key,
            ticks: Cell::new(self.ticks),
            now: world.now,
        };
        let Ok(value) = act(tx, &env, &self.rules);
        self.ticks = env.ticks.get();
        value
    }

    /// Adds the steps of a transaction to a batch. A transaction that changes nothing adds none.
    pub fn finish(&mut self, world: &World, tx: RepoTx, batch: &mut Batch) {
        let finished = tx.finish(world.now, |_| None);
        self.counts.parked += finished.counts.parked;
        self.counts.unparked += finished.counts.unparked;
        self.counts.dropped += finished.counts.dropped;
        self.notices.extend(finished.notices);
        for step in finished.steps {
            batch.repo(step);
        }
    }

    /// Writes the steps of a transaction in one batch.
    pub fn submit(&mut self, world: &World, tx: RepoTx) {
        let mut batch = self.batch();
        self.finish(world, tx, &mut batch);
        if !batch.is_empty() {
            self.commit(batch);
        }
    }
}
