//! Works off debts: resolves a DID, or takes a note, asks for the head, fetches, checks and writes.
//! Each is a step of its own, and anything may happen between two steps.

use gapless_core::ledger::debt::{self, Work};
use gapless_core::ledger::fetch::{self, HeadAnswer, Next, Note};
use gapless_core::ledger::{DebtItem, DebtReason, NamedHead, RepoId, Tick};
use gapless_core::repo_tx::answer::{AskReason, AskedHead};

use super::SimMirror;
use super::snapshot::{Fetched, Writing};
use crate::world::World;
use crate::world::pds::{Difference, Served};

/// Work under way for one repository.
#[derive(Debug, Clone)]
pub struct Job {
    pub repo: RepoId,
    pub step: JobStep,
    /// Why the job began.
    pub trigger: AskReason,
}

#[derive(Debug, Clone)]
pub enum JobStep {
    /// Ask the directory for the document.
    Resolve {
        asked: Tick,
    },
    /// Ask the host for its head.
    Ask {
        note: Note,
    },
    /// Apply the host's answer.
    Heard {
        note: Note,
        told: HeadAnswer,
    },
    /// Apply the comparison of the held records with the filter.
    Walked {
        note: Note,
        named: NamedHead,
        /// Whether nothing is missing that the filter wants.
        holds_all: bool,
    },
    /// Request the repository, or a difference.
    Fetch {
        note: Note,
        named: NamedHead,
        adopt: bool,
        /// Whether the whole repository is requested in any case, because a difference has failed.
        whole: bool,
    },
    /// Apply the difference that arrived.
    Differs {
        note: Note,
        named: NamedHead,
        difference: Difference,
    },
    /// Check the file that arrived, and begin to write it.
    Fetched {
        note: Note,
        named: NamedHead,
        adopt: bool,
        served: Served,
    },
    /// Write the next chunk of a large snapshot.
    Write(Writing),
    Done,
}

impl SimMirror {
    /// The repositories for which work is due and no job is running.
    pub fn due(&self, world: &World) -> Vec<RepoId> {
        let rows = self.book.repo_rows();
        let due = rows.filter(|(id, repo)| {
            debt::plan_work(world.now, repo).is_some()
                && !self.jobs.iter().any(|job| job.repo == *id)
        });
        due.map(|(id, _)| id).collect()
    }

    /// Begins the work that is due for a repository.
    pub fn start(&mut self, world: &World, id: RepoId) -> bool {
        let mut repo = self.book.repo(id);
        let Some(work) = debt::plan_work(world.now, &repo) else {
            return false;
        };
        let now = self.tick(world);
        debt::begin_attempt(now, &mut repo);
        let step = match work {
            Work::Resolve => Some(JobStep::Resolve { asked: now.tick }),
            Work::Compare | Work::Fetch => {
                fetch::take_note(self.context(now), &mut repo).map(|note| JobStep::Ask { note })
            }
        };
        self.put(world, id, repo);
        let Some(step) = step else {
            return false;
        };
        self.jobs.push(Job {
            repo: id,
            step,
            trigger: AskReason::Debt,
        });
        true
    }

    /// Begins a second job for a repository whose work may still be running, as after a spurious
    /// timeout.
    pub fn start_again(&mut self, world: &World, id: RepoId) {
        self.ask(world, id, AskReason::Debt);
    }

    /// Asks the host of a repository for its head, whether or not that is owed.
    pub fn ask(&mut self, world: &World, id: RepoId, trigger: AskReason) {
        let now = self.tick(world);
        let mut repo = self.book.repo(id);
        let note = fetch::take_note(self.context(now), &mut repo);
        self.put(world, id, repo);
        if let Some(note) = note {
            self.jobs.push(Job {
                repo: id,
                step: JobStep::Ask { note },
                trigger,
            });
        }
    }

    /// Does the next step of a job.
    pub fn work(&mut self, world: &mut World, place: usize) {
        let mut job = self.jobs.remove(place);
        let id = job.repo;
        let step = std::mem::replace(&mut job.step, JobStep::Done);
        job.step = match step {
            JobStep::Resolve { asked } => self.ask_directory(world, id, asked),
            JobStep::Ask { note } => {
                let owner = self.owner_of(world, id);
                match world.latest(self.pds_of(note.host), owner) {
                    Ok(told) => JobStep::Heard { note, told },
                    Err(_) => self.fail_question(world, &job),
                }
            }
            JobStep::Heard { note, told } => self.hear(world, &job, note, told),
            JobStep::Walked {
                note,
                named,
                holds_all,
            } => self.walked(world, id, note, named, holds_all),
            JobStep::Fetch {
                note,
                named,
                adopt,
                whole,
            } => self.request(world, &job, note, named, adopt, whole),
            JobStep::Differs {
                note,
                named,
                difference,
            } => self.differs(world, &job, note, named, difference),
            JobStep::Fetched {
                note,
                named,
                adopt,
                served,
            } => {
                if served.is_whole() {
                    let fetched = Fetched {
                        note,
                        named,
                        adopt,
                        difference: false,
                    };
                    self.consider(world, &job, fetched, &served)
                } else {
                    self.fail(world, &job)
                }
            }
            JobStep::Write(writing) => self.write_on(world, writing),
            JobStep::Done => JobStep::Done,
        };
        if !matches!(job.step, JobStep::Done) {
            let place = place.min(self.jobs.len());
            self.jobs.insert(place, job);
        }
    }

