//! One reader of the log: a registered consumer with a model of the store, which reads pages and
//! walks, reports its position, and begins again when the log was trimmed past it.

use gapless_core::ledger::RepoId;
use gapless_core::retain::{Consumer, ConsumerKey, ConsumerNeeds, Hold};
use gapless_store::change::ConsumerChange;
use gapless_store::log_model::LogModel;
use gapless_store::log_reader::{OpBytes, PageError, PageLimits, Walk, read_bytes, read_page};
use gapless_store::read_view::ReadView;
use gapless_store::table::log::{FIRST_SEQ, LogKind, LogRow};

use super::kinds::{KindCounts, LogRowKind};
use crate::check::{Broken, broken};
use crate::mirror::SimMirror;
use crate::mirror::log_event::LogEvent;
use crate::mirror::purge::when;
use crate::rng::Rng;
use crate::world::World;

/// Where the effects of a reader are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    /// In the mirror's store: a crash that loses a position loses the effects, too.
    InStore,
    /// Elsewhere: they survive a crash of the mirror, and the position in the store may lag.
    Elsewhere,
}

/// How a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginBy {
    FirstNumber,
    Walk,
}

/// What a reader does next.
#[derive(Debug, Clone)]
enum ReaderStage {
    /// Registers.
    Begin,
    /// Begins again by a walk, because the log was trimmed past it.
    BeginAgain,
    /// Waits until this batch is durable, with the position that holds what is read from then on.
    /// A walk that began earlier could miss its own beginning.
    Hold {
        batch: u64,
        by: BeginBy,
    },
    /// Takes the next part of a walk.
    Walk(Walk),
    Follow,
}

/// Everything that a reader keeps with its effects.
#[derive(Debug, Clone)]
struct State {
    stage: ReaderStage,
    model: LogModel,
    /// From this number on, the reader has held everything since it was logged.
    held_from: u64,
}

/// A reader of the log.
#[derive(Debug, Clone)]
pub struct Reader {
    pub key: ConsumerKey,
    effects: Effects,
    begin_by: BeginBy,
    needs: ConsumerNeeds,
    hold: Hold,
    state: State,
    /// The states of a reader in the store, each with the batch that has it.
    saved: Vec<(u64, State)>,
    /// The batch and the number at which the reader was last compared with the store.
    compared_at: Option<(u64, u64)>,
    /// How often the reader was compared with the store.
    pub compared: u64,
    /// How often the reader began again because the log was trimmed past it.
    pub restarts: u64,
}

impl Reader {
    pub fn new(
        key: ConsumerKey,
        effects: Effects,
        begin_by: BeginBy,
        needs: ConsumerNeeds,
        hold: Hold,
    ) -> Reader {
        Reader {
            key,
            effects,
            begin_by,
            needs,
            hold,
            state: State {
                stage: ReaderStage::Begin,
                model: LogModel::from_the_beginning(),
                held_from: 0,
            },
            saved: Vec::new(),
            compared_at: None,
            compared: 0,
            restarts: 0,
        }
    }

    pub fn name(&self) -> String {
        format!("reader {}", self.key.id)
    }

    /// The first number that is not read yet.
    pub fn next(&self) -> u64 {
        self.state.model.next
    }

    /// What the reader does next, for the trace.
    pub(super) fn label(&self) -> String {
        let stage = match &self.state.stage {
            ReaderStage::Begin => "registers",
            ReaderStage::BeginAgain => "begins again",
            ReaderStage::Hold { .. } => "waits for its position",
            ReaderStage::Walk(_) => "walks",
            ReaderStage::Follow => "reads",
        };
        format!("{} {stage} at {}", self.name(), self.next())
    }

    /// The reader's row, as the last batch leaves it.
    pub fn row(&self, mirror: &SimMirror) -> Option<Consumer> {
        let rows = mirror.book.view().consumers();
        rows.expect("the double does not fail").remove(&self.key)
    }

