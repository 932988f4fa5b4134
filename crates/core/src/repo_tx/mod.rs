//! The row transaction: everything that one event, one answer or one chunk of a
//! snapshot means for a repository, as steps for the store.
//!
//! A [`RepoTx`] begins with the row as it was last decided and with what is parked.
//! Every method takes decisions of the [`ledger`](crate::ledger) in the right order;
//! [`RepoTx::finish`] returns the steps. Each step leaves a state that is true by
//! itself, so a crash between two steps loses nothing but work.
//!
//! | module | purpose |
//! |---|---|
//! | [`parked`] | applies, verifies and drops parked frames |
//! | [`answer`] | applies an answer of the directory or of a host |
//! | [`snapshot`] | writes a checked snapshot in chunks |
//! | [`log`] | makes the log entries that do not follow from records |
//! | [`step`] | the steps themselves |
//!
//! What a transaction needs to know beside the row comes from a [`RepoEnv`]: the program
//! implements the trait over a view of the store, the simulator over its world.

pub mod answer;
pub mod log;
pub mod parked;
pub mod snapshot;
pub mod step;

use std::collections::BTreeMap;
use std::ops::Deref;

use gapless_atp::cid::Cid;
use gapless_atp::frame::Action;
use gapless_atp::syntax::Rev;
use gapless_atp::verify::CheckedOp;

use crate::filter::{Filter, Keep};
use crate::ledger::cover::Covers;
use crate::ledger::event::{self, Context, Decision, Event, Origin};
use crate::ledger::notice::DropReason;
use crate::ledger::{
    Debt, DocumentKeys, Held, Notice, Now, Parked, PriorState, Repo, RepoId, Settings, Tick, Time,
};
use log::{LogEntryParts, LoggedState, SyncFrame, add_sync_frame};
use step::{
    EntryContent, LogEntry, ParkedFrame, RecordOp, RecordValue, Records, RecordsKind, RepoChange,
    SourceEvent, Subject,
};

/// Keys as the steps of a transaction leave them; `None`: deleted.
pub type ChangedKeys = BTreeMap<Vec<u8>, Option<Cid>>;

/// What a transaction needs to know beside the row.
pub trait RepoEnv {
    /// Why something cannot be read.
    type Error;

    /// Returns the next tick and the covers, for one decision. The transaction drops the moment
    /// before it reads anything.
    fn moment(&self) -> Moment<impl Deref<Target = Covers> + '_>;

    /// The present time, for a step that needs no decision.
    fn time(&self) -> Time;

    /// The bytes of the parked frames of all repositories.
    fn parked_bytes_in_all(&self) -> u64;

    /// Reads a parked frame with its bytes.
    fn parked_frame(&self, id: RepoId, rev: Rev) -> Result<Option<ParkedFrame>, Self::Error>;

    /// Decodes a parked frame. With `by`, also verifies the frame and returns its event.
    fn open<'f>(
        &'f self,
        frame: &'f ParkedFrame,
        by: Option<JudgeBy<'_>>,
    ) -> Result<ReadFrame<'f>, Unusable>;

    /// The root of the held records with `changed` applied; `None` if they form no tree.
    fn root_with(&self, id: RepoId, changed: &ChangedKeys) -> Result<Option<Cid>, Self::Error>;

    /// The CID of the record that is held at a path.
    fn record(&self, id: RepoId, path: &[u8]) -> Result<Option<Cid>, Self::Error>;
}

/// The time and the tick of a decision, and the covers at that moment.
pub struct Moment<C> {
    pub now: Now,
    pub covers: C,
}

impl<C: Deref<Target = Covers>> Moment<C> {
    /// The inputs of a decision, as the ledger takes them.
    pub fn context<'a>(&'a self, rules: &'a Rules) -> Context<'a> {
        Context {
            now: self.now,
            covers: &self.covers,
            settings: &rules.settings,
        }
    }
}

/// The rules of the ledger and the filter of collections.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    pub settings: Settings,
    pub filter: Filter,
}

