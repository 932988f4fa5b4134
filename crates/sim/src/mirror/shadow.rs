//! The simulator's own copy of the row transaction, run beside the shared one on a clone
//! of the row: steps, notices and ticks must be equal. It goes with the next commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use gapless_atp::syntax::Rev;
use gapless_core::ledger::account::is_hidden;
use gapless_core::ledger::debt;
use gapless_core::ledger::event::{self, Decision, Event, Origin};
use gapless_core::ledger::fetch::{self, CheckedHead, HeadAnswer, Next, Note, SnapshotDecision};
use gapless_core::ledger::identity::{self, Document};
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::parked::{self, ParkedStep};
use gapless_core::ledger::{
    Account, Debt, Epoch, Held, HostId, KeyBytes, NamedHead, Notice, Now, Parked, PriorState, Repo,
    RepoId, Tick, Time, UpstreamId, account, rollback, sweep,
};
use gapless_core::repo_tx::answer::AskReason;
use gapless_store::change::{
    EntryContent, LogEntry, RecordOp, RecordValue, Records as Written, RecordsKind, RepoChange,
    Subject,
};
use gapless_store::table::log::SourceEvent;
use gapless_store::table::parked::ParkedFrame;

use super::Mirror;
use super::book::{frame_bytes, read_frame_bytes};
use super::snapshot::SMALL;
use super::tx::FRAME_BYTES;
use crate::world::commit::{bytes_of, root};
use crate::world::{Body, Commit, Frame, Op, Records, World};

/// Where an event was read, and its number there.
#[derive(Clone, Copy)]
pub struct OldArrival {
    pub origin: Origin,
    pub seq: u64,
}

impl OldArrival {
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

    pub fn into_steps(mut self, at: Time) -> Vec<RepoChange> {
        self.log_changes();
        let row_is_new = self.written != self.repo;
        if row_is_new || !self.park.is_empty() || !self.unpark.is_empty() {
            self.step(Words::Nothing, None);
        }
        let id = self.id;
        let steps = self.steps.into_iter().map(|step| change(id, at, step));
        steps.collect()
    }
}

/// A parked frame with how it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub parked: Parked,
    pub upstream: UpstreamId,
    pub epoch: Option<Epoch>,
    pub seq: u64,
    pub frame: Arc<Frame>,
}

/// What becomes of one repository, in one step.
#[derive(Debug, Clone)]
pub struct RepoWrite {
    pub repo: Repo,
    pub what: Words,
    /// The event that the log entry comes from.
    pub source: Option<SourceEvent>,
    pub park: Vec<Waiting>,
    pub unpark: Vec<Rev>,
}

/// What a step says in the log.
#[derive(Debug, Clone)]
pub enum Words {
    Nothing,
    /// The account state is new.
    Account,
    /// The account state is new, and the repository is shown again.
    Shown,
    /// The host or the key is new.
    Identity,
    /// Operations, and the state that they start from.
    Records {
        kind: RecordsKind,
        before: Held,
        ops: Vec<Op>,
    },
    Purge,
}

fn change(id: RepoId, at: Time, write: RepoWrite) -> RepoChange {
    RepoChange {
        subject: Subject::Id(id),
        row: Some(write.repo),
        entry: entry(at, write.what, write.source),
        park: write.park.iter().map(stored).collect(),
        unpark: write.unpark,
    }
}

fn stored(waiting: &Waiting) -> ParkedFrame {
    ParkedFrame {
        parked: waiting.parked,
        upstream: waiting.upstream,
        epoch: waiting.epoch,
        frame: frame_bytes(&waiting.frame, waiting.seq),
    }
}

fn entry(at: Time, what: Words, source: Option<SourceEvent>) -> Option<LogEntry> {
    let what = match what {
        Words::Nothing => return None,
        Words::Account => EntryContent::Account,
        Words::Shown => EntryContent::Shown,
        Words::Identity => EntryContent::Identity,
        Words::Purge => EntryContent::Purge,
        Words::Records { kind, before, ops } => {
            let ops = ops.into_iter().map(|op| RecordOp {
                path: op.path.into_bytes(),
                put: op.after.map(|cid| RecordValue {
                    cid,
                    bytes: bytes_of(&cid).map(<[u8]>::to_vec),
                }),
                fresh: false,
            });
            EntryContent::Records(Written {
                kind,
                before,
                ops: ops.collect(),
                commit: Vec::new(),
            })
        }
    };
    Some(LogEntry {
        at,
        source,
        what,
        frame: None,
    })
}

/// A snapshot on its way into the store.
pub struct OldWriting {
    pub note: Note,
    pub named: NamedHead,
    pub adopt: bool,
    pub snapshot: CheckedHead,
    pub rest: Vec<Op>,
}

impl OldWriting {
    /// The note of the job. An adoption began a new lineage, which replaces the
    /// noted one.
    fn note(&self, repo: &Repo) -> Note {
        if self.adopt {
            Note {
                lineage: repo.lineage,
                ..self.note
            }
        } else {
            self.note
        }
    }
}