    /// Whether the reader has read everything that is published.
    pub(super) fn is_at_head(&self, mirror: &SimMirror) -> bool {
        matches!(self.state.stage, ReaderStage::Follow)
            && self.next() == head(mirror.book.published())
    }

    /// Takes the next step.
    pub(super) fn step(
        &mut self,
        world: &World,
        mirror: &mut SimMirror,
        rng: &mut Rng,
        counts: &mut KindCounts,
    ) -> Result<(), Broken> {
        match std::mem::replace(&mut self.state.stage, ReaderStage::Follow) {
            ReaderStage::Begin => self.register(world, mirror),
            ReaderStage::BeginAgain => {
                // The position that ends the overrun comes first.
                let next = head(mirror.book.published()).max(self.next());
                self.state.model.next = next;
                let batch = self.write_position(world, mirror);
                let by = BeginBy::Walk;
                self.state.stage = ReaderStage::Hold { batch, by };
                self.save(batch);
            }
            ReaderStage::Hold { batch, by } => self.begin(mirror, batch, by),
            ReaderStage::Walk(mut walk) => {
                let view = mirror.book.published();
                let part = walk.next_part(view).expect("the double does not fail");
                if let Some(part) = part {
                    self.state.model.take_part(&part);
                    self.state.stage = ReaderStage::Walk(walk);
                }
                self.report_now_and_then(world, mirror, rng);
            }
            ReaderStage::Follow => self.read(world, mirror, rng, counts)?,
        }
        self.compare(mirror)
    }

    fn register(&mut self, world: &World, mirror: &mut SimMirror) {
        let next = match self.begin_by {
            BeginBy::FirstNumber => self.next(),
            BeginBy::Walk => self.next().max(head(mirror.book.published())),
        };
        let at = when(world);
        let consumer = Consumer {
            name: self.name(),
            next,
            holds_from: next,
            registered: at,
            moved: at,
            hold: self.hold,
            needs: self.needs,
            overrun: false,
        };
        self.state.held_from = mirror.book.counters().next_seq;
        let key = self.key;
        let batch = mirror.write_consumer(ConsumerChange::Register {
            key,
            consumer,
            log: None,
        });
        let by = self.begin_by;
        self.state.stage = ReaderStage::Hold { batch, by };
        self.save(batch);
    }

    /// Begins to read once the position is durable.
    fn begin(&mut self, mirror: &mut SimMirror, batch: u64, by: BeginBy) {
        let view = mirror.book.published();
        if counters(view).0 < batch {
            self.state.stage = ReaderStage::Hold { batch, by };
            return;
        }
        match by {
            BeginBy::FirstNumber if self.next() > FIRST_SEQ => {}
            BeginBy::FirstNumber => mirror.book.events.count(LogEvent::BegunAtOne),
            BeginBy::Walk => {
                let walk = Walk::begin(view).expect("the double does not fail");
                self.state.model = LogModel::begin_walk(&walk);
                self.state.stage = ReaderStage::Walk(walk);
                mirror.book.events.count(LogEvent::BegunByWalk);
            }
        }
    }

    /// Reads a page.
    fn read(
        &mut self,
        world: &World,
        mirror: &mut SimMirror,
        rng: &mut Rng,
        counts: &mut KindCounts,
    ) -> Result<(), Broken> {
        let limits = PageLimits {
            rows: rng.between(1, 24) as usize,
            operations: rng.between(1, 40) as usize,
            ..PageLimits::DEFAULT
        };
        let view = mirror.book.published().clone();
        let page = match read_page(&view, self.next(), limits) {
            Ok(page) => page,
            Err(PageError::Trimmed { next, first }) => {
                counts.count(LogRowKind::Trimmed);
                if self.holds(mirror) && next >= self.state.held_from {
                    let what = format!(
                        "{} holds {next}, and the log begins at {first}",
                        self.name()
                    );
                    return broken("R1 (held)", what);
                }
                mirror.book.events.count(LogEvent::TrimmedPast);
                self.restarts += 1;
                self.state.stage = ReaderStage::BeginAgain;
                return Ok(());
            }
            Err(error) => return broken("R1 (missing)", format!("{}: {error}", self.name())),
        };
        let holds = self.needs == ConsumerNeeds::LogAndVersions && self.holds(mirror);
        for (first, row) in &page.rows {
            counts.count(LogRowKind::of(row.kind));
            if holds && *first >= self.state.held_from {
                self.check_bytes(mirror, &view, *first, row)?;
            }
        }
        if let Err(error) = self.state.model.follow(&view, limits) {
            return broken("R1 (missing)", format!("{}: {error}", self.name()));
        }
        if !page.rows.is_empty() {
            self.report_now_and_then(world, mirror, rng);
        }
        Ok(())
    }

