//! Writes fetched repositories: every check comes first, then one batch, or several. Until the last
//! of several batches, the row says that the held keys form no state.

use gapless_core::filter::{Filter, Keep};
use gapless_core::ledger::fetch::{CheckedHead, Note};
use gapless_core::ledger::{Held, NamedHead, RepoId, SignerKey};
use gapless_core::repo_tx::snapshot::{ChunkResult, FetchJob, SnapshotChunk};
use gapless_store::change::{RecordOp, RecordValue};

use super::SimMirror;
use super::job::{Job, JobStep};
use crate::world::commit::{bytes_of, difference};
use crate::world::pds::Served;
use crate::world::{Commit, Op, Records, World};

/// A snapshot on its way into the store.
#[derive(Debug, Clone)]
pub struct Writing {
    pub repo: RepoId,
    pub job: FetchJob,
    /// The state that was held when the operations were computed.
    pub over: Held,
    pub rest: Vec<Op>,
    /// Whether the first chunk is written.
    pub begun: bool,
}

/// What a state was fetched for, and how.
#[derive(Debug, Clone, Copy)]
pub struct Fetched {
    pub note: Note,
    pub named: NamedHead,
    pub adopt: bool,
    pub difference: bool,
}

/// More changes than this are written in several batches. In the program it is a
/// thousand.
pub(crate) const SMALL: usize = 3;

impl SimMirror {
    /// The head with the key that signed it; `None` if no key of the owner did.
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

    /// Checks a whole state, which is a file or the held state with a difference applied, and
    /// begins to write it.
    pub fn consider(
        &mut self,
        world: &World,
        job: &Job,
        fetched: Fetched,
        served: &Served,
    ) -> JobStep {
        let id = job.repo;
        let Some(checked) = self.verify(world, id, &served.commit) else {
            return self.fail(world, job);
        };
        let busy = self
            .jobs
            .iter()
            .any(|other| matches!(&other.step, JobStep::Write(writing) if writing.repo == id));
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
        let writing = self.lay_over(id, job, &served.records);
        self.write_on(world, writing)
    }

    /// Computes the operations after which exactly these records are held, with the bytes that the
    /// filter wants.
    pub fn lay_over(&self, id: RepoId, job: FetchJob, records: &Records) -> Writing {
        let repo = self.book.repo_ref(id);
        let mut rest = difference(&self.book.records(id), records);
        let for_contents = repo.debt.fetch.map(|owed| owed.why.concerns_contents());
        if repo.filter != job.note.filter || for_contents == Some(true) {
            // An equal key is not enough, because its bytes may be missing.
            rest.extend(self.lacks_bytes(id).filter(|op| {
                let served = records.get(&op.path);
                served.is_some() && served == op.after.as_ref()
            }));
        }
        Writing {
            repo: id,
            job,
            over: repo.held,
            rest,
            begun: false,
        }
    }

    /// Records that the filter wants and that are held without their bytes.
    pub fn lacks_bytes(&self, id: RepoId) -> impl Iterator<Item = Op> {
        let records = self.book.view().records(id);
        let records = records.map(|record| record.expect("the double does not fail"));
        let lacking = records.filter(|record| {
            let wanted = self.rules.filter.keep(record.path()) == Keep::Record;
            wanted && record.bytes().is_none()
        });
        lacking.map(|record| Op {
            path: String::from_utf8(record.path().to_vec()).expect("our paths are text"),
            before: Some(record.cid),
            after: Some(record.cid),
        })
    }

    /// Writes the next chunk of a snapshot.
    pub fn write_on(&mut self, world: &World, mut writing: Writing) -> JobStep {
        let begins = !std::mem::replace(&mut writing.begun, true);
        let last = writing.rest.len() <= SMALL;
        let ops = writing.rest.drain(..writing.rest.len().min(SMALL));
        let ops = ops.map(|op| record_op(&self.rules.filter, op)).collect();
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
            ChunkResult::Moved | ChunkResult::Discarded => return JobStep::Done,
            ChunkResult::NeedsWhole => {
                return JobStep::Fetch {
                    note: job.note,
                    named: job.named,
                    adopt: false,
                    whole: true,
                };
            }
        }
        self.counts.adopted += u64::from(begins && job.adopt);
        if last {
            JobStep::Done
        } else {
            JobStep::Write(writing)
        }
    }
}

fn record_op(filter: &Filter, op: Op) -> RecordOp {
    let wanted = filter.keep(op.path.as_bytes()) == Keep::Record;
    RecordOp {
        path: op.path.into_bytes(),
        put: op.after.map(|cid| RecordValue {
            cid,
            bytes: bytes_of(&cid).filter(|_| wanted).map(<[u8]>::to_vec),
        }),
        fresh: false,
    }
}