    fn ask_directory(&mut self, world: &mut World, id: RepoId, asked: Tick) -> JobStep {
        let owner = self.owner_of(world, id);
        self.counts.resolved += 1;
        match world.resolve(owner) {
            Some((document, version)) => self.resolved(world, id, asked, document, version),
            None => {
                let now = self.tick(world);
                let mut repo = self.book.repo(id);
                debt::attempt_failed(now, &mut repo, None);
                self.put(world, id, repo);
            }
        }
        JobStep::Done
    }

    /// Records that the host did not answer a question. A question that was not owed
    /// is owed now.
    fn fail_question(&mut self, world: &World, job: &Job) -> JobStep {
        self.question_failed(world, job.repo, &job.trigger)
    }

    /// Records that a fetch failed. The debt stays, and is tried later.
    pub fn fail(&mut self, world: &World, job: &Job) -> JobStep {
        self.question_failed(world, job.repo, &AskReason::Debt)
    }

    fn question_failed(&mut self, world: &World, id: RepoId, why: &AskReason) -> JobStep {
        let mut tx = self.row_tx(id);
        self.decide(world, &mut tx, |tx, env, rules| {
            tx.question_failed(env, rules, why, None);
            Ok(())
        });
        self.submit(world, tx);
        JobStep::Done
    }

    fn hear(&mut self, world: &World, job: &Job, note: Note, told: HeadAnswer) -> JobStep {
        let asked = AskedHead {
            note,
            answer: told,
            host: self.book.host(note.host).cloned().unwrap_or_default(),
            share: Some(self.census(note.host)),
            why: job.trigger,
        };
        let mut tx = self.tx(job.repo);
        let next = self.decide(world, &mut tx, |tx, env, rules| {
            tx.head_answered(env, rules, &asked)
        });
        self.submit(world, tx);
        let for_filter = |owed: DebtItem| owed.why == DebtReason::FilterChanged;
        let repo = self.book.repo_ref(job.repo);
        let (named, adopt) = match next {
            Next::Done => return JobStep::Done,
            Next::Fetch(named)
                if note.head.is_some_and(|head| head.commit == named.commit)
                    && repo.debt.fetch.is_some_and(for_filter) =>
            {
                let there = repo.head().is_some_and(|head| head.commit == named.commit);
                let holds_all = there && self.lacks_bytes(job.repo).next().is_none();
                return JobStep::Walked {
                    note,
                    named,
                    holds_all,
                };
            }
            Next::Fetch(named) => (named, false),
            Next::Adopt(named) => (named, true),
        };
        JobStep::Fetch {
            note,
            named,
            adopt,
            whole: false,
        }
    }
}

impl SimMirror {
    /// Pays the fetch that is owed for a changed filter, if the held records have all that the
    /// filter wants. Otherwise continues with the fetch.
    fn walked(
        &mut self,
        world: &World,
        id: RepoId,
        note: Note,
        named: NamedHead,
        holds_all: bool,
    ) -> JobStep {
        if holds_all {
            let now = self.tick(world);
            let mut repo = self.book.repo(id);
            let paid = fetch::filter_walked(now, &mut repo, &note, named.commit);
            self.put(world, id, repo);
            if paid {
                self.counts.walked += 1;
                return JobStep::Done;
            }
        }
        JobStep::Fetch {
            note,
            named,
            adopt: false,
            whole: false,
        }
    }
}

impl Job {
    /// A description for the trace.
    pub fn label(&self) -> String {
        use crate::world::short;
        match &self.step {
            JobStep::Resolve { .. } => "ask the directory".to_owned(),
            JobStep::Ask { note } => format!("ask for the head (noted t{})", note.at.0),
            JobStep::Heard { note, told } => match told {
                HeadAnswer::Head(named) => {
                    format!("heard {} (noted t{})", short(named.rev), note.at.0)
                }
                HeadAnswer::State(state) => format!("heard {state:?}"),
            },
            JobStep::Walked {
                named, holds_all, ..
            } => {
                format!("walked {}, all there: {holds_all}", short(named.rev))
            }
            JobStep::Fetch {
                adopt,
                named,
                whole,
                ..
            } => {
                format!("fetch {} adopt {adopt} whole {whole}", short(named.rev))
            }
            JobStep::Differs {
                difference, named, ..
            } => format!(
                "fetched a difference to {} of {} for {}",
                short(difference.commit.head.rev),
                difference.changes.len(),
                short(named.rev)
            ),
            JobStep::Fetched { served, named, .. } => format!(
                "fetched {} for {}",
                short(served.commit.head.rev),
                short(named.rev)
            ),
            JobStep::Write(writing) => format!("write on, {} left", writing.rest.len()),
            JobStep::Done => "done".to_owned(),
        }
    }
}