/// Where an event was read, and its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    pub origin: Origin,
    pub seq: u64,
    pub bytes: &'a [u8],
}

impl Arrival<'_> {
    fn source(&self) -> SourceEvent {
        SourceEvent {
            upstream: self.origin.upstream,
            seq: self.seq,
        }
    }
}

/// The inputs for verifying a parked frame.
#[derive(Debug, Clone, Copy)]
pub struct JudgeBy<'a> {
    pub repo: &'a Repo,
    pub keys: &'a DocumentKeys,
    /// The tick at which the frame counts as read.
    pub read: Tick,
    pub now: Time,
}

/// A decoded frame. Without verification it has no event.
#[derive(Debug, Clone, Default)]
pub struct ReadFrame<'f> {
    /// `None` if the frame contains nothing new or was not verified.
    pub event: Option<Event>,
    /// The operations that the verdict vouches for.
    pub ops: Vec<CheckedOp<'f>>,
    /// The signed commit; empty if it is not at hand.
    pub commit: &'f [u8],
    pub seq: u64,
}

impl ReadFrame<'_> {
    /// A frame without operations and without a commit.
    pub fn bare(event: Event) -> ReadFrame<'static> {
        ReadFrame {
            event: Some(event),
            ..ReadFrame::default()
        }
    }
}

/// The error for a parked frame that cannot be decoded: the row is damaged, or it never held a
/// frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unusable;

/// A change of one repository in progress: its row, its parked frames, and the steps for the store,
/// in order.
#[derive(Clone)]
pub struct RepoTx {
    pub id: Option<RepoId>,
    pub repo: Repo,
    pub notices: Vec<Notice>,
    pub counts: Counts,
    /// Parked frames, without their bytes.
    parked: BTreeMap<Rev, Parked>,
    /// Whether `parked` contains all parked frames of the repository.
    knows_parked: bool,
    /// Frames that were parked since the last step.
    kept: BTreeMap<Rev, ParkedFrame>,
    /// Parked frames that were applied or dropped since the last step.
    unparked: Vec<Rev>,
    /// What is held after the last step.
    held: Held,
    /// The account state, host and key that the log shows after the last step.
    logged: LoggedState,
    /// What was owed when the transaction began.
    owed: Debt,
    changed: ChangedKeys,
    steps: Vec<RepoChange>,
    /// Steps whose log entry has a `#sync` frame of our own.
    sync_steps: Vec<usize>,
    /// The row after the last step; `None` if the store has none yet.
    stored: Option<Repo>,
    /// The last `#account` event and its frame, for the log.
    last_account_event: Option<(SourceEvent, Vec<u8>)>,
    /// The time of the last decision. Log entries that follow from the decision get this time.
    at: Time,
}

/// Counts of what a transaction did, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub applied: u64,
    pub operations: u64,
    pub parked: u64,
    pub unparked: u64,
    /// Parked frames that were dropped.
    pub dropped: u64,
}

/// The result of a transaction.
#[derive(Debug, Clone)]
pub struct Finished {
    pub steps: Vec<RepoChange>,
    /// The row after the last step.
    pub repo: Repo,
    pub notices: Vec<Notice>,
    pub counts: Counts,
    /// The frames that are parked after the last step; `None` if the transaction does not know all
    /// of them (see [`RepoTx::row_only`]).
    pub parked: Option<BTreeMap<Rev, Parked>>,
}

impl RepoTx {
    /// Begins a transaction with the row as it was last decided, and with all frames of the
    /// repository that are parked in the store.
    pub fn new(id: Option<RepoId>, repo: Repo, parked: BTreeMap<Rev, Parked>) -> RepoTx {
        RepoTx {
            id,
            notices: Vec::new(),
            counts: Counts::default(),
            parked,
            knows_parked: true,
            kept: BTreeMap::new(),
            unparked: Vec::new(),
            held: repo.held,
            logged: LoggedState::of(&repo),
            owed: repo.debt,
            changed: ChangedKeys::new(),
            steps: Vec::new(),
            sync_steps: Vec::new(),
            stored: Some(repo.clone()),
            last_account_event: None,
            at: Time(0),
            repo,
        }
    }

