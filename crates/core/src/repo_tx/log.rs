//! Makes the log entries that do not follow from a commit or a snapshot: claims, purges, and a new
//! account state or identity. A new account state or identity is logged before the entries that
//! depend on it.

use super::step::{ClaimEntry, EntryContent, IdentityParts, LogEntry, RepoChange, SourceEvent};
use super::{Arrival, RepoTx};
use crate::ledger::account::{self, is_hidden};
use crate::ledger::notice::DropReason;
use crate::ledger::{Account, Head, Held, HostId, KeyBytes, Now, Repo, RepoId, Time};
use gapless_atp::syntax::{Did, Handle};

/// The part of a row whose changes are logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoggedState {
    account: Account,
    host: Option<HostId>,
    key: Option<KeyBytes>,
    handle: Option<Handle>,
}

impl LoggedState {
    pub(super) fn of(repo: &Repo) -> LoggedState {
        LoggedState {
            account: repo.account,
            host: repo.host,
            key: repo.signing.and_then(|signing| signing.key),
            handle: repo.handle.clone(),
        }
    }

    /// Which parts of the identity differ from those that the log shows.
    fn changed_from(&self, logged: &LoggedState) -> IdentityParts {
        IdentityParts {
            host: self.host != logged.host,
            key: self.key != logged.key,
            handle: self.handle != logged.handle,
        }
    }
}

/// The parts of a log entry beside its operations.
#[derive(Default)]
pub(super) struct LogEntryParts {
    pub source: Option<SourceEvent>,
    pub commit: Vec<u8>,
    pub frame: Option<Vec<u8>>,
}

/// The input for a `#sync` frame, which tells consumers the repository's present head.
#[derive(Debug, Clone, Copy)]
pub struct SyncFrame<'a> {
    pub id: Option<RepoId>,
    pub did: &'a Did,
    pub head: &'a Head,
    /// The signed commit, if the step contains it; otherwise the store has the commit, or has
    /// received it in an earlier change.
    pub commit: Option<&'a [u8]>,
    pub at: Time,
}

impl RepoTx {
    /// Logs a claim of an unproven source about a path. The same step writes the row, which
    /// contains the debt for the claim.
    pub fn claim(&mut self, at: Time, arrival: &Arrival<'_>, claim: ClaimEntry) {
        self.step(Some(LogEntry {
            at,
            source: Some(arrival.source()),
            what: EntryContent::Claim(claim),
            frame: None,
        }));
    }

    /// Begins a purge: from this step on nothing is held or parked of the repository. The store
    /// then deletes the records in parts, and nothing new is written until it has done so.
    pub fn purge(&mut self, now: Now) {
        account::purge_row(now, &mut self.repo);
        self.repo.purging = true;
        // The purge itself tells that the handle is gone.
        self.logged.handle = None;
        self.drop_frames(DropReason::Superseded);
        self.step(Some(entry(now.time, EntryContent::Purge)));
        self.held = self.repo.held;
    }

    /// Ends a purge, because the store has deleted everything. From now on the repository may hold
    /// records again.
    pub fn end_purge(&mut self) {
        self.repo.purging = false;
    }

    /// Marks the next step, so that [`RepoTx::finish`] adds a `#sync` frame of our own to its log
    /// entry.
    pub(super) fn sync_next_step(&mut self) {
        self.sync_steps.push(self.steps.len());
    }

    /// Logs a change of the account's state and of the identity. Right after a move the account's
    /// state is unknown. An unknown state is logged only if it shows a repository that was hidden
    /// before.
    pub(super) fn append_log_entries(&mut self, at: Time) {
        let shown = self.is_shown_again();
        let known = self.repo.account != Account::Unknown;
        if self.repo.account != self.logged.account && (known || shown) {
            let (source, frame) = self.last_account_event.take().unzip();
            let (what, frame) = match self.repo.held {
                Held::Exactly(_) if shown => {
                    self.sync_next_step();
                    (EntryContent::Shown, None)
                }
                _ => (EntryContent::Account, frame),
            };
            self.step(Some(LogEntry {
                source,
                frame,
                ..entry(at, what)
            }));
        }
        let now = LoggedState::of(&self.repo);
        let changed = now.changed_from(&self.logged);
        if changed.host || changed.key || changed.handle {
            self.step(Some(entry(at, EntryContent::Identity(changed))));
        }
        self.logged = now;
    }

    /// Logs the changes before parked frames are applied, so that a consumer learns of a key before
    /// it reads what the key signed, and so that the entries are not lost with a later step that is
    /// refused or lost. The debts stay as they were when the transaction began until the last step.
    pub(super) fn append_log_entries_first(&mut self) {
        let debt = std::mem::replace(&mut self.repo.debt, self.owed);
        self.append_log_entries(self.at);
        self.repo.debt = debt;
    }

    /// Whether the repository was hidden and is shown now, and the log does not say so yet.
    pub(super) fn is_shown_again(&self) -> bool {
        is_hidden(self.logged.account) && !is_hidden(self.repo.account)
    }
}

fn entry(at: Time, what: EntryContent) -> LogEntry {
    LogEntry {
        at,
        source: None,
        what,
        frame: None,
    }
}

/// Adds a `#sync` frame of our own to the log entry of a step that holds a signed state.
pub(super) fn add_sync_frame(
    step: &mut RepoChange,
    id: Option<RepoId>,
    sync_frame: &mut impl FnMut(SyncFrame<'_>) -> Option<Vec<u8>>,
) {
    let (Some(entry), Some(row)) = (&mut step.entry, &step.row) else {
        return;
    };
    let Some(head) = row.head() else {
        return;
    };
    let commit = match &entry.what {
        EntryContent::Records(records) => Some(records.commit.as_slice()),
        _ => None,
    };
    entry.frame = sync_frame(SyncFrame {
        id,
        did: &row.did,
        head,
        commit,
        at: entry.at,
    });
}

#[cfg(test)]
mod tests {
    use gapless_atp::cid::Cid;
    use gapless_atp::syntax::Rev;

    use super::*;
    use crate::ledger::{DebtItem, DebtReason, Tick};

    /// What the log is told of an account that becomes something else.
    fn told(from: Account, to: Account, holds: bool) -> Vec<EntryContent> {
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
        let mut tx = RepoTx::row_only(Some(RepoId(1)), repo);
        tx.repo.account = to;
        let steps = tx.finish(Time(1), |_| Some(vec![7])).steps;
        let entries = steps.into_iter().filter_map(|step| step.entry);
        let entries = entries.inspect(|entry| {
            let shown = entry.what == EntryContent::Shown;
            assert_eq!(entry.frame.is_some(), shown, "{from:?} {to:?}");
        });
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

    #[test]
    fn what_is_owed_stays_owed_in_an_entry_that_comes_before_parked_frames() {
        let did = Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").expect("a DID");
        let mut repo = Repo::new(did);
        let owed = DebtItem {
            at: Tick(1),
            why: DebtReason::FirstSighting,
        };
        repo.debt.resolve = Some(owed);
        let mut tx = RepoTx::row_only(Some(RepoId(1)), repo);
        tx.repo.host = Some(HostId(1));
        tx.repo.debt.resolve = None;
        tx.append_log_entries_first();
        let steps = tx.finish(Time(1), |_| None).steps;
        let rows = steps.into_iter().filter_map(|step| step.row);
        let owed_in: Vec<_> = rows.map(|row| row.debt.resolve).collect();
        assert_eq!(owed_in, [Some(owed), None]);
    }
}
