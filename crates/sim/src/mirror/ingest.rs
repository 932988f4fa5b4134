//! One event: is it signed, what does the ledger say, and write that down. Then
//! the frames that waited for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use gapless_atp::syntax::Rev;
use gapless_core::ledger::account::is_hidden;
use gapless_core::ledger::event::{self, Decision, Event, Origin};
use gapless_core::ledger::identity::{self, Document};
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::parked::{self, ParkedStep};
use gapless_core::ledger::{
    Account, Debt, DebtItem, DebtReason, Held, HostId, KeyBytes, Notice, Parked, PriorState, Repo,
    RepoId, Tick, Time, UpstreamId,
};
use gapless_store::change::RecordsKind;
use gapless_store::table::log::SourceEvent;

use super::book::{Batch, RepoWrite, Waiting, Words};
use super::{KnownKey, Mirror};
use crate::world::commit::root;
use crate::world::{Body, Commit, Frame, Op, Records, World};

/// Bytes that every frame counts for.
const FRAME_BYTES: u32 = 100;

/// Where an event was read, and its number there.
#[derive(Clone, Copy)]
struct Arrival {
    origin: Origin,
    seq: u64,
}

impl Arrival {
    fn source(&self) -> SourceEvent {
        SourceEvent {
            upstream: self.origin.upstream,
            seq: self.seq,
        }
    }
}

/// The part of a row whose changes the log tells of.
#[derive(PartialEq, Eq)]
struct Logged {
    account: Account,
    host: Option<HostId>,
    key: Option<KeyBytes>,
}

impl Logged {
    fn of(repo: &Repo) -> Logged {
        Logged {
            account: repo.account,
            host: repo.host,
            key: repo.signing.and_then(|signing| signing.key),
        }
    }
}

/// A repository in the middle of a change: what will be written as one batch.
pub struct Draft {
    pub id: RepoId,
    pub repo: Repo,
    pub parked: BTreeMap<Rev, Waiting>,
    /// What is held after the last step.
    held: Held,
    /// What the log says so far.
    logged: Logged,
    /// What was owed when the draft began.
    owed: Debt,
    /// The event that told of the account.
    told_by: Option<SourceEvent>,
    /// Operations of the steps so far.
    ops: Vec<Op>,
    steps: Vec<RepoWrite>,
    /// The row that the steps so far write, or the row before the first step.
    written: Repo,
    park: Vec<Waiting>,
    unpark: Vec<Rev>,
}

impl Draft {
    fn new(id: RepoId, repo: Repo, parked: BTreeMap<Rev, Waiting>) -> Draft {
        Draft {
            id,
            parked,
            held: repo.held,
            logged: Logged::of(&repo),
            owed: repo.debt,
            told_by: None,
            written: repo.clone(),
            repo,
            ops: Vec::new(),
            steps: Vec::new(),
            park: Vec::new(),
            unpark: Vec::new(),
        }
    }

    /// The row has moved by these operations: a step of its own in the log.
    pub fn write(&mut self, kind: RecordsKind, source: Option<SourceEvent>, ops: &[Op]) {
        self.ops.extend_from_slice(ops);
        let what = Words::Records {
            kind,
            before: self.held,
            ops: ops.to_vec(),
        };
        self.step(what, source);
        self.held = self.repo.held;
    }

    pub fn step(&mut self, what: Words, source: Option<SourceEvent>) {
        self.written = self.repo.clone();
        self.steps.push(RepoWrite {
            repo: self.repo.clone(),
            what,
            source,
            park: std::mem::take(&mut self.park),
            unpark: std::mem::take(&mut self.unpark),
        });
    }

    fn keep(&mut self, waiting: Waiting) {
        let rev = waiting.parked.head.rev;
        self.parked.insert(rev, waiting.clone());
        self.unpark.retain(|other| *other != rev);
        self.park.push(waiting);
    }

    pub fn take(&mut self, rev: Rev) -> Option<Waiting> {
        self.park.retain(|waiting| waiting.parked.head.rev != rev);
        self.unpark.push(rev);
        self.parked.remove(&rev)
    }

    pub fn frames(&self) -> BTreeMap<Rev, Parked> {
        let frames = self.parked.iter();
        frames
            .map(|(rev, waiting)| (*rev, waiting.parked))
            .collect()
    }

