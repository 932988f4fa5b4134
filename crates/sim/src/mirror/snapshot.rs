//! Fetched repositories: every check first, then one batch, or several with the
//! row saying so until the last.

use gapless_core::ledger::debt;
use gapless_core::ledger::fetch::{self, CheckedHead, Note, SnapshotDecision};
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::parked;
use gapless_core::ledger::rollback;
use gapless_core::ledger::{Held, NamedHead, Now, Repo, RepoId, SignerKey};
use gapless_store::change::RecordsKind;

use super::Mirror;
use super::ingest::Draft;
use super::job::{Job, Step};
use crate::world::commit::difference;
use crate::world::pds::Served;
use crate::world::{Commit, Op, World};

/// A snapshot on its way into the store.
#[derive(Debug, Clone)]
pub struct Writing {
    pub repo: RepoId,
    pub note: Note,
    pub named: NamedHead,
    /// Whether the mirror takes over an older state of the host.
    pub adopt: bool,
    pub snapshot: CheckedHead,
    pub rest: Vec<Op>,
}

impl Writing {
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

/// More changes than this are written in several batches. In the program it is a
/// thousand.
pub const SMALL: usize = 3;

impl Mirror {
    /// Who signed it?
    fn verify(&self, world: &World, id: RepoId, commit: &Commit) -> Option<CheckedHead> {
        let key = commit.key?;
        let present = self.keys.get(&id).is_some_and(|known| known.key == key);
        let previous = world.held_key(commit.owner, key);
        let key = match (present, previous) {
            (true, _) => SignerKey::Present,
            (false, true) => SignerKey::Previous,
            (false, false) => return None,
        };
        Some(CheckedHead {
            head: commit.head,
            key,
        })
    }

    /// A whole state is here, from a file or from what is held and a difference.
    pub fn consider(
        &mut self,
        world: &World,
        job: &Job,
        note: Note,
        named: NamedHead,
        adopt: bool,
        served: &Served,
    ) -> Step {
        let id = job.repo;
        let Some(snapshot) = self.verify(world, id, &served.commit) else {
            return self.fail(world, job);
        };
        let busy = self
            .jobs
            .iter()
            .any(|other| matches!(&other.step, Step::Write(writing) if writing.repo == id));
        if busy {
            return self.fail(world, job);
        }
        let mut draft = self.draft(id);
        if !self.is_taken(world, &mut draft.repo, &note, &named, adopt, &snapshot) {
            self.submit(world, draft);
            return Step::Done;
        }
        let rest = difference(&self.book.records(id), &served.records);
        let writing = Writing {
            repo: id,
            note,
            named,
            adopt,
            snapshot,
            rest,
        };
        if writing.rest.len() > SMALL {
            self.begin(world, draft, writing)
        } else if adopt {
            self.adopt(world, draft, &writing)
        } else {
            self.finish(world, draft, &writing)
        }
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
    fn take_over(&mut self, now: Now, repo: &mut Repo, writing: &Writing) {
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

    /// Writes a small adoption in one batch.
    fn adopt(&mut self, world: &World, mut draft: Draft, writing: &Writing) -> Step {
        let now = self.tick(world);
        self.take_over(now, &mut draft.repo, writing);
        draft.write(RecordsKind::Repair, None, &writing.rest);
        self.unpark(&mut draft);
        self.submit(world, draft);
        Step::Done
    }

    /// Writes the first of several batches.
    fn begin(&mut self, world: &World, mut draft: Draft, mut writing: Writing) -> Step {
        let now = self.tick(world);
        let kind = kind(&draft.repo.held);
        if writing.adopt {
            self.take_over(now, &mut draft.repo, &writing);
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
        self.submit(world, draft);
        Step::Write(writing)
    }

    /// Writes the next batch of a large snapshot.
    pub fn write_on(&mut self, world: &World, mut writing: Writing) -> Step {
        let mut draft = self.draft(writing.repo);
        let ours = matches!(
            draft.repo.held,
            Held::Applying { target, .. } if target == writing.snapshot.head
        );
        if !ours {
            // Purged or taken over meanwhile.
            return Step::Done;
        }
        if writing.rest.len() <= SMALL {
            return self.finish(world, draft, &writing);
        }
        let ops: Vec<Op> = writing.rest.drain(..SMALL).collect();
        draft.write(RecordsKind::Repair, None, &ops);
        self.submit(world, draft);
        Step::Write(writing)
    }

    /// The last batch, or the only one: the state is exact, parked frames follow,
    /// and then it is said what that is worth.
    fn finish(&mut self, world: &World, mut draft: Draft, writing: &Writing) -> Step {
        let now = self.tick(world);
        let Writing {
            named, snapshot, ..
        } = writing;
        let kind = kind(&draft.repo.held);
        let note = writing.note(&draft.repo);
        fetch::finish_snapshot(now, &mut draft.repo, &note, snapshot);
        draft.write(kind, None, &writing.rest);
        self.unpark(&mut draft);
        if draft.repo.host == Some(note.host) {
            for rev in parked::foreign_revs(&draft.repo, &draft.frames()) {
                self.drop_frame(&mut draft, rev, DropReason::OtherHost);
            }
        }
        let settled = self.tick(world);
        let note = writing.note(&draft.repo);
        let mut notices = std::mem::take(&mut self.notices);
        let context = self.context(settled);
        let repo = &mut draft.repo;
        fetch::settle_snapshot(context, repo, &note, named, snapshot, &mut notices);
        self.notices = notices;
        self.submit(world, draft);
        Step::Done
    }
}

/// The kind of log entry for a snapshot that is written over `held`.
fn kind(held: &Held) -> RecordsKind {
    match held {
        Held::Nothing => RecordsKind::Backfill,
        _ => RecordsKind::Repair,
    }
}
