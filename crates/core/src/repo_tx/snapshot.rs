//! Writes a checked snapshot over the held state, in chunks. Until the last chunk is written, the
//! row says that the held keys form no state. If the held state has changed since the snapshot was
//! compared with it, nothing is written.

use super::log::LogEntryParts;
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
    /// Whether the host's older state is to be adopted.
    pub adopt: bool,
    /// Whether an operator imported the snapshot from a file, which does not show that it is
    /// current.
    pub imported: bool,
    /// Whether the snapshot is a difference applied to the held state.
    pub difference: bool,
    pub checked: CheckedHead,
}

impl FetchJob {
    /// The note that applies to the row now: an adoption began a new lineage, which replaces the
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

/// One chunk of a snapshot: the operations for records that differ from the held state.
#[derive(Debug, Clone)]
pub struct SnapshotChunk<'a> {
    pub job: &'a FetchJob,
    /// The state that was held when the operations were computed.
    pub over: Held,
    pub ops: Vec<RecordOp>,
    /// The signed commit; empty if it is not at hand.
    pub commit: &'a [u8],
    /// Whether this is the first chunk.
    pub begins: bool,
    /// Whether this is the last chunk.
    pub last: bool,
}

/// The outcome of writing a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkResult {
    Written,
    /// Not written: the held state is not the one that the operations were computed for, or the
    /// import is not allowed any more.
    Moved,
    /// Not written: the snapshot was overtaken, or it is not the one being written.
    Discarded,
    /// Not written: the difference does not fit the held state, so the whole repository is needed.
    NeedsWhole,
}

impl RepoTx {
    /// Writes one chunk. After the last chunk, the parked frames that follow are applied, and the
    /// ledger settles what the snapshot pays.
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
            self.may_go_on(job)
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
            // No upstream has sent a frame that leads to this state.
            self.sync_next_step();
        }
        let words = LogEntryParts {
            commit: chunk.commit.to_vec(),
            ..LogEntryParts::default()
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
            if repo.purging {
                // Nothing is written until the purge is finished; the fetch stays owed.
                debt::attempt_failed(now, repo, None);
                return ChunkResult::Discarded;
            }
            if job.imported && fetch::may_import(now, repo, &checked.head).is_err() {
                return ChunkResult::Moved;
            }
            if job.difference {
                let recomputed = repo.head().map(|head| RecomputedRoot {
                    over: head.commit,
                    // Every node below the signed root was in the difference or is held.
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

    /// Checks that this snapshot is still the one being written: the repository may have been
    /// purged, or another snapshot begun.
    fn may_go_on(&self, job: &FetchJob) -> ChunkResult {
        match self.repo.held {
            Held::Applying { target, .. } if target == job.checked.head => ChunkResult::Written,
            _ => ChunkResult::Discarded,
        }
    }

    /// Adopts the host's older state.
    fn adopt<E: RepoEnv>(&mut self, env: &E, rules: &Rules, job: &FetchJob, last: bool) -> Time {
        self.decide(env, rules, |context, repo, notices| {
            rollback::adopt_snapshot(context, repo, &job.note, &job.checked, notices);
            if !last {
                // The state is too large for one step: until the last step, the held keys form no
                // state.
                repo.held = Held::Applying {
                    target: job.checked.head,
                    from: None,
                };
                debt::owe_interrupted(context.now, repo);
            }
            context.now.time
        })
    }

    /// Settles what a snapshot is worth, after the parked frames that follow it.
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