    /// Logs what is new of the account and of the identity. A new host has not said
    /// yet what the account is; but what the old host hid is not hidden any more.
    fn log_changes(&mut self) {
        let shown = self.is_shown_again();
        let known = self.repo.account != Account::Unknown;
        if self.repo.account != self.logged.account && (known || shown) {
            let exact = matches!(self.repo.held, Held::Exactly(_));
            let what = if shown && exact {
                Words::Shown
            } else {
                Words::Account
            };
            let source = self.told_by.take();
            self.step(what, source);
        }
        let now = Logged::of(&self.repo);
        if now.host != self.logged.host || now.key != self.logged.key {
            self.step(Words::Identity, None);
        }
        self.logged = now;
    }

    /// Logs the changes before parked frames follow, so that a consumer learns of a
    /// key before it reads what the key signed. What was owed stays owed until the
    /// last step.
    fn log_changes_first(&mut self) {
        let debt = std::mem::replace(&mut self.repo.debt, self.owed);
        self.log_changes();
        self.repo.debt = debt;
    }

    /// Whether the repository was hidden, and the log does not say yet that it is
    /// shown again.
    fn is_shown_again(&self) -> bool {
        is_hidden(self.logged.account) && !is_hidden(self.repo.account)
    }

    /// Adds the steps to a batch. A draft that changes nothing adds none.
    pub fn into_batch(mut self, at: Time, batch: &mut Batch) {
        self.log_changes();
        let row_is_new = self.written != self.repo;
        if row_is_new || !self.park.is_empty() || !self.unpark.is_empty() {
            self.step(Words::Nothing, None);
        }
        for step in self.steps {
            batch.repo(self.id, at, step);
        }
    }
}

impl Mirror {
    pub fn draft(&self, id: RepoId) -> Draft {
        Draft::new(id, self.book.repo(id), self.book.parked(id))
    }

    /// A draft of a change that concerns the row alone.
    pub fn row_only(&self, id: RepoId) -> Draft {
        Draft::new(id, self.book.repo(id), BTreeMap::new())
    }

    /// Writes the steps of a draft in one batch.
    pub fn submit(&mut self, world: &World, draft: Draft) {
        let mut batch = self.batch();
        draft.into_batch(world.now, &mut batch);
        if !batch.is_empty() {
            self.commit(batch);
        }
    }

    /// Works off one frame of a queue.
    pub fn process(&mut self, world: &mut World, id: UpstreamId, place: usize) {
        let item = self.feeds[&id].queue[place].clone();
        let repo = self.repo_of(world, item.frame.owner);
        let arrival = Arrival {
            origin: Origin {
                upstream: id,
                epoch: item.read.epoch,
            },
            seq: item.at.seq,
        };
        let event = self.judge(world, repo, &item.frame, item.tick);
        let mut batch = self.batch();
        let mut draft = self.draft(repo);
        self.decide(world, &mut draft, arrival, &event, &item.frame);
        self.unpark(&mut draft);
        draft.into_batch(world.now, &mut batch);
        self.done(id, place, &mut batch);
        self.commit(batch);
    }

    /// What the event is, as far as we can tell.
    fn judge(&mut self, world: &mut World, id: RepoId, frame: &Frame, read: Tick) -> Event {
        let (commit, ops) = match &frame.body {
            Body::Identity => return Event::Identity,
            Body::Account(state) => return Event::Account(*state),
            Body::Garbage | Body::Unreadable => return Event::Unsigned,
            Body::Commit { commit, .. } | Body::Sync { commit } => (commit, body_ops(&frame.body)),
        };
        let known = match self.keys.get(&id) {
            Some(known) => Some(*known),
            // Asked once; what fails becomes a debt.
            None if self.may_ask(id) => self.resolve_now(world, id),
            None => None,
        };
        match known {
            Some(known) if commit.key == Some(known.key) => Event::Signed {
                head: commit.head,
                before: before(commit, ops, &frame.body),
                bytes: FRAME_BYTES,
            },
            // The document is younger than the event: it is surely not signed.
            Some(known) if known.asked > read => Event::Unsigned,
            _ => Event::Unresolved {
                claimed: commit.head,
                bytes: FRAME_BYTES,
            },
        }
    }