    /// Begins a transaction that changes the row alone.
    pub fn row_only(id: Option<RepoId>, repo: Repo) -> RepoTx {
        RepoTx {
            knows_parked: false,
            ..RepoTx::new(id, repo, BTreeMap::new())
        }
    }

    /// Begins a transaction for a repository that the store does not have.
    pub fn first_seen(repo: Repo) -> RepoTx {
        RepoTx {
            stored: None,
            ..RepoTx::new(None, repo, BTreeMap::new())
        }
    }

    /// The frames that are parked now, without their bytes.
    pub fn parked(&self) -> &BTreeMap<Rev, Parked> {
        &self.parked
    }

    /// Takes one decision, at a tick of its own.
    pub fn decide<E: RepoEnv, T>(
        &mut self,
        env: &E,
        rules: &Rules,
        act: impl FnOnce(Context<'_>, &mut Repo, &mut Vec<Notice>) -> T,
    ) -> T {
        let moment = env.moment();
        self.at = moment.now.time;
        act(moment.context(rules), &mut self.repo, &mut self.notices)
    }

    /// Decides about one event. The caller then calls [`RepoTx::unpark`], because parked frames may
    /// follow.
    pub fn event<E: RepoEnv>(
        &mut self,
        env: &E,
        rules: &Rules,
        arrival: &Arrival<'_>,
        frame: &ReadFrame<'_>,
    ) {
        let Some(event) = &frame.event else {
            return;
        };
        let rev = match event {
            Event::Signed { head, .. } | Event::Unresolved { claimed: head, .. } => head.rev,
            _ => Rev::from_bits(0),
        };
        let totals = event::parked_totals(&self.parked, rev, env.parked_bytes_in_all());
        let decision = self.decide(env, rules, |context, repo, notices| {
            event::decide(context, repo, arrival.origin, event, &totals, notices)
        });
        if matches!(event, Event::Account(_)) {
            self.last_account_event = Some((arrival.source(), arrival.bytes.to_vec()));
        }
        match decision {
            Decision::Pass => {}
            Decision::Apply => {
                let before = match event {
                    Event::Signed { before, .. } => *before,
                    _ => PriorState::Untold,
                };
                self.apply(rules, arrival, before, frame);
            }
            Decision::Park(parked) => self.park(ParkedFrame {
                parked,
                upstream: arrival.origin.upstream,
                epoch: arrival.origin.epoch,
                frame: arrival.bytes.to_vec(),
            }),
        }
    }

    /// Makes a step of the operations of a commit that follows the held state. The row already
    /// names the commit as the head. `before`: what the frame proves about the state before it.
    fn apply(
        &mut self,
        rules: &Rules,
        arrival: &Arrival<'_>,
        before: PriorState,
        frame: &ReadFrame<'_>,
    ) {
        // A frame that proves nothing may carry operations that the owner did not sign.
        let ops = match before {
            PriorState::Untold => &[],
            _ => frame.ops.as_slice(),
        };
        // Under another filter, records may still be held that are not wanted any more.
        let proved =
            matches!(before, PriorState::Root(_)) && self.repo.filter == rules.settings.filter;
        let ops = record_ops(&rules.filter, ops, proved);
        self.counts.applied += 1;
        self.counts.operations += ops.len() as u64;
        let words = LogEntryParts {
            source: Some(arrival.source()),
            commit: frame.commit.to_vec(),
            frame: Some(arrival.bytes.to_vec()),
        };
        self.write(self.at, RecordsKind::Live, ops, words);
    }

    /// Makes a step of the row and the operations that led to it, with a log entry for them.
    fn write(&mut self, at: Time, kind: RecordsKind, ops: Vec<RecordOp>, words: LogEntryParts) {
        for op in &ops {
            let cid = op.put.as_ref().map(|put| put.cid);
            self.changed.insert(op.path.clone(), cid);
        }
        let records = Records {
            kind,
            before: self.held,
            ops,
            commit: words.commit,
        };
        self.step(Some(LogEntry {
            at,
            source: words.source,
            what: EntryContent::Records(records),
            frame: words.frame,
        }));
        self.held = self.repo.held;
    }

    /// Makes a step of the present row and of the frames that were parked and unparked since the
    /// last step.
    fn step(&mut self, entry: Option<LogEntry>) {
        let subject = match self.id {
            Some(id) => Subject::Id(id),
            None => Subject::Did(self.repo.did.clone()),
        };
        self.stored = Some(self.repo.clone());
        self.steps.push(RepoChange {
            subject,
            row: Some(self.repo.clone()),
            entry,
            park: std::mem::take(&mut self.kept).into_values().collect(),
            unpark: std::mem::take(&mut self.unparked),
        });
    }

    /// Parks a frame, and drops the frame of the same rev that is already parked, if there is one.
    fn park(&mut self, frame: ParkedFrame) {
        let rev = frame.parked.head.rev;
        self.drop_frame(rev, DropReason::SameRev);
        self.counts.parked += 1;
        // The new frame replaces the stored one of this rev, so the step must not delete it.
        self.unparked.retain(|other| *other != rev);
        self.parked.insert(rev, frame.parked);
        self.kept.insert(rev, frame);
    }

    /// Drops a parked frame, if there is one of this rev.
    pub fn drop_frame(&mut self, rev: Rev, why: DropReason) {
        if self.remove(rev) {
            self.counts.dropped += 1;
            self.notices.push(Notice::ParkedDropped { rev, why });
        }
    }

    /// Drops every parked frame.
    pub fn drop_frames(&mut self, why: DropReason) {
        let revs: Vec<Rev> = self.parked.keys().copied().collect();
        for rev in revs {
            self.drop_frame(rev, why);
        }
    }

    /// Removes a frame from the parked ones. Returns whether there was one of this rev.
    fn remove(&mut self, rev: Rev) -> bool {
        let there = self.parked.remove(&rev).is_some();
        if there {
            // The store may have a frame of this rev too, which the removed one had replaced.
            self.kept.remove(&rev);
            self.unparked.push(rev);
        }
        there
    }

    /// Ends the transaction and returns the steps, in order. `sync_frame` encodes a `#sync` frame
    /// for the log, or returns `None` if the signed commit is not at hand. Without the frame,
    /// consumers learn of the state when they read the log entry.
    pub fn finish(
        mut self,
        at: Time,
        mut sync_frame: impl FnMut(SyncFrame<'_>) -> Option<Vec<u8>>,
    ) -> Finished {
        self.append_log_entries(at);
        let row_is_new = self.stored.as_ref() != Some(&self.repo);
        if row_is_new || !self.kept.is_empty() || !self.unparked.is_empty() {
            self.step(None);
        }
        for index in std::mem::take(&mut self.sync_steps) {
            if let Some(step) = self.steps.get_mut(index) {
                add_sync_frame(step, self.id, &mut sync_frame);
            }
        }
        Finished {
            steps: self.steps,
            repo: self.repo,
            notices: self.notices,
            counts: self.counts,
            parked: self.knows_parked.then_some(self.parked),
        }
    }
}

/// Converts operations for the store and omits those that the filter does not keep. `proved`: the
/// tree shows that nothing was held at the path of a create.
fn record_ops(filter: &Filter, ops: &[CheckedOp<'_>], proved: bool) -> Vec<RecordOp> {
    let wanted = ops.iter().filter_map(|op| {
        let path = op.path.as_bytes();
        let keep = filter.keep(path);
        if keep == Keep::Nothing {
            return None;
        }
        let put = op.cid.map(|cid| RecordValue {
            cid,
            bytes: match keep {
                Keep::Record => op.record.map(<[u8]>::to_vec),
                Keep::Key | Keep::Nothing => None,
            },
        });
        Some(RecordOp {
            path: path.to_vec(),
            put,
            fresh: proved && op.action == Action::Create,
        })
    });
    wanted.collect()
}