    /// Whether the reader holds what it needs.
    fn holds(&self, mirror: &SimMirror) -> bool {
        self.row(mirror).is_some_and(|row| !row.overrun)
    }

    /// The bytes of every operation that the reader has held are there, unless the repository was
    /// purged or damaged since, and the rows of a purge list what it deleted.
    fn check_bytes(
        &self,
        mirror: &SimMirror,
        view: &ReadView,
        first: u64,
        row: &LogRow,
    ) -> Result<(), Broken> {
        // Claims have no superseded versions.
        let Some(id) = row
            .repo
            .filter(|_| !matches!(row.kind, LogKind::Claimed(_)))
        else {
            return Ok(());
        };
        if let LogKind::Purged(count) = row.kind
            // A purge without records has a row without operations.
            && count > 1
            && row.ops.is_empty()
            && !mirror.overdue.contains(&first)
        {
            let what = format!("{} holds {first}, and its paths are gone", self.name());
            return broken("R2 (paths)", what);
        }
        for (seq, op) in (first..).zip(&row.ops) {
            let bytes = read_bytes(view, row, op).expect("the double does not fail");
            let gone = match bytes {
                Some(OpBytes::Spoilt) => return broken("R2 (spoilt)", format!("{seq}: {op:?}")),
                Some(OpBytes::Superseded { .. }) => true,
                None | Some(OpBytes::Record(_) | OpBytes::KeyOnly | OpBytes::Redacted) => false,
            };
            let damaged = mirror.damaged.get(&id).is_some_and(|at| seq < *at);
            if gone && !damaged && !was_purged_after(view, id, seq) {
                let what = format!("{} holds {seq}, and its bytes are gone", self.name());
                return broken("R2 (bytes)", what);
            }
        }
        Ok(())
    }

    /// R3: at the head, the model is equal to the store.
    pub(super) fn compare(&mut self, mirror: &mut SimMirror) -> Result<(), Broken> {
        if !self.is_at_head(mirror) {
            return Ok(());
        }
        let view = mirror.book.published();
        let batch = counters(view).0;
        if self.compared_at == Some((batch, self.next())) {
            return Ok(());
        }
        self.compared_at = Some((batch, self.next()));
        let difference = self.state.model.difference(view);
        if let Some(different) = difference.expect("the double does not fail") {
            let what = format!("{} at {}: {different:?}", self.name(), self.next());
            return broken("R3", what);
        }
        self.compared += 1;
        mirror.book.events.count(LogEvent::Equal);
        Ok(())
    }

    fn report_now_and_then(&mut self, world: &World, mirror: &mut SimMirror, rng: &mut Rng) {
        if self.effects == Effects::InStore || rng.per_mille(500) {
            self.report(world, mirror);
        }
    }

    /// Moves the registered position to where the reader is.
    pub(super) fn report(&mut self, world: &World, mirror: &mut SimMirror) {
        // A crash may have lost an order that set the reader back: then its row is ahead.
        if self.row(mirror).is_some_and(|row| row.next <= self.next()) {
            let batch = self.write_position(world, mirror);
            self.save(batch);
        }
    }

    fn write_position(&mut self, world: &World, mirror: &mut SimMirror) -> u64 {
        if !self.holds(mirror) {
            // Only what is logged from now on is held.
            self.state.held_from = mirror.book.counters().next_seq;
        }
        let (key, next) = (self.key, self.next());
        mirror.write_consumer(ConsumerChange::Move {
            key,
            next,
            holds_from: next,
            log: None,
            at: when(world),
        })
    }