    /// A DID that was tried already waits for its turn.
    fn may_ask(&self, id: RepoId) -> bool {
        let debt = self.book.repo(id).debt;
        let first = |owed: DebtItem| owed.why == DebtReason::FirstSighting && debt.attempts == 0;
        debt.resolve.is_none_or(first)
    }

    /// Asks the directory and takes its answer in. Returns the key, if it came.
    pub fn resolve_now(&mut self, world: &mut World, id: RepoId) -> Option<KnownKey> {
        let asked = self.tick(world);
        let owner = self.owner_of(world, id);
        self.counts.resolved += 1;
        let (document, version) = world.resolve(owner)?;
        self.resolved(world, id, asked.tick, document, version);
        self.keys.get(&id).copied()
    }

    /// The directory has answered.
    pub fn resolved(
        &mut self,
        world: &World,
        id: RepoId,
        asked: Tick,
        document: crate::world::directory::Document,
        version: u64,
    ) {
        let host = document.host.map(|pds| self.host_id(pds));
        let now = self.tick(world);
        let mut draft = self.draft(id);
        let mut notices = std::mem::take(&mut self.notices);
        let old = version < draft.repo.document;
        let told = Document {
            host,
            key: Some(key_bytes(document.key)),
            version,
            tombstoned: false,
        };
        identity::resolved(
            now,
            &mut draft.repo,
            &self.covers,
            asked,
            &told,
            &mut notices,
        );
        self.notices = notices;
        if !old {
            let key = document.key;
            self.keys.insert(id, KnownKey { key, asked });
            if !draft.parked.is_empty() {
                draft.log_changes_first();
            }
            self.judge_again(world, &mut draft);
        }
        self.unpark(&mut draft);
        self.submit(world, draft);
    }

    /// Frames that nobody could judge are judged now that the key is known.
    fn judge_again(&mut self, world: &World, draft: &mut Draft) {
        let Some(known) = self.keys.get(&draft.id).copied() else {
            return;
        };
        let still_owed = draft.repo.debt.resolve.is_some();
        for rev in parked::unjudged_revs(&draft.frames()) {
            // Its stream may not be followed any more: then no later rule could tell.
            let (origin, host) = (draft.parked[&rev].parked.origin, draft.repo.host);
            if host.is_some() && origin.is_some() && origin != host {
                self.drop_frame(draft, rev, DropReason::OtherHost);
                continue;
            }
            let frame = draft.parked[&rev].frame.clone();
            let (Body::Commit { commit, .. } | Body::Sync { commit }) = &frame.body else {
                continue;
            };
            if commit.key == Some(known.key) {
                let Some(waiting) = draft.take(rev) else {
                    continue;
                };
                self.counts.unparked += 1;
                let event = Event::Signed {
                    head: commit.head,
                    before: before(commit, body_ops(&frame.body), &frame.body),
                    bytes: FRAME_BYTES,
                };
                let arrival = Arrival {
                    origin: Origin {
                        upstream: waiting.upstream,
                        epoch: None,
                    },
                    seq: waiting.seq,
                };
                self.decide(world, draft, arrival, &event, &frame);
            } else if !still_owed {
                self.drop_frame(draft, rev, DropReason::Forged);
            }
        }
    }

    /// Asks the ledger about one event and drafts what it says.
    fn decide(
        &mut self,
        world: &World,
        draft: &mut Draft,
        arrival: Arrival,
        event: &Event,
        frame: &Arc<Frame>,
    ) {
        let Arrival { origin, seq } = arrival;
        let now = self.tick(world);
        let rev = match event {
            Event::Signed { head, .. } | Event::Unresolved { claimed: head, .. } => head.rev,
            _ => Rev::from_bits(0),
        };
        let room = event::parked_totals(&draft.frames(), rev, 0);
        let mut notices = std::mem::take(&mut self.notices);
        let decision = event::decide(
            self.context(now),
            &mut draft.repo,
            origin,
            event,
            &room,
            &mut notices,
        );
        self.notices = notices;
        if matches!(event, Event::Account(_)) {
            draft.told_by = Some(arrival.source());
        }
        match decision {
            Decision::Pass => {}
            Decision::Apply => apply(draft, arrival.source(), event, frame),
            Decision::Park(parked) => {
                self.drop_frame(draft, parked.head.rev, DropReason::SameRev);
                self.counts.parked += 1;
                draft.keep(Waiting {
                    parked,
                    upstream: origin.upstream,
                    epoch: origin.epoch,
                    seq,
                    frame: frame.clone(),
                });
            }
        }
    }

