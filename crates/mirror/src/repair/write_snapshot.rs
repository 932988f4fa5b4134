//! Writes a checked snapshot over what is held: each chunk at the repository's
//! desk, durable before the next. A state that moved on meanwhile is not touched.

use std::sync::Arc;

use gapless_core::ledger::debt;
use gapless_core::ledger::diff::{self, DiffVerdict, RecomputedRoot};
use gapless_core::ledger::fetch::{self, CheckedHead, Note, SnapshotDecision};
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::parked;
use gapless_core::ledger::rollback;
use gapless_core::ledger::{Held, Notice, Repo, Time};
use gapless_store::change::{RecordOp, RecordsKind};
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use tokio::runtime::Handle;

use crate::desk::draft::{Draft, Words};
use crate::desk::{Desks, Turn};
use crate::failpoints;
use crate::log::frames;
use crate::repair::compare::Chunk;
use crate::repair::fetch_repo::{Job, Stop};
use crate::repair::snapshot::Snapshot;
use crate::services::Services;

/// Writes one snapshot, on a thread that may wait.
pub(crate) struct Writer {
    pub services: Arc<Services>,
    pub desks: Arc<Desks>,
    pub handle: Handle,
    pub job: Job,
    pub told: CheckedHead,
    pub difference: bool,
}

/// What a step at the desk came to.
type Stepped = Result<(), Refusal>;

enum Refusal {
    Moved,
    Discarded,
    InFull,
    Store(StoreError),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        match refusal {
            Refusal::Moved => Stop::Moved,
            Refusal::Discarded => Stop::Discarded,
            Refusal::InFull => Stop::InFull,
            Refusal::Store(error) => Stop::Store(error),
        }
    }
}

impl Writer {
    pub fn write(&self, snapshot: &Snapshot) -> Result<(), Stop> {
        let found = self.services.store.view().repo_by_did(&self.job.did)?;
        let Some((id, repo)) = found else {
            return Err(Stop::Discarded);
        };
        let held = repo.held;
        // Of what was not wanted before, a key that is the same is not enough.
        let repair = !matches!(held, Held::Exactly(_))
            || repo.filter != self.job.note.filter
            || repo
                .debt
                .fetch
                .is_some_and(|owed| owed.why.concerns_contents());
        let mut first = true;
        let services = &self.services;
        let commit = snapshot.commit_block().to_vec();
        snapshot.differences::<Stop>(
            &|| services.store.view(),
            Some(id),
            &|path| services.rules.filter.keep(path),
            repair,
            &mut |chunk: Chunk| {
                let begins = std::mem::take(&mut first);
                if !begins {
                    failpoints::here("fetch.between");
                }
                Ok(self.step(held, begins, chunk, &commit)?)
            },
        )?;
        failpoints::here("fetch.written");
        Ok(())
    }

    /// One chunk, at the desk, durable when this returns.
    fn step(&self, held: Held, begins: bool, chunk: Chunk, commit: &[u8]) -> Stepped {
        let (job, told, difference) = (self.job.clone(), self.told, self.difference);
        let commit = commit.to_vec();
        let visit = self.desks.visit(&self.job.did, move |turn| {
            let step = Step {
                job: &job,
                told: &told,
                difference,
                ops: chunk.ops,
                commit,
            };
            match (begins, chunk.last) {
                (true, true) => step.all(turn, held),
                (true, false) => step.first(turn, held),
                (false, false) => step.next(turn),
                (false, true) => step.last(turn),
            }
        });
        match self.handle.block_on(visit) {
            Ok(stepped) => stepped,
            Err(error) => Err(Refusal::Store(error)),
        }
    }
}

struct Step<'a> {
    job: &'a Job,
    told: &'a CheckedHead,
    difference: bool,
    ops: Vec<RecordOp>,
    commit: Vec<u8>,
}

