//! Fetched repositories: every check first, then one batch, or several with the
//! row saying so until the last.

use gapless_core::ledger::fetch::{self, Note, Snapshot, Take};
use gapless_core::ledger::notice::Dropped;
use gapless_core::ledger::parked;
use gapless_core::ledger::{Held, Key, Named, RepoId};

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
    pub named: Named,
    pub snapshot: Snapshot,
    pub rest: Vec<Op>,
}

/// More changes than this are written in several batches. In the program it is a
/// thousand.
pub const SMALL: usize = 3;

impl Mirror {
    /// Who signed it?
    fn verify(&self, world: &World, id: RepoId, commit: &Commit) -> Option<Snapshot> {
        let key = commit.key?;
        let present = self.keys.get(&id).is_some_and(|known| known.key == key);
        let previous = world.held_key(commit.owner, key);
        let key = match (present, previous) {
            (true, _) => Key::Present,
            (false, true) => Key::Previous,
            (false, false) => return None,
        };
        Some(Snapshot {
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
        named: Named,
        adopt: bool,
        served: &Served,
    ) -> Step {
        let id = job.repo;
        let Some(snapshot) = self.verify(world, id, &served.commit) else {
            return self.fail(world, job);
        };
        if adopt {
            return self.adopt(world, id, &note, &named, &snapshot, served);
        }
        let busy = self
            .jobs
            .iter()
            .any(|other| matches!(&other.step, Step::Write(writing) if writing.repo == id));
        if busy {
            return self.fail(world, job);
        }
        let now = self.tick(world);
        let mut draft = self.draft(id);
        let mut notices = std::mem::take(&mut self.notices);
        let context = self.context(now);
        let take = fetch::consider(context, &mut draft.repo, &note, &snapshot, &mut notices);
        self.notices = notices;
        if take == Take::Discard {
            self.put(id, draft.repo);
            return Step::Done;
        }
        let mut rest = difference(&self.book.records(id), &served.records);
        if rest.len() <= SMALL {
            let writing = Writing {
                repo: id,
                note,
                named,
                snapshot,
                rest,
            };
            return self.finish(world, draft, &writing);
        }
        fetch::begin(now, &mut draft.repo, &snapshot);
        let first: Vec<Op> = rest.drain(..SMALL).collect();
        draft.write(false, &first);
        let mut batch = self.batch();
        draft.into_batch(world.now, &mut batch);
        self.commit(batch);
        Step::Write(Writing {
            repo: id,
            note,
            named,
            snapshot,
            rest,
        })
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
        draft.write(false, &ops);
        let mut batch = self.batch();
        draft.into_batch(world.now, &mut batch);
        self.commit(batch);
        Step::Write(writing)
    }

    /// The last batch: the state is exact, parked frames follow, and then it is
    /// said what that is worth.
    fn finish(&mut self, world: &World, mut draft: Draft, writing: &Writing) -> Step {
        let now = self.tick(world);
        let Writing {
            note,
            named,
            snapshot,
            ..
        } = writing;
        fetch::finish(now, &mut draft.repo, note, snapshot);
        draft.write(false, &writing.rest);
        self.unpark(&mut draft);
        if draft.repo.host == Some(note.host) {
            for rev in parked::foreign(&draft.repo, &draft.frames()) {
                self.drop_frame(&mut draft, rev, Dropped::OtherHost);
            }
        }
        let settled = self.tick(world);
        let mut notices = std::mem::take(&mut self.notices);
        let context = self.context(settled);
        fetch::settle(
            context,
            &mut draft.repo,
            note,
            named,
            snapshot,
            &mut notices,
        );
        self.notices = notices;
        let mut batch = self.batch();
        draft.into_batch(world.now, &mut batch);
        self.commit(batch);
        Step::Done
    }
}