    fn save(&mut self, batch: u64) {
        if self.effects == Effects::InStore {
            self.saved.push((batch, self.state.clone()));
        }
    }

    /// Sets the reader back, for an operator, to a number that the log still has.
    pub(super) fn seek(&mut self, world: &World, mirror: &mut SimMirror, rng: &mut Rng) -> bool {
        let first = mirror.book.published().first_log_number();
        let first = first.expect("the double does not fail");
        if !matches!(self.state.stage, ReaderStage::Follow) || first >= self.next() {
            return false;
        }
        let to = rng.between(first, self.next() - 1);
        let (key, by, at) = (self.key, "an operator".to_owned(), when(world));
        self.state.model.next = to;
        self.state.held_from = mirror.book.counters().next_seq;
        let batch = mirror.write_consumer(ConsumerChange::Seek { key, to, by, at });
        self.save(batch);
        true
    }

    /// Goes on after a crash that left the batches up to `survived`.
    pub(super) fn restart(&mut self, mirror: &mut SimMirror, survived: u64) {
        let row = self.row(mirror);
        self.compared_at = None;
        if matches!(self.state.stage, ReaderStage::Walk(_)) {
            mirror.book.events.count(LogEvent::CrashedInWalk);
        }
        if self.effects == Effects::InStore {
            let before = self.next();
            self.saved.retain(|(batch, _)| *batch <= survived);
            match self.saved.last() {
                Some((_, state)) => self.state = state.clone(),
                None => self.state = self.blank(),
            }
            if self.next() < before {
                mirror.book.events.count(LogEvent::SetBack);
            }
        } else if row.as_ref().is_some_and(|row| row.next < self.next()) {
            mirror.book.events.count(LogEvent::AheadOfItsRow);
        }
        if row.is_none() {
            if !matches!(self.state.stage, ReaderStage::Begin) {
                mirror.book.events.count(LogEvent::RegisteredAgain);
            }
            self.register_again();
        } else if let ReaderStage::Hold { batch, by } = self.state.stage
            && batch > survived
        {
            self.state.stage = match by {
                BeginBy::Walk => ReaderStage::BeginAgain,
                BeginBy::FirstNumber => ReaderStage::Follow,
            };
        }
    }

    fn blank(&self) -> State {
        State {
            stage: ReaderStage::Begin,
            model: LogModel::from_the_beginning(),
            held_from: 0,
        }
    }

    /// Registers where the reader was, because its row is lost. A walk begins again.
    fn register_again(&mut self) {
        self.begin_by = match self.state.stage {
            ReaderStage::Follow => BeginBy::FirstNumber,
            ReaderStage::Walk(_) | ReaderStage::BeginAgain => BeginBy::Walk,
            ReaderStage::Begin => self.begin_by,
            ReaderStage::Hold { by, .. } => by,
        };
        self.state.stage = ReaderStage::Begin;
    }

    /// Forgets states that no crash can lead back to: all but the last of those up to this batch.
    pub(super) fn forget_before(&mut self, synced: u64) {
        let durable = self.saved.partition_point(|(batch, _)| *batch <= synced);
        self.saved.drain(..durable.saturating_sub(1));
    }
}

/// Whether a purge of the repository began after this number.
fn was_purged_after(view: &ReadView, id: RepoId, seq: u64) -> bool {
    let purges = view.purges(seq.max(FIRST_SEQ));
    let mut purges = purges.map(|row| row.expect("the double does not fail"));
    purges.any(|(_, row)| row.repo == id)
}

/// The last batch of a view, and the number that the log gives next.
fn counters(view: &ReadView) -> (u64, u64) {
    let counters = view.counters().expect("the double does not fail");
    (counters.batch, counters.next_seq)
}

pub(super) fn head(view: &ReadView) -> u64 {
    counters(view).1
}
