//! Writes a checked snapshot over what is held, chunk by chunk. Until the last chunk
//! the row says that what is held is no state. A state that moved on meanwhile is not
//! touched.

use super::log::LogWords;
use super::step::{RecordOp, RecordsKind};
use super::{RepoEnv, RepoTx, Rules};
use crate::ledger::diff::{self, DiffVerdict, RecomputedRoot};
use crate::ledger::fetch::{self, CheckedHead, Note, SnapshotDecision};
use crate::ledger::notice::DropReason;
use crate::ledger::{Held, NamedHead, Notice, Repo, Time, debt, parked, rollback};

/// A snapshot that passed every check, and what it was fetched for.
#[derive(Debug, Clone, Copy)]
pub struct FetchJob {
    /// What was known before the first question.
    pub note: Note,
    /// The head that the host named.
    pub named: NamedHead,
    /// The host's older state is taken over.
    pub adopt: bool,
    /// An operator brought the snapshot as a file: it proves nothing about being current.
    pub imported: bool,
    /// The snapshot is a difference laid over what is held.
    pub difference: bool,
    pub checked: CheckedHead,
}

impl FetchJob {
    /// The note. An adoption began a new lineage, which replaces the noted one.
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

/// One chunk of a snapshot: what differs from what is held.
#[derive(Debug, Clone)]
pub struct SnapshotChunk<'a> {
    pub job: &'a FetchJob,
    /// What was held when the snapshot was laid over it.
    pub over: Held,
    pub ops: Vec<RecordOp>,
    /// The signed commit; empty if it is not at hand.
    pub commit: &'a [u8],
    /// This is the first chunk.
    pub begins: bool,
    /// This is the last chunk.
    pub last: bool,
}

/// What became of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkResult {
    Written,
    /// Not written: something else is held than what the snapshot was laid over.
    Moved,
    /// Not written: overtaken, or not this snapshot.
    Discarded,
    /// Not written: the difference leads nowhere, and the whole is needed.
    NeedsWhole,
}

impl RepoTx {
    /// Writes one chunk. After the last one parked frames follow, and the ledger says
    /// what the snapshot is worth.
    pub fn write_chunk<E: RepoEnv>(
        &mut self,
        env: &E,
        rules: &Rules,
        chunk: SnapshotChunk<'_>,
    ) -> Result<ChunkResult, E::Error> {
        let job = chunk.job;
        let result = if chunk.begins {
            self.consider(env, rules, job, chunk.over)
        } else {
            self.goes_on(job)
        };
        if result != ChunkResult::Written {
            return Ok(result);
        }
        let adopts = chunk.begins && job.adopt;
        let at = if adopts {
            self.adopt(env, rules, job, chunk.last)
        } else if chunk.last {
            self.decide(env, rules, |context, repo, _| {
                fetch::finish_snapshot(context.now, repo, &job.note(repo), &job.checked);
                context.now.time
            })
        } else if chunk.begins {
            self.decide(env, rules, |context, repo, _| {
                fetch::begin_snapshot(context.now, repo, &job.checked);
                context.now.time
            })
        } else {
            env.time()
        };
        let kind = match chunk.over {
            Held::Nothing if chunk.begins => RecordsKind::Backfill,
            _ => RecordsKind::Repair,
        };
        if chunk.last {
            // Nobody has sent consumers a frame that leads there.
            self.sync_next_step();
        }
        let words = LogWords {
            commit: chunk.commit.to_vec(),
            ..LogWords::default()
        };
        self.write(at, kind, chunk.ops, words);
        if !chunk.last {
            return Ok(ChunkResult::Written);
        }
        self.unpark(env, rules)?;
        if !adopts {
            // An adoption in one chunk was settled as it began.
            self.finish_snapshot(env, rules, job);
        }
        Ok(ChunkResult::Written)
    }

    /// Decides whether a snapshot is written at all.
    fn consider<E: RepoEnv>(
        &mut self,
        env: &E,
        rules: &Rules,
        job: &FetchJob,
        over: Held,
    ) -> ChunkResult {
        if self.repo.held != over {
            return ChunkResult::Moved;
        }
        let checked = &job.checked;
        self.decide(env, rules, |context, repo, notices| {
            let now = context.now;
            if job.imported && fetch::may_import(now, repo, &checked.head).is_err() {
                return ChunkResult::Moved;
            }
            if job.difference {
                let recomputed = repo.head().map(|head| RecomputedRoot {
                    over: head.commit,
                    // Every node from the signed root down was there, or is held.
                    root: checked.head.data,
                });
                match diff::judge_difference(repo, &job.note, &checked.head, recomputed) {
                    DiffVerdict::Snapshot => {}
                    DiffVerdict::Passed => {
                        notices.push(Notice::SnapshotDiscarded);
                        return ChunkResult::Discarded;
                    }
                    DiffVerdict::InFull => return ChunkResult::NeedsWhole,
                }
            }
            if job.adopt {
                if rollback::is_adoptable(repo, &job.note, &job.named, checked) {
                    return ChunkResult::Written;
                }
                debt::attempt_failed(now, repo, None);
                return ChunkResult::Discarded;
            }
            match fetch::judge_snapshot(context, repo, &job.note, checked, notices) {
                SnapshotDecision::Write => ChunkResult::Written,
                SnapshotDecision::Discard => ChunkResult::Discarded,
            }
        })
    }

    /// Whether this snapshot is still the one that is being written: the repository may
    /// have been purged, or another snapshot begun.
    fn goes_on(&self, job: &FetchJob) -> ChunkResult {
        match self.repo.held {
            Held::Applying { target, .. } if target == job.checked.head => ChunkResult::Written,
            _ => ChunkResult::Discarded,
        }
    }

    /// Takes the host's older state over.
    fn adopt<E: RepoEnv>(&mut self, env: &E, rules: &Rules, job: &FetchJob, last: bool) -> Time {
        self.decide(env, rules, |context, repo, notices| {
            rollback::adopt_snapshot(context, repo, &job.note, &job.checked, notices);
            if !last {
                // Too much for one step: until the last one it is no state.
                repo.held = Held::Applying {
                    target: job.checked.head,
                    from: None,
                };
                debt::owe_interrupted(context.now, repo);
            }
            context.now.time
        })
    }

    /// Says what a snapshot is worth, once parked frames have followed.
    fn finish_snapshot<E: RepoEnv>(&mut self, env: &E, rules: &Rules, job: &FetchJob) {
        if job.imported {
            self.decide(env, rules, |context, repo, _| {
                fetch::import_written(context, repo);
            });
            return;
        }
        if self.repo.host == Some(job.note.host) {
            for rev in parked::foreign_revs(&self.repo, &self.parked) {
                self.drop_frame(rev, DropReason::OtherHost);
            }
        }
        let (named, checked) = (&job.named, &job.checked);
        self.decide(env, rules, |context, repo, notices| {
            let note = job.note(repo);
            fetch::settle_snapshot(context, repo, &note, named, checked, notices);
        });
    }
}