impl Mirror {
    pub fn old_draft(&self, id: RepoId) -> Draft {
        let view = self.book.view();
        let revs = self.book.parked(id).into_keys();
        let parked = revs.map(|rev| {
            let row = view.parked_frame(id, rev);
            let row = row.expect("the double does not fail");
            let row = row.expect("it was there a moment ago");
            let (number, seq) = read_frame_bytes(&row.frame).expect("our own bytes");
            let waiting = Waiting {
                parked: row.parked,
                upstream: row.upstream,
                epoch: row.epoch,
                seq,
                frame: self.book.frames()[&number].clone(),
            };
            (rev, waiting)
        });
        Draft::new(id, self.book.repo(id), parked.collect())
    }

    pub fn old_row(&self, id: RepoId, repo: Repo) -> Draft {
        let mut draft = Draft::new(id, self.book.repo(id), BTreeMap::new());
        draft.repo = repo;
        draft
    }

    pub fn old_purge(&mut self, now: Now, id: RepoId) -> Draft {
        let mut draft = self.old_draft(id);
        account::purge_row(now, &mut draft.repo);
        for rev in draft.frames().into_keys() {
            self.drop_frame(&mut draft, rev, DropReason::Superseded);
        }
        draft.step(Words::Purge, None);
        draft
    }

    pub fn old_event(
        &mut self,
        world: &World,
        id: RepoId,
        arrival: OldArrival,
        event: &Event,
        frame: &Arc<Frame>,
    ) -> Draft {
        let mut draft = self.old_draft(id);
        self.old_decide(world, &mut draft, arrival, event, frame);
        self.unpark(&mut draft);
        draft
    }

    pub fn old_resolved(
        &mut self,
        world: &World,
        id: RepoId,
        asked: Tick,
        told: &Document,
    ) -> Draft {
        let now = self.tick(world);
        let mut draft = self.old_draft(id);
        let mut notices = std::mem::take(&mut self.notices);
        let old = told.version < draft.repo.document;
        identity::resolved(
            now,
            &mut draft.repo,
            &self.covers,
            asked,
            told,
            &mut notices,
        );
        self.notices = notices;
        if !old {
            if !draft.parked.is_empty() {
                draft.log_changes_first();
            }
            self.judge_again(world, &mut draft);
        }
        self.unpark(&mut draft);
        draft
    }

    pub fn old_hear(
        &mut self,
        world: &World,
        id: RepoId,
        trigger: &AskReason,
        note: &Note,
        told: HeadAnswer,
    ) -> (Draft, Next) {
        let now = self.tick(world);
        let census = self.census(note.host);
        let host = self.book.host(note.host).cloned().unwrap_or_default();
        let mut draft = self.old_draft(id);
        let mut notices = std::mem::take(&mut self.notices);
        let next = fetch::head_answered(
            self.context(now),
            &mut draft.repo,
            note,
            told,
            &host,
            Some(census),
            &mut notices,
        );
        self.notices = notices;
        if let AskReason::Suspect(suspect) = trigger
            && let HeadAnswer::Head(named) = told
        {
            sweep::suspect_answered(now, &mut draft.repo, suspect, Some(named));
        }
        if !matches!(trigger, AskReason::Debt) && matches!(next, Next::Adopt(_)) {
            debt::ask_host_next(now, &mut draft.repo);
        }
        self.unpark(&mut draft);
        (draft, next)
    }

    /// The first chunk of a snapshot, or all of it. Returns how much is left, if it was
    /// taken and is not done.
    pub fn old_consider(
        &mut self,
        world: &World,
        id: RepoId,
        mut writing: OldWriting,
    ) -> (Draft, Option<usize>) {
        let mut draft = self.old_draft(id);
        let OldWriting {
            note,
            named,
            adopt,
            snapshot,
            ..
        } = writing;
        if !self.is_taken(world, &mut draft.repo, &note, &named, adopt, &snapshot) {
            return (draft, None);
        }
        if writing.rest.len() > SMALL {
            self.begin(world, &mut draft, &mut writing);
            (draft, Some(writing.rest.len()))
        } else if adopt {
            self.old_adopt(world, &mut draft, &writing);
            (draft, None)
        } else {
            self.old_finish(world, &mut draft, &writing);
            (draft, None)
        }
    }

    /// The next chunk.
    pub fn old_write_on(
        &mut self,
        world: &World,
        id: RepoId,
        mut writing: OldWriting,
    ) -> (Draft, Option<usize>) {
        let mut draft = self.old_draft(id);
        let ours = matches!(
            draft.repo.held,
            Held::Applying { target, .. } if target == writing.snapshot.head
        );
        if !ours {
            return (draft, None);
        }
        if writing.rest.len() <= SMALL {
            self.old_finish(world, &mut draft, &writing);
            return (draft, None);
        }
        let ops: Vec<Op> = writing.rest.drain(..SMALL).collect();
        draft.write(RecordsKind::Repair, None, &ops);
        (draft, Some(writing.rest.len()))
    }

