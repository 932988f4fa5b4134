//! A repository in the middle of a change: its row, the frames that wait for it,
//! and the steps that will be handed to the store, in order.
//!
//! Each step leaves a state that is true by itself, so that a crash between two
//! of them loses nothing but work.

use std::collections::BTreeMap;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::notice::Dropped;
use gapless_core::ledger::{
    Account, Debt, Held, HostId, KeyBytes, Notice, Now, Parked, Repo, RepoId, Time,
};
use gapless_store::change::{
    Change, Entry, RecordOp, Records, RecordsKind, RepoChange, Subject, What,
};
use gapless_store::contents::Contents;
use gapless_store::error::StoreError;
use gapless_store::table::claimed::Claim;
use gapless_store::table::log::Source;
use gapless_store::table::parked::ParkedFrame;

use super::decide::Arrival;

/// What was there when the draft was begun, as far as the log tells of it.
struct Found {
    account: Account,
    host: Option<HostId>,
    key: Option<KeyBytes>,
}

impl Found {
    fn of(repo: &Repo) -> Found {
        Found {
            account: repo.account,
            host: repo.host,
            key: repo.signing.and_then(|signing| signing.key),
        }
    }
}

pub struct Draft {
    pub id: Option<RepoId>,
    pub repo: Repo,
    /// Frames that wait, without their bytes.
    pub parked: BTreeMap<Rev, Parked>,
    /// Whether that is all of them.
    pub knows_parked: bool,
    /// Those of them that were parked in this draft.
    pub(super) kept: BTreeMap<Rev, ParkedFrame>,
    /// The state after the last step.
    held: Held,
    before: Found,
    owed: Debt,
    /// Keys as the steps so far leave them.
    pub(super) changed: BTreeMap<Vec<u8>, Option<Cid>>,
    steps: Vec<RepoChange>,
    unpark: Vec<Rev>,
    row_at_last_step: Option<Repo>,
    /// The event that told of an account, for the log.
    pub(super) told_by: Option<(Source, Vec<u8>)>,
    pub notices: Vec<Notice>,
    pub counts: Counts,
}

/// What a draft did, for the figures.
#[derive(Default)]
pub struct Counts {
    pub applied: u64,
    pub operations: u64,
    pub parked: u64,
    pub unparked: u64,
}