impl Step<'_> {
    /// The repository, if it still is as it was when the snapshot was laid over it
    /// and the snapshot is to be written.
    fn consider<'t>(&self, turn: &'t mut Turn<'_>, held: Held) -> Result<&'t mut Draft, Refusal> {
        let services = turn.services;
        let Some(draft) = turn.draft.as_mut() else {
            return Err(Refusal::Discarded);
        };
        if draft.repo.held != held {
            return Err(Refusal::Moved);
        }
        let now = services.clock.now();
        if self.job.imported && fetch::may_import(now, &draft.repo, &self.told.head).is_err() {
            return Err(Refusal::Moved);
        }
        if self.difference {
            let recomputed = draft.repo.head().map(|head| RecomputedRoot {
                over: head.commit,
                // Every node from the signed root down was there, or is held.
                root: self.told.head.data,
            });
            match diff::judge_difference(&draft.repo, &self.job.note, &self.told.head, recomputed) {
                DiffVerdict::Snapshot => {}
                DiffVerdict::Passed => {
                    draft.notices.push(Notice::SnapshotDiscarded);
                    return Err(Refusal::Discarded);
                }
                DiffVerdict::InFull => return Err(Refusal::InFull),
            }
        }
        if self.job.adopt {
            let take =
                rollback::is_adoptable(&draft.repo, &self.job.note, &self.job.named, self.told);
            if !take {
                debt::attempt_failed(now, &mut draft.repo, None);
                return Err(Refusal::Discarded);
            }
            return Ok(draft);
        }
        let (repo, notices) = (&mut draft.repo, &mut draft.notices);
        let take = services.decide(now, |context| {
            fetch::judge_snapshot(context, repo, &self.job.note, self.told, notices)
        });
        match take {
            SnapshotDecision::Write => Ok(draft),
            SnapshotDecision::Discard => Err(Refusal::Discarded),
        }
    }

    /// Counted at the desk, so that whoever sees the new state finds it counted.
    fn count(&self, services: &Services, ops: usize, last: bool) {
        let metrics = &services.metrics;
        metrics.records_fetched.add(ops as u64);
        metrics.snapshots_written.add(u64::from(last));
        metrics
            .differences_written
            .add(u64::from(last && self.difference));
    }

    fn words(&self) -> Words {
        Words {
            source: None,
            commit: self.commit.clone(),
            frame: None,
        }
    }

    /// Likewise, of the step that reaches the state: whoever follows us is told where
    /// the repository is, since nobody has sent a frame that leads there.
    fn last_words(&self, at: Time) -> Words {
        let said = frames::sync(&self.job.did, &self.told.head, &self.commit, at);
        Words {
            frame: Some(said),
            ..self.words()
        }
    }

    fn kind(held: Held) -> RecordsKind {
        match held {
            Held::Nothing => RecordsKind::Backfill,
            _ => RecordsKind::Repair,
        }
    }

    /// A small one: everything in one batch.
    fn all(mut self, turn: &mut Turn<'_>, held: Held) -> Stepped {
        let (services, view) = (turn.services, turn.view);
        let draft = self.consider(turn, held)?;
        let now = services.clock.now();
        let ops = std::mem::take(&mut self.ops);
        self.count(services, ops.len(), true);
        if self.job.adopt {
            let (repo, notices) = (&mut draft.repo, &mut draft.notices);
            services.decide(now, |context| {
                rollback::adopt_snapshot(context, repo, &self.job.note, self.told, notices);
            });
            draft.write(
                now.time,
                RecordsKind::Repair,
                ops,
                self.last_words(now.time),
            );
            return draft.unpark(services, view).map_err(Refusal::Store);
        }
        fetch::finish_snapshot(now, &mut draft.repo, &self.job.note, self.told);
        draft.write(now.time, Self::kind(held), ops, self.last_words(now.time));
        self.settle(services, view, draft)
    }

    /// The first of several batches.
    fn first(mut self, turn: &mut Turn<'_>, held: Held) -> Stepped {
        let services = turn.services;
        let draft = self.consider(turn, held)?;
        let now = services.clock.now();
        let ops = std::mem::take(&mut self.ops);
        self.count(services, ops.len(), false);
        if self.job.adopt {
            let (repo, notices) = (&mut draft.repo, &mut draft.notices);
            services.decide(now, |context| {
                rollback::adopt_snapshot(context, repo, &self.job.note, self.told, notices);
            });
            // Too much for one batch: until the last one it is no state.
            draft.repo.held = Held::Applying {
                target: self.told.head,
                from: None,
            };
            debt::owe_interrupted(now, &mut draft.repo);
        } else {
            fetch::begin_snapshot(now, &mut draft.repo, self.told);
        }
        draft.write(now.time, Self::kind(held), ops, self.words());
        Ok(())
    }

    /// The repository, if this snapshot is the one that is being written.
    fn writing<'t>(&self, turn: &'t mut Turn<'_>) -> Result<&'t mut Draft, Refusal> {
        let Some(draft) = turn.draft.as_mut() else {
            return Err(Refusal::Discarded);
        };
        match draft.repo.held {
            Held::Applying { target, .. } if target == self.told.head => Ok(draft),
            // Purged or taken over meanwhile.
            _ => Err(Refusal::Discarded),
        }
    }

    fn next(mut self, turn: &mut Turn<'_>) -> Stepped {
        let services = turn.services;
        let draft = self.writing(turn)?;
        let ops = std::mem::take(&mut self.ops);
        self.count(services, ops.len(), false);
        let at = services.clock.time();
        draft.write(at, RecordsKind::Repair, ops, self.words());
        Ok(())
    }

    fn last(mut self, turn: &mut Turn<'_>) -> Stepped {
        let (services, view) = (turn.services, turn.view);
        let draft = self.writing(turn)?;
        let now = services.clock.now();
        let ops = std::mem::take(&mut self.ops);
        self.count(services, ops.len(), true);
        let note = self.note(&draft.repo);
        fetch::finish_snapshot(now, &mut draft.repo, &note, self.told);
        draft.write(
            now.time,
            RecordsKind::Repair,
            ops,
            self.last_words(now.time),
        );
        self.settle(services, view, draft)
    }

    /// After a takeover the lineage is another one than the one that was noted.
    fn note(&self, repo: &Repo) -> Note {
        match self.job.adopt {
            false => self.job.note,
            true => Note {
                lineage: repo.lineage,
                ..self.job.note
            },
        }
    }

    /// Parked frames follow; then it is said what the snapshot is worth.
    fn settle(&self, services: &Services, view: &ReadView, draft: &mut Draft) -> Stepped {
        failpoints::here("fetch.unsettled");
        if self.job.imported {
            draft.unpark(services, view).map_err(Refusal::Store)?;
            let (now, repo) = (services.clock.now(), &mut draft.repo);
            services.decide(now, |context| fetch::import_written(context, repo));
            return Ok(());
        }
        draft.unpark(services, view).map_err(Refusal::Store)?;
        if draft.repo.host == Some(self.job.note.host) {
            for rev in parked::foreign_revs(&draft.repo, &draft.parked) {
                draft.drop_frame(rev, DropReason::OtherHost);
            }
        }
        let now = services.clock.now();
        let note = self.note(&draft.repo);
        let (repo, notices) = (&mut draft.repo, &mut draft.notices);
        services.decide(now, |context| {
            fetch::settle_snapshot(context, repo, &note, &self.job.named, self.told, notices);
        });
        Ok(())
    }
}