    /// Applies the parked frames whose time has come, and drops those whose time
    /// has passed.
    pub fn unpark(&mut self, draft: &mut Draft) {
        if draft.is_shown_again() && !draft.parked.is_empty() {
            // Parked frames follow on what consumers were not sent.
            draft.log_changes_first();
        }
        let mut tried = Vec::new();
        while let Some(next) = parked::next_step(&draft.repo, &draft.frames(), &tried) {
            match next {
                ParkedStep::Apply(rev) => self.apply_parked(draft, rev),
                ParkedStep::Recompute(rev) if self.recomputes(draft, rev) => {
                    self.apply_parked(draft, rev);
                }
                ParkedStep::Recompute(rev) => tried.push(rev),
                ParkedStep::Drop(rev, why) => self.drop_frame(draft, rev, why),
            }
        }
    }

    fn apply_parked(&mut self, draft: &mut Draft, rev: Rev) {
        let Some(waiting) = draft.take(rev) else {
            return;
        };
        self.counts.unparked += 1;
        parked::apply(&mut draft.repo, &waiting.parked);
        let source = SourceEvent {
            upstream: waiting.upstream,
            seq: waiting.seq,
        };
        let ops = match waiting.parked.before {
            PriorState::Untold => &[],
            _ => body_ops(&waiting.frame.body),
        };
        draft.write(RecordsKind::Live, Some(source), ops);
    }

    /// Whether the operations of a frame lead from the held keys to its root.
    fn recomputes(&self, draft: &Draft, rev: Rev) -> bool {
        if self.settings.wanted_keys_only {
            return false;
        }
        let waiting = &draft.parked[&rev];
        let mut records = self.records(draft);
        for op in body_ops(&waiting.frame.body) {
            let found = match op.after {
                Some(cid) => records.insert(op.path.clone(), cid),
                None => records.remove(&op.path),
            };
            if op.after.is_none() && found.is_none() {
                return false;
            }
        }
        root(&records) == waiting.parked.head.data
    }

    /// What is held after the steps that are drafted.
    pub fn records(&self, draft: &Draft) -> Records {
        let mut records = self.book.records(draft.id);
        for op in &draft.ops {
            match op.after {
                Some(cid) => records.insert(op.path.clone(), cid),
                None => records.remove(&op.path),
            };
        }
        records
    }

    /// Drops a parked frame, if there is one of this rev.
    pub fn drop_frame(&mut self, draft: &mut Draft, rev: Rev, why: DropReason) {
        if draft.take(rev).is_some() {
            self.counts.dropped += 1;
            self.notices.push(Notice::ParkedDropped { rev, why });
        }
    }
}

/// The bytes that stand for a numbered key in a row.
fn key_bytes(number: u32) -> KeyBytes {
    let mut point = [0; 33];
    point[..4].copy_from_slice(&number.to_be_bytes());
    KeyBytes { curve: 0, point }
}

fn apply(draft: &mut Draft, source: SourceEvent, event: &Event, frame: &Frame) {
    let ops = match event {
        Event::Signed {
            before: PriorState::Root(_),
            ..
        } => body_ops(&frame.body),
        _ => &[],
    };
    draft.write(RecordsKind::Live, Some(source), ops);
}

fn body_ops(body: &Body) -> &[Op] {
    match body {
        Body::Commit { ops, .. } => ops,
        _ => &[],
    }
}

/// What a signed event proves about the state before it.
fn before(commit: &Commit, ops: &[Op], body: &Body) -> PriorState {
    match body {
        Body::Commit { too_big: true, .. } => PriorState::Untold,
        Body::Commit { proved: false, .. } => PriorState::Recompute,
        Body::Commit { .. } => match commit.undone(ops) {
            Some(root) if root == commit.previous => PriorState::Root(root),
            // Its operations are not what was signed: they are of no use.
            _ => PriorState::Untold,
        },
        _ => PriorState::Untold,
    }
}
