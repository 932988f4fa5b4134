//! Handles parked frames: applies those that follow the held state, verifies those that waited for
//! the owner's key, and drops and counts those that are of no use any more.

use std::borrow::Cow;

use gapless_atp::syntax::Rev;

use super::step::ParkedFrame;
use super::{Arrival, JudgeBy, RepoEnv, RepoTx, Rules};
use crate::ledger::event::{Event, Origin};
use crate::ledger::notice::DropReason;
use crate::ledger::parked::{self, ParkedStep};
use crate::ledger::{Notice, Tick};

impl RepoTx {
    /// Applies the parked frames that follow the held state, and drops those that are of no use any
    /// more. The caller calls this after every move of the head and after every answer.
    pub fn unpark<E: RepoEnv>(&mut self, env: &E, rules: &Rules) -> Result<(), E::Error> {
        if self.is_shown_again() && !self.parked.is_empty() {
            // Consumers were not sent the state that the parked frames follow: log it first.
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
            // The frame was decoded before it was parked, so its row is damaged. The debt
            // stays.
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

    /// Whether the operations of a parked frame lead from the held keys to the frame's root.
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
        // A frame that deletes a path that is not held cannot be trusted.
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

    /// Verifies the parked frames that could not be verified when they arrived, now that the key is
    /// known.
    pub(super) fn judge_again<E: RepoEnv>(
        &mut self,
        env: &E,
        rules: &Rules,
    ) -> Result<(), E::Error> {
        let Some(keys) = self.repo.signing else {
            return Ok(());
        };
        // While a resolve is owed, a frame counts as read when the document was requested, so that
        // a signature by another key is not taken for a forgery. Otherwise a frame counts as read
        // before the request.
        let read = match self.repo.debt.resolve {
            Some(_) => keys.asked,
            None => Tick(0),
        };
        for rev in parked::unjudged_revs(&self.parked) {
            let Some(waiting) = self.parked_frame(env, rev)?.map(Cow::into_owned) else {
                self.drop_frame(rev, DropReason::Superseded);
                continue;
            };
            // If the stream of this frame is not followed any more, no later rule can tell its
            // host.
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

    /// Reads a parked frame with its bytes, from this transaction or from the store.
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