impl Draft {
    /// Begins with the row as it was last decided. `parked` is what waits of it in
    /// the store, and must be known whenever there is any.
    pub fn new(id: Option<RepoId>, repo: Repo, parked: BTreeMap<Rev, Parked>) -> Draft {
        Draft {
            id,
            held: repo.held,
            before: Found::of(&repo),
            owed: repo.debt,
            parked,
            knows_parked: true,
            kept: BTreeMap::new(),
            changed: BTreeMap::new(),
            steps: Vec::new(),
            unpark: Vec::new(),
            row_at_last_step: Some(repo.clone()),
            told_by: None,
            repo,
            notices: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Likewise, for a change that concerns the row alone.
    pub fn rows_only(id: Option<RepoId>, repo: Repo) -> Draft {
        let mut draft = Draft::new(id, repo, BTreeMap::new());
        draft.knows_parked = false;
        draft
    }

    /// A repository that nobody has heard of before.
    pub fn unheard(repo: Repo) -> Draft {
        let mut draft = Draft::new(None, repo, BTreeMap::new());
        draft.row_at_last_step = None;
        draft
    }

    /// The row has moved by these operations: a step of its own in the log.
    pub fn write(&mut self, at: Time, kind: RecordsKind, ops: Vec<RecordOp>, words: Words) {
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
        self.step(Some(Entry {
            at,
            source: words.source,
            what: What::Records(records),
            frame: words.frame,
        }));
        self.held = self.repo.held;
    }

    /// An unproven source says this of a path: a step of its own in the log. The row
    /// says what is owed for it.
    pub fn claim(&mut self, at: Time, arrival: &Arrival<'_>, path: Vec<u8>, claim: Claim) {
        self.step(Some(Entry {
            at,
            source: Some(Source {
                upstream: arrival.origin.upstream,
                seq: arrival.seq,
            }),
            what: What::Claims(vec![(path, claim)]),
            frame: None,
        }));
    }

    /// One step: the row as it is now, with what is parked and unparked since the
    /// last one.
    pub fn step(&mut self, entry: Option<Entry>) {
        let subject = match self.id {
            Some(id) => Subject::Id(id),
            None => Subject::Did(self.repo.did.clone()),
        };
        self.row_at_last_step = Some(self.repo.clone());
        self.steps.push(RepoChange {
            subject,
            row: Some(self.repo.clone()),
            entry,
            park: self.kept.values().cloned().collect(),
            unpark: std::mem::take(&mut self.unpark),
        });
        self.kept.clear();
    }

    /// Everything that was held is gone.
    pub fn purge(&mut self, entry: Entry) {
        self.step(Some(entry));
        self.held = self.repo.held;
    }

    pub(super) fn keep(&mut self, frame: ParkedFrame) {
        let rev = frame.parked.head.rev;
        self.counts.parked += 1;
        self.unpark.retain(|other| *other != rev);
        self.parked.insert(rev, frame.parked);
        self.kept.insert(rev, frame);
    }

    /// Takes a frame out of those that wait.
    pub(super) fn take(
        &mut self,
        view: &Contents,
        rev: Rev,
    ) -> Result<Option<ParkedFrame>, StoreError> {
        if self.parked.remove(&rev).is_none() {
            return Ok(None);
        }
        if let Some(frame) = self.kept.remove(&rev) {
            // It may have taken the place of one that lies in the store.
            self.unpark.push(rev);
            return Ok(Some(frame));
        }
        let frame = match self.id {
            None => None,
            Some(id) => view.parked_frame(id, rev)?,
        };
        self.unpark.push(rev);
        Ok(frame)
    }

    pub fn drop_frame(&mut self, rev: Rev, why: Dropped) {
        if self.parked.remove(&rev).is_some() {
            self.kept.remove(&rev);
            self.unpark.push(rev);
            self.notices.push(Notice::ParkedDropped { rev, why });
        }
    }

    /// The changes that this has come to, in order, and the row after them.
    pub fn into_changes(mut self, now: Now) -> (Vec<Change>, Repo) {
        self.tell_the_log(now.time);
        let row_is_new = self.row_at_last_step.as_ref() != Some(&self.repo);
        if row_is_new || !self.kept.is_empty() || !self.unpark.is_empty() {
            self.step(None);
        }
        let changes = self.steps.into_iter().map(|repo| Change {
            tick: now.tick,
            repo: Some(repo),
            ..Change::default()
        });
        (changes.collect(), self.repo)
    }

    /// Whoever reads the log learns of accounts and identities there.
    fn tell_the_log(&mut self, at: Time) {
        let entry = |what| Entry {
            at,
            source: None,
            what,
            frame: None,
        };
        if self.repo.account != self.before.account && self.repo.account != Account::Unknown {
            let (source, frame) = self.told_by.take().unzip();
            self.step(Some(Entry {
                source,
                frame,
                ..entry(What::Account)
            }));
        }
        let found = Found::of(&self.repo);
        if found.host != self.before.host || found.key != self.before.key {
            self.step(Some(entry(What::Identity)));
        }
        self.before = found;
    }

    /// Likewise, before frames are judged by what is new: who reads the log learns of
    /// a key before what it signed, and a step that is refused or lost after this one
    /// does not take the word with it. What was owed stays so until all is done.
    pub(super) fn tell_the_log_first(&mut self, at: Time) {
        let debt = std::mem::replace(&mut self.repo.debt, self.owed);
        self.tell_the_log(at);
        self.repo.debt = debt;
    }
}

/// What the log keeps of a step beside its records.
#[derive(Default)]
pub struct Words {
    pub source: Option<Source>,
    pub commit: Vec<u8>,
    pub frame: Option<Vec<u8>>,
}
