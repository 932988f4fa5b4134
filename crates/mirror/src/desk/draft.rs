//! A repository in the middle of a change: its row, the frames that wait for it,
//! and the steps that will be handed to the store, in order.
//!
//! Each step leaves a state that is true by itself, so that a crash between two
//! of them loses nothing but work.

use std::collections::BTreeMap;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::account::is_hidden;
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::{
    Account, Debt, Head, Held, HostId, KeyBytes, Notice, Now, Parked, Repo, RepoId, Time,
};
use gapless_store::change::{
    Change, EntryContent, LogEntry, RecordOp, Records, RecordsKind, RepoChange, Subject,
};
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use gapless_store::table::claimed::Claim;
use gapless_store::table::log::SourceEvent;
use gapless_store::table::parked::ParkedFrame;

use crate::desk::decide::Arrival;
use crate::log::frames;

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
    pub(crate) kept: BTreeMap<Rev, ParkedFrame>,
    /// The state after the last step.
    held: Held,
    before: Found,
    owed: Debt,
    /// Keys as the steps so far leave them.
    pub(crate) changed: BTreeMap<Vec<u8>, Option<Cid>>,
    steps: Vec<RepoChange>,
    unpark: Vec<Rev>,
    row_at_last_step: Option<Repo>,
    /// The event that told of an account, for the log.
    pub(crate) told_by: Option<(SourceEvent, Vec<u8>)>,
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
        self.step(Some(LogEntry {
            at,
            source: words.source,
            what: EntryContent::Records(records),
            frame: words.frame,
        }));
        self.held = self.repo.held;
    }

    /// An unproven source says this of a path: a step of its own in the log. The row
    /// says what is owed for it.
    pub fn claim(&mut self, at: Time, arrival: &Arrival<'_>, path: Vec<u8>, claim: Claim) {
        self.step(Some(LogEntry {
            at,
            source: Some(SourceEvent {
                upstream: arrival.origin.upstream,
                seq: arrival.seq,
            }),
            what: EntryContent::Claims(vec![(path, claim)]),
            frame: None,
        }));
    }

    /// One step: the row as it is now, with what is parked and unparked since the
    /// last one.
    pub fn step(&mut self, entry: Option<LogEntry>) {
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
    pub fn purge(&mut self, entry: LogEntry) {
        self.step(Some(entry));
        self.held = self.repo.held;
    }

    pub(crate) fn keep(&mut self, frame: ParkedFrame) {
        let rev = frame.parked.head.rev;
        self.counts.parked += 1;
        self.unpark.retain(|other| *other != rev);
        self.parked.insert(rev, frame.parked);
        self.kept.insert(rev, frame);
    }

    /// Takes a frame out of those that wait.
    pub(crate) fn take(
        &mut self,
        view: &ReadView,
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

    pub fn drop_frame(&mut self, rev: Rev, why: DropReason) {
        if self.parked.remove(&rev).is_some() {
            self.kept.remove(&rev);
            self.unpark.push(rev);
            self.notices.push(Notice::ParkedDropped { rev, why });
        }
    }

    /// The changes that this has come to, in order, and the row after them.
    pub fn into_changes(mut self, now: Now, view: impl Fn() -> ReadView) -> (Vec<Change>, Repo) {
        self.tell_the_log(now.time, view);
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

    /// Whoever reads the log learns of accounts and identities there. A new host has not
    /// said yet what the account is; but what an old one hid is hidden no more.
    fn tell_the_log(&mut self, at: Time, view: impl Fn() -> ReadView) {
        let entry = |what| LogEntry {
            at,
            source: None,
            what,
            frame: None,
        };
        let shown = self.is_shown_again();
        let known = self.repo.account != Account::Unknown;
        if self.repo.account != self.before.account && (known || shown) {
            let (source, frame) = self.told_by.take().unzip();
            let (what, frame) = match self.repo.held {
                Held::Exactly(head) if shown => {
                    (EntryContent::Shown, self.sync(&head, at, &view()))
                }
                _ => (EntryContent::Account, frame),
            };
            self.step(Some(LogEntry {
                source,
                frame,
                ..entry(what)
            }));
        }
        let found = Found::of(&self.repo);
        if found.host != self.before.host || found.key != self.before.key {
            self.step(Some(entry(EntryContent::Identity)));
        }
        self.before = found;
    }

    /// Whether it was hidden, and the log does not say yet that it is so no more.
    pub(crate) fn is_shown_again(&self) -> bool {
        is_hidden(self.before.account) && !is_hidden(self.repo.account)
    }

    /// What whoever follows us is told of where it is; none if its signed commit is still
    /// on its way. Then they are told of it when they come to the row.
    fn sync(&self, head: &Head, at: Time, view: &ReadView) -> Option<Vec<u8>> {
        let id = self.id?;
        let is_head = |stored: Repo| stored.head() == Some(head);
        let block = match view.repo(id) {
            Ok(stored) => match stored.is_some_and(is_head) {
                true => view.signed_commit(id),
                false => Ok(None),
            },
            Err(error) => Err(error),
        };
        match block {
            Ok(block) => Some(frames::sync(&self.repo.did, head, &block?, at)),
            Err(error) => {
                tracing::warn!(did = %self.repo.did, %error, "its signed commit cannot be read");
                None
            }
        }
    }

    /// Likewise, before frames are judged by what is new: who reads the log learns of
    /// a key before what it signed, and a step that is refused or lost after this one
    /// does not take the word with it. What was owed stays so until all is done.
    pub(crate) fn tell_the_log_first(&mut self, at: Time, view: &ReadView) {
        let debt = std::mem::replace(&mut self.repo.debt, self.owed);
        self.tell_the_log(at, || view.clone());
        self.repo.debt = debt;
    }
}

/// What the log keeps of a step beside its records.
#[derive(Default)]
pub struct Words {
    pub source: Option<SourceEvent>,
    pub commit: Vec<u8>,
    pub frame: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use gapless_atp::syntax::Did;
    use gapless_core::ledger::Tick;
    use gapless_store::Store;

    use super::*;

    /// What the log is told of an account that becomes something else.
    fn told(from: Account, to: Account, holds: bool) -> Vec<EntryContent> {
        let store = Store::memory().expect("it opens");
        let did = Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").expect("a DID");
        let mut repo = Repo::new(did);
        repo.account = from;
        if holds {
            repo.held = Held::Exactly(Head {
                rev: Rev::from_micros(1_700_000_000_000_000, 0),
                data: Cid::dag_cbor(b"data"),
                commit: Cid::dag_cbor(b"commit"),
            });
        }
        let mut draft = Draft::rows_only(Some(RepoId(1)), repo);
        draft.repo.account = to;
        let now = Now {
            tick: Tick(1),
            time: Time(1),
        };
        let (changes, _) = draft.into_changes(now, || store.view());
        let steps = changes.into_iter().filter_map(|change| change.repo);
        let entries = steps.filter_map(|step| step.entry);
        entries.map(|entry| entry.what).collect()
    }

    #[test]
    fn what_is_shown_again_is_told_with_its_place_and_nothing_else_is() {
        use Account::{Active, Deactivated, Takendown, Unknown};
        for (from, to, holds) in [(Deactivated, Active, true), (Takendown, Unknown, true)] {
            let told = told(from, to, holds);
            assert!(
                matches!(told[..], [EntryContent::Shown]),
                "{from:?} {to:?} {told:?}"
            );
        }
        for (from, to, holds) in [
            (Unknown, Active, true),
            (Unknown, Deactivated, true),
            (Active, Takendown, true),
            (Takendown, Deactivated, true),
            (Deactivated, Active, false),
            (Deactivated, Unknown, false),
        ] {
            let told = told(from, to, holds);
            assert!(
                matches!(told[..], [EntryContent::Account]),
                "{from:?} {to:?} {told:?}"
            );
        }
        let moved = told(Active, Unknown, true);
        assert!(moved.is_empty(), "nobody has hidden it: {moved:?}");
    }
}
