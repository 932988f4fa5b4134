//! Parked frames: applied once their time has come, judged once the key is known,
//! dropped and counted otherwise.

use std::borrow::Cow;

use gapless_atp::syntax::Rev;

use super::step::ParkedFrame;
use super::{Arrival, JudgeBy, RepoEnv, RepoTx, Rules};
use crate::ledger::event::{Event, Origin};
use crate::ledger::notice::DropReason;
use crate::ledger::parked::{self, ParkedStep};
use crate::ledger::{Notice, Tick};

impl RepoTx {
    /// Applies the parked frames whose time has come, and drops those whose time has
    /// passed. To be called after every move of the head, and after every answer.
    pub fn unpark<E: RepoEnv>(&mut self, env: &E, rules: &Rules) -> Result<(), E::Error> {
        if self.is_shown_again() && !self.parked.is_empty() {
            // Parked frames follow on what consumers were not sent.
            self.append_log_entries_first();
        }
        let mut tried = Vec::new();
        while let Some(next) = parked::next_step(&self.repo, &self.parked, &tried) {
            match next {
                ParkedStep::Apply(rev) => self.apply_parked(env, rules, rev)?,
                ParkedStep::Recompute(rev) => {
                    if self.recomputes(env, rules, rev)? {
                        self.apply_parked(env, rules, rev)?;
                    } else {
                        tried.push(rev);
                    }
                }
                ParkedStep::Drop(rev, why) => self.drop_frame(rev, why),
            }
        }
        Ok(())
    }

    fn apply_parked<E: RepoEnv>(
        &mut self,
        env: &E,
        rules: &Rules,
        rev: Rev,
    ) -> Result<(), E::Error> {
        let waiting = self.parked_frame(env, rev)?.map(Cow::into_owned);
        self.remove(rev);
        let Some(waiting) = waiting else {
            self.counts.dropped += 1;
            return Ok(());
        };
        let Ok(read) = env.open(&waiting, None) else {
            // It was judged before it was parked, so it is damaged. What is owed
            // for it stays.
            let why = DropReason::Forged;
            self.counts.dropped += 1;
            self.notices.push(Notice::ParkedDropped { rev, why });
            return Ok(());
        };
        self.counts.unparked += 1;
        parked::apply(&mut self.repo, &waiting.parked);
        let arrival = Arrival {
            origin: Origin {
                upstream: waiting.upstream,
                epoch: waiting.epoch,
            },
            seq: read.seq,
            bytes: &waiting.frame,
        };
        self.apply(rules, &arrival, waiting.parked.before, &read);
        Ok(())
    }

    /// Whether the operations of a parked frame lead from the held keys to its root.
    fn recomputes<E: RepoEnv>(&self, env: &E, rules: &Rules, rev: Rev) -> Result<bool, E::Error> {
        if rules.settings.wanted_keys_only {
            return Ok(false);
        }
        let Some(id) = self.id else {
            return Ok(false);
        };
        let Some(waiting) = self.parked_frame(env, rev)? else {
            return Ok(false);
        };
        let Ok(read) = env.open(&waiting, None) else {
            return Ok(false);
        };
        let mut changed = self.changed.clone();
        for op in &read.ops {
            changed.insert(op.path.as_bytes().to_vec(), op.cid);
        }
        let root = env.root_with(id, &changed)?;
        // A deletion of what is not held is no operation that we can vouch for.
        for op in read.ops.iter().filter(|op| op.cid.is_none()) {
            let path = op.path.as_bytes();
            let held = match self.changed.get(path) {
                Some(cid) => cid.is_some(),
                None => env.record(id, path)?.is_some(),
            };
            if !held {
                return Ok(false);
            }
        }
        Ok(root == Some(waiting.parked.head.data))
    }

    /// Judges the frames that nobody could judge, now that the key is known.
    pub(super) fn judge_again<E: RepoEnv>(
        &mut self,
        env: &E,
        rules: &Rules,
    ) -> Result<(), E::Error> {
        let Some(keys) = self.repo.signing else {
            return Ok(());
        };
        // Judged as if it had been read before the question, so that another key is
        // not taken for a forgery while the directory is still owed.
        let read = match self.repo.debt.resolve {
            Some(_) => keys.asked,
            None => Tick(0),
        };
        for rev in parked::unjudged_revs(&self.parked) {
            let Some(waiting) = self.parked_frame(env, rev)?.map(Cow::into_owned) else {
                self.drop_frame(rev, DropReason::Superseded);
                continue;
            };
            // Its stream may not be followed any more: then no later rule could tell.
            let origin = waiting.parked.origin;
            if self.repo.host.is_some() && origin.is_some() && origin != self.repo.host {
                self.drop_frame(rev, DropReason::OtherHost);
                continue;
            }
            let by = JudgeBy {
                repo: &self.repo,
                keys: &keys,
                read,
                now: self.at,
            };
            let Ok(judged) = env.open(&waiting, Some(by)) else {
                self.drop_frame(rev, DropReason::Forged);
                continue;
            };
            match judged.event {
                Some(Event::Unresolved { .. }) => {}
                Some(Event::Unsigned) => self.drop_frame(rev, DropReason::Forged),
                None => self.drop_frame(rev, DropReason::Superseded),
                Some(_) => {
                    self.remove(rev);
                    self.counts.unparked += 1;
                    let arrival = Arrival {
                        origin: Origin {
                            upstream: waiting.upstream,
                            epoch: None,
                        },
                        seq: judged.seq,
                        bytes: &waiting.frame,
                    };
                    self.event(env, rules, &arrival, &judged);
                }
            }
        }
        Ok(())
    }

    /// A parked frame, with its bytes.
    fn parked_frame<E: RepoEnv>(
        &self,
        env: &E,
        rev: Rev,
    ) -> Result<Option<Cow<'_, ParkedFrame>>, E::Error> {
        if let Some(frame) = self.kept.get(&rev) {
            return Ok(Some(Cow::Borrowed(frame)));
        }
        match self.id {
            None => Ok(None),
            Some(id) => Ok(env.parked_frame(id, rev)?.map(Cow::Owned)),
        }
    }
}
