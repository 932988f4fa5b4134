//! Fetched repositories: every check first, then one batch, or several with the
//! row saying so until the last.

use gapless_core::ledger::fetch::{CheckedHead, Note};
use gapless_core::ledger::{Held, NamedHead, RepoId, SignerKey};
use gapless_core::repo_tx::snapshot::{ChunkResult, FetchJob, SnapshotChunk};
use gapless_store::change::{RecordOp, RecordValue};

use super::Mirror;
use super::job::{Job, Step};
use crate::world::commit::{bytes_of, difference};
use crate::world::pds::Served;
use crate::world::{Commit, Op, World};

/// A snapshot on its way into the store.
#[derive(Debug, Clone)]
pub struct Writing {
    pub repo: RepoId,
    pub job: FetchJob,
    /// What was held when the snapshot was laid over it.
    pub over: Held,
    pub rest: Vec<Op>,
    /// The first chunk is written.
    pub begun: bool,
}

/// How a state came: what it was fetched for, and as what.
#[derive(Debug, Clone, Copy)]
pub struct Fetched {
    pub note: Note,
    pub named: NamedHead,
    pub adopt: bool,
    pub difference: bool,
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

    /// Lays a whole state, from a file or from what is held and a difference, over what
    /// is held.
    pub fn consider(
        &mut self,
        world: &World,
        job: &Job,
        fetched: Fetched,
        served: &Served,
    ) -> Step {
        let id = job.repo;
        let Some(checked) = self.verify(world, id, &served.commit) else {
            return self.fail(world, job);
        };
        let busy = self
            .jobs
            .iter()
            .any(|other| matches!(&other.step, Step::Write(writing) if writing.repo == id));
        if busy {
            return self.fail(world, job);
        }
        let job = FetchJob {
            note: fetched.note,
            named: fetched.named,
            adopt: fetched.adopt,
            imported: false,
            difference: fetched.difference,
            checked,
        };
        let writing = Writing {
            repo: id,
            job,
            over: self.book.repo_ref(id).held,
            rest: difference(&self.book.records(id), &served.records),
            begun: false,
        };
        self.write_on(world, writing)
    }

    /// Writes the next chunk of a snapshot.
    pub fn write_on(&mut self, world: &World, mut writing: Writing) -> Step {
        let begins = !std::mem::replace(&mut writing.begun, true);
        let last = writing.rest.len() <= SMALL;
        let ops = writing.rest.drain(..writing.rest.len().min(SMALL));
        let ops = ops.map(record_op).collect();
        let (job, over) = (writing.job, writing.over);
        let chunk = SnapshotChunk {
            job: &job,
            over,
            ops,
            commit: &[],
            begins,
            last,
        };
        let mut tx = self.tx(writing.repo);
        let result = self.decide(world, &mut tx, |tx, env, rules| {
            tx.write_chunk(env, rules, chunk)
        });
        self.submit(world, tx);
        match result {
            ChunkResult::Written => {}
            ChunkResult::Moved | ChunkResult::Discarded => return Step::Done,
            ChunkResult::NeedsWhole => {
                return Step::Fetch {
                    note: job.note,
                    named: job.named,
                    adopt: false,
                    whole: true,
                };
            }
        }
        self.counts.adopted += u64::from(begins && job.adopt);
        match last {
            true => Step::Done,
            false => Step::Write(writing),
        }
    }
}

fn record_op(op: Op) -> RecordOp {
    RecordOp {
        path: op.path.into_bytes(),
        put: op.after.map(|cid| RecordValue {
            cid,
            bytes: bytes_of(&cid).map(<[u8]>::to_vec),
        }),
        fresh: false,
    }
}
