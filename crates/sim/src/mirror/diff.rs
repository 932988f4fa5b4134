//! Requests a repository or the difference since the held rev, and applies a difference to the held
//! records.

use gapless_core::ledger::diff::{self, DiffVerdict, RecomputedRoot, RepoRequest};
use gapless_core::ledger::fetch::{HeadAnswer, Note};
use gapless_core::ledger::{NamedHead, RepoId};

use super::SimMirror;
use super::job::{Job, JobStep};
use super::snapshot::Fetched;
use crate::world::World;
use crate::world::commit::root;
use crate::world::pds::{Difference, Served};

impl SimMirror {
    /// Requests from the host what the rules choose. `whole`: a difference has just failed, so the
    /// whole repository is requested.
    pub fn request(
        &mut self,
        world: &mut World,
        job: &Job,
        note: Note,
        named: NamedHead,
        adopt: bool,
        whole: bool,
    ) -> JobStep {
        let id = job.repo;
        let owner = self.owner_of(world, id);
        let host = self.pds_of(note.host);
        self.counts.fetched += 1;
        *self.fetches.entry(id).or_default() += 1;
        let answer = match self.what_to_ask(id, &note, adopt, whole) {
            RepoRequest::InFull => world.repo(host, owner).map(|answer| {
                answer.map(|served| JobStep::Fetched {
                    note,
                    named,
                    adopt,
                    served,
                })
            }),
            RepoRequest::Since(rev) => {
                // Recorded even if no answer ever arrives.
                self.tried.insert(id, rev);
                self.counts.differences += 1;
                world.repo_since(host, owner, rev).map(|answer| {
                    answer.map(|difference| JobStep::Differs {
                        note,
                        named,
                        difference,
                    })
                })
            }
        };
        match answer {
            Ok(Ok(step)) => step,
            Ok(Err(state)) => JobStep::Heard {
                note,
                told: HeadAnswer::State(state),
            },
            Err(_) => self.fail(world, job),
        }
    }

    fn what_to_ask(&self, id: RepoId, note: &Note, adopt: bool, whole: bool) -> RepoRequest {
        let repo = self.book.repo_ref(id);
        let tried = self.tried.get(&id).copied();
        if whole {
            RepoRequest::InFull
        } else {
            diff::choose_request(&self.rules.settings, repo, note, adopt, tried)
        }
    }

    /// Applies a difference to the records that are held now.
    pub fn differs(
        &mut self,
        world: &World,
        job: &Job,
        note: Note,
        named: NamedHead,
        difference: Difference,
    ) -> JobStep {
        let repo = self.book.repo_ref(job.repo);
        let mut records = self.book.records(job.repo);
        for (path, after) in &difference.changes {
            match after {
                Some(cid) => records.insert(path.clone(), *cid),
                None => records.remove(path),
            };
        }
        let recomputed = repo.head().map(|held| RecomputedRoot {
            over: held.commit,
            root: root(&records),
        });
        let commit = difference.commit;
        match diff::judge_difference(repo, &note, &commit.head, recomputed) {
            DiffVerdict::Passed => JobStep::Done,
            DiffVerdict::InFull => JobStep::Fetch {
                note,
                named,
                adopt: false,
                whole: true,
            },
            DiffVerdict::Snapshot => {
                self.counts.differences_right += 1;
                let records = records.into();
                let served = Served { commit, records };
                let fetched = Fetched {
                    note,
                    named,
                    adopt: false,
                    difference: true,
                };
                self.consider(world, job, fetched, &served)
            }
        }
    }
}