    /// Decides whether a verified snapshot is written.
    fn is_taken(
        &mut self,
        world: &World,
        repo: &mut Repo,
        note: &Note,
        named: &NamedHead,
        adopt: bool,
        snapshot: &CheckedHead,
    ) -> bool {
        let now = self.tick(world);
        if adopt {
            let taken = rollback::is_adoptable(repo, note, named, snapshot);
            if !taken {
                debt::attempt_failed(now, repo, None);
            }
            return taken;
        }
        let mut notices = std::mem::take(&mut self.notices);
        let take = fetch::judge_snapshot(self.context(now), repo, note, snapshot, &mut notices);
        self.notices = notices;
        take == SnapshotDecision::Write
    }

    /// Makes the host's older state the state of the row.
    fn take_over(&mut self, now: Now, repo: &mut Repo, writing: &OldWriting) {
        self.counts.adopted += 1;
        let mut notices = std::mem::take(&mut self.notices);
        let context = self.context(now);
        rollback::adopt_snapshot(
            context,
            repo,
            &writing.note,
            &writing.snapshot,
            &mut notices,
        );
        self.notices = notices;
    }

    fn old_adopt(&mut self, world: &World, draft: &mut Draft, writing: &OldWriting) {
        let now = self.tick(world);
        self.take_over(now, &mut draft.repo, writing);
        draft.write(RecordsKind::Repair, None, &writing.rest);
        self.unpark(draft);
    }

    /// Writes the first of several batches.
    fn begin(&mut self, world: &World, draft: &mut Draft, writing: &mut OldWriting) {
        let now = self.tick(world);
        let kind = kind(&draft.repo.held);
        if writing.adopt {
            self.take_over(now, &mut draft.repo, writing);
            // Until the last batch is written, what is held is no state.
            draft.repo.held = Held::Applying {
                target: writing.snapshot.head,
                from: None,
            };
            debt::owe_interrupted(now, &mut draft.repo);
        } else {
            fetch::begin_snapshot(now, &mut draft.repo, &writing.snapshot);
        }
        let first: Vec<Op> = writing.rest.drain(..SMALL).collect();
        draft.write(kind, None, &first);
    }

    /// The last batch, or the only one: the state is exact, parked frames follow,
    /// and then it is said what that is worth.
    fn old_finish(&mut self, world: &World, draft: &mut Draft, writing: &OldWriting) {
        let now = self.tick(world);
        let OldWriting {
            named, snapshot, ..
        } = writing;
        let kind = kind(&draft.repo.held);
        let note = writing.note(&draft.repo);
        fetch::finish_snapshot(now, &mut draft.repo, &note, snapshot);
        draft.write(kind, None, &writing.rest);
        self.unpark(draft);
        if draft.repo.host == Some(note.host) {
            for rev in parked::foreign_revs(&draft.repo, &draft.frames()) {
                self.drop_frame(draft, rev, DropReason::OtherHost);
            }
        }
        let settled = self.tick(world);
        let note = writing.note(&draft.repo);
        let mut notices = std::mem::take(&mut self.notices);
        let context = self.context(settled);
        let repo = &mut draft.repo;
        fetch::settle_snapshot(context, repo, &note, named, snapshot, &mut notices);
        self.notices = notices;
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
                let arrival = OldArrival {
                    origin: Origin {
                        upstream: waiting.upstream,
                        epoch: None,
                    },
                    seq: waiting.seq,
                };
                self.old_decide(world, draft, arrival, &event, &frame);
            } else if !still_owed {
                self.drop_frame(draft, rev, DropReason::Forged);
            }
        }
    }

    /// Asks the ledger about one event and drafts what it says.
    fn old_decide(
        &mut self,
        world: &World,
        draft: &mut Draft,
        arrival: OldArrival,
        event: &Event,
        frame: &Arc<Frame>,
    ) {
        let OldArrival { origin, seq } = arrival;
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
    fn unpark(&mut self, draft: &mut Draft) {
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
        if self.rules.settings.wanted_keys_only {
            return false;
        }
        let waiting = &draft.parked[&rev];
        let mut records = self.old_records(draft);
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
    fn old_records(&self, draft: &Draft) -> Records {
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
    fn drop_frame(&mut self, draft: &mut Draft, rev: Rev, why: DropReason) {
        if draft.take(rev).is_some() {
            self.counts.dropped += 1;
            self.notices.push(Notice::ParkedDropped { rev, why });
        }
    }
}

/// The kind of log entry for a snapshot that is written over `held`.
fn kind(held: &Held) -> RecordsKind {
    match held {
        Held::Nothing => RecordsKind::Backfill,
        _ => RecordsKind::Repair,
    }
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
