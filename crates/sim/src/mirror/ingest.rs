//! One event: is it signed, what does the ledger say, and write that down. Then
//! the frames that waited for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use gapless_atp::syntax::Rev;
use gapless_core::ledger::event::{self, Decision, Event, Origin};
use gapless_core::ledger::identity::{self, Document};
use gapless_core::ledger::notice::Dropped;
use gapless_core::ledger::parked::{self, Next};
use gapless_core::ledger::{Before, Held, Owed, Parked, Repo, RepoId, Tick, Time, UpstreamId, Why};

use super::book::{Batch, RepoWrite, Waiting, Words};
use super::{KnownKey, Mirror};
use crate::world::commit::root;
use crate::world::{Body, Commit, Frame, Op, Records, World};

/// Bytes that every frame counts for.
const FRAME_BYTES: u32 = 100;

/// A repository in the middle of a change: what will be written as one batch.
pub struct Draft {
    pub id: RepoId,
    pub repo: Repo,
    pub parked: BTreeMap<Rev, Waiting>,
    /// What is held after the last step.
    held: Held,
    /// Operations of the steps so far.
    ops: Vec<Op>,
    steps: Vec<RepoWrite>,
    park: Vec<Waiting>,
    unpark: Vec<Rev>,
}

impl Draft {
    /// The row has moved by these operations: a step of its own in the log.
    pub fn write(&mut self, live: bool, ops: &[Op]) {
        self.ops.extend_from_slice(ops);
        let what = Words::Records {
            live,
            before: self.held,
            ops: ops.to_vec(),
        };
        self.step(what);
        self.held = self.repo.held;
    }

    pub fn step(&mut self, what: Words) {
        self.steps.push(RepoWrite {
            repo: self.repo.clone(),
            what,
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

    pub fn into_batch(mut self, at: Time, batch: &mut Batch) {
        let last = self.steps.last().map(|step| &step.repo);
        if last != Some(&self.repo) || !self.park.is_empty() || !self.unpark.is_empty() {
            self.step(Words::Nothing);
        }
        for step in self.steps {
            batch.repo(self.id, at, step);
        }
    }
}

impl Mirror {
    pub fn draft(&self, id: RepoId) -> Draft {
        Draft {
            id,
            repo: self.book.repo(id),
            parked: self.book.parked(id),
            held: self.book.repo_ref(id).held,
            ops: Vec::new(),
            steps: Vec::new(),
            park: Vec::new(),
            unpark: Vec::new(),
        }
    }

    /// Works off one frame of a queue.
    pub fn process(&mut self, world: &mut World, id: UpstreamId, place: usize) {
        let item = self.feeds[&id].queue[place].clone();
        let repo = self.repo_of(world, item.frame.owner);
        let origin = Origin {
            upstream: id,
            epoch: item.read.epoch,
        };
        let event = self.judge(world, repo, &item.frame, item.tick);
        let mut batch = self.batch();
        let mut draft = self.draft(repo);
        self.decide(world, &mut draft, origin, &event, &item.frame);
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
        let first = |owed: Owed| owed.why == Why::FirstSighting && debt.attempts == 0;
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
            key: None,
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
            self.judge_again(world, &mut draft);
        }
        self.unpark(&mut draft);
        let mut batch = self.batch();
        draft.into_batch(world.now, &mut batch);
        self.commit(batch);
    }

    /// Frames that nobody could judge are judged now that the key is known.
    fn judge_again(&mut self, world: &World, draft: &mut Draft) {
        let Some(known) = self.keys.get(&draft.id).copied() else {
            return;
        };
        let still_owed = draft.repo.debt.resolve.is_some();
        for rev in parked::unjudged(&draft.frames()) {
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
                let origin = Origin {
                    upstream: waiting.upstream,
                    epoch: None,
                };
                self.decide(world, draft, origin, &event, &frame);
            } else if !still_owed {
                self.drop_frame(draft, rev, Dropped::Forged);
            }
        }
    }

    /// Asks the ledger about one event and drafts what it says.
    fn decide(
        &mut self,
        world: &World,
        draft: &mut Draft,
        origin: Origin,
        event: &Event,
        frame: &Arc<Frame>,
    ) {
        let now = self.tick(world);
        let rev = match event {
            Event::Signed { head, .. } | Event::Unresolved { claimed: head, .. } => head.rev,
            _ => Rev::from_bits(0),
        };
        let room = event::room(&draft.frames(), rev, 0);
        let mut notices = std::mem::take(&mut self.notices);
        let decision = event::event(
            self.context(now),
            &mut draft.repo,
            origin,
            event,
            &room,
            &mut notices,
        );
        self.notices = notices;
        match decision {
            Decision::Pass => {}
            Decision::Apply => apply(draft, event, frame),
            Decision::Park(parked) => {
                if draft.take(parked.head.rev).is_some() {
                    self.counts.dropped += 1;
                }
                self.counts.parked += 1;
                draft.keep(Waiting {
                    parked,
                    upstream: origin.upstream,
                    epoch: origin.epoch,
                    frame: frame.clone(),
                });
            }
        }
    }

    /// Applies the parked frames whose time has come, and drops those whose time
    /// has passed.
    pub fn unpark(&mut self, draft: &mut Draft) {
        let mut tried = Vec::new();
        while let Some(next) = parked::next(&draft.repo, &draft.frames(), &tried) {
            match next {
                Next::Apply(rev) => self.apply_parked(draft, rev),
                Next::Recompute(rev) if self.recomputes(draft, rev) => {
                    self.apply_parked(draft, rev);
                }
                Next::Recompute(rev) => tried.push(rev),
                Next::Drop(rev, why) => self.drop_frame(draft, rev, why),
            }
        }
    }

    fn apply_parked(&mut self, draft: &mut Draft, rev: Rev) {
        let Some(waiting) = draft.take(rev) else {
            return;
        };
        self.counts.unparked += 1;
        parked::apply(&mut draft.repo, &waiting.parked);
        match waiting.parked.before {
            Before::Untold => draft.write(true, &[]),
            _ => draft.write(true, body_ops(&waiting.frame.body)),
        }
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

    pub fn drop_frame(&mut self, draft: &mut Draft, rev: Rev, _why: Dropped) {
        if draft.take(rev).is_some() {
            self.counts.dropped += 1;
        }
    }
}

fn apply(draft: &mut Draft, event: &Event, frame: &Frame) {
    match event {
        Event::Signed {
            before: Before::Root(_),
            ..
        } => draft.write(true, body_ops(&frame.body)),
        _ => draft.write(true, &[]),
    }
}

fn body_ops(body: &Body) -> &[Op] {
    match body {
        Body::Commit { ops, .. } => ops,
        _ => &[],
    }
}

/// What a signed event proves about the state before it.
fn before(commit: &Commit, ops: &[Op], body: &Body) -> Before {
    match body {
        Body::Commit { too_big: true, .. } => Before::Untold,
        Body::Commit { proved: false, .. } => Before::Recompute,
        Body::Commit { .. } => match commit.undone(ops) {
            Some(root) if root == commit.previous => Before::Root(root),
            // Its operations are not what was signed: they are of no use.
            _ => Before::Untold,
        },
        _ => Before::Untold,
    }
}
