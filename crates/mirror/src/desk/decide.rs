//! What the ledger makes of an event or of an answer, as steps of a draft; and the
//! frames that waited for it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use gapless_atp::cid::Cid;
use gapless_atp::frame::{self, Action};
use gapless_atp::mst::Builder;
use gapless_atp::syntax::Rev;
use gapless_atp::verify::{self, CheckedOp};
use gapless_core::ledger::event::{self, Decision, Event, Origin};
use gapless_core::ledger::identity::{self, Document};
use gapless_core::ledger::notice::DropReason;
use gapless_core::ledger::parked::{self, ParkedStep};
use gapless_core::ledger::{Notice, PriorState, RepoId, Tick, Time};
use gapless_store::change::{RecordOp, RecordValue, RecordsKind};
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use gapless_store::table::log::SourceEvent;
use gapless_store::table::parked::ParkedFrame;

use crate::desk::draft::{Draft, Words};
use crate::desk::judge::{self, Known};
use crate::services::Services;
use gapless_core::filter::Keep;
use gapless_net::public_key;

/// Where an event was read, and its bytes.
pub struct Arrival<'a> {
    pub origin: Origin,
    pub seq: u64,
    pub bytes: &'a Bytes,
}

/// Decisions, as the ledger takes them.
impl Draft {
    /// One event.
    pub fn event(
        &mut self,
        services: &Services,
        arrival: &Arrival<'_>,
        event: &Event,
        ops: &[CheckedOp<'_>],
        block: &[u8],
    ) {
        let now = services.clock.now();
        let rev = match event {
            Event::Signed { head, .. } | Event::Unresolved { claimed: head, .. } => head.rev,
            _ => Rev::from_bits(0),
        };
        let in_all = services.totals.parked_bytes.load(Ordering::Relaxed);
        let room = event::parked_totals(&self.parked, rev, in_all);
        let (repo, notices) = (&mut self.repo, &mut self.notices);
        let decision = services.decide(now, |context| {
            event::decide(context, repo, arrival.origin, event, &room, notices)
        });
        if matches!(event, Event::Account(_)) {
            let source = SourceEvent {
                upstream: arrival.origin.upstream,
                seq: arrival.seq,
            };
            self.told_by = Some((source, arrival.bytes.to_vec()));
        }
        match decision {
            Decision::Pass => {}
            Decision::Apply => {
                let proved = matches!(
                    event,
                    Event::Signed {
                        before: PriorState::Root(_),
                        ..
                    }
                );
                self.apply(services, now.time, arrival, ops, proved, block);
            }
            Decision::Park(parked) => {
                let rev = parked.head.rev;
                if self.parked.remove(&rev).is_some() {
                    self.kept.remove(&rev);
                    let why = DropReason::SameRev;
                    self.notices.push(Notice::ParkedDropped { rev, why });
                }
                self.keep(ParkedFrame {
                    parked,
                    upstream: arrival.origin.upstream,
                    epoch: arrival.origin.epoch,
                    frame: arrival.bytes.to_vec(),
                });
            }
        }
    }

    fn apply(
        &mut self,
        services: &Services,
        at: Time,
        arrival: &Arrival<'_>,
        ops: &[CheckedOp<'_>],
        proved: bool,
        block: &[u8],
    ) {
        // Under another filter something may be held that is not wanted any more.
        let proved = proved && self.repo.filter == services.rules.settings.filter;
        let ops = record_ops(services, ops, proved);
        self.counts.applied += 1;
        self.counts.operations += ops.len() as u64;
        let words = Words {
            source: Some(SourceEvent {
                upstream: arrival.origin.upstream,
                seq: arrival.seq,
            }),
            commit: block.to_vec(),
            frame: Some(arrival.bytes.to_vec()),
        };
        self.write(at, RecordsKind::Live, ops, words);
    }

    /// Applies the parked frames whose time has come, and drops those whose time
    /// has passed. To be called after every move of the head, and after every
    /// answer.
    pub fn unpark(&mut self, services: &Services, view: &ReadView) -> Result<(), StoreError> {
        if self.is_shown_again() && !self.parked.is_empty() {
            // What waited follows on what those who follow us were not sent.
            self.tell_the_log_first(services.clock.time(), view);
        }
        let mut tried = Vec::new();
        while let Some(next) = parked::next_step(&self.repo, &self.parked, &tried) {
            match next {
                ParkedStep::Apply(rev) => self.apply_parked(services, view, rev)?,
                ParkedStep::Recompute(rev) => {
                    if self.recomputes(services, view, rev)? {
                        self.apply_parked(services, view, rev)?;
                    } else {
                        tried.push(rev);
                    }
                }
                ParkedStep::Drop(rev, why) => self.drop_frame(rev, why),
            }
        }
        Ok(())
    }

    fn apply_parked(
        &mut self,
        services: &Services,
        view: &ReadView,
        rev: Rev,
    ) -> Result<(), StoreError> {
        let Some(waiting) = self.take(view, rev)? else {
            return Ok(());
        };
        let bytes = Bytes::from(waiting.frame);
        let decoded = frame::decode(&bytes);
        let opened = match &decoded {
            Ok(frame::Event::Commit(event)) => match waiting.parked.before {
                PriorState::Untold => {
                    verify::reopen_commit(event).map(|(_, block, _)| (block, Vec::new()))
                }
                _ => verify::reopen_commit(event).map(|(_, block, ops)| (block, ops)),
            },
            Ok(frame::Event::Sync(event)) => {
                verify::reopen_sync(event).map(|(_, block)| (block, Vec::new()))
            }
            // Nothing else is ever parked: the row is damaged.
            _ => Err(verify::Fault::NoCommitCid),
        };
        let Ok((block, ops)) = opened else {
            // It was judged before it was parked, so it is damaged. What is owed
            // for it stays.
            let why = DropReason::Forged;
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
            seq: decoded
                .as_ref()
                .ok()
                .and_then(frame::Event::seq)
                .unwrap_or(0),
            bytes: &bytes,
        };
        let proved = matches!(waiting.parked.before, PriorState::Root(_));
        let at = services.clock.time();
        self.apply(services, at, &arrival, &ops, proved, block);
        Ok(())
    }

    /// Whether the operations of a frame lead from the held keys to its root.
    fn recomputes(
        &mut self,
        services: &Services,
        view: &ReadView,
        rev: Rev,
    ) -> Result<bool, StoreError> {
        if services.rules.settings.wanted_keys_only {
            return Ok(false);
        }
        let Some(id) = self.id else {
            return Ok(false);
        };
        let stored;
        let waiting = match self.kept.get(&rev) {
            Some(waiting) => waiting,
            None => match view.parked_frame(id, rev)? {
                None => return Ok(false),
                Some(found) => {
                    stored = found;
                    &stored
                }
            },
        };
        let Ok(frame::Event::Commit(event)) = frame::decode(&waiting.frame) else {
            return Ok(false);
        };
        let Ok((_, _, ops)) = verify::reopen_commit(&event) else {
            return Ok(false);
        };
        let mut changed = self.changed.clone();
        for op in &ops {
            changed.insert(op.path.as_bytes().to_vec(), op.cid);
        }
        let root = root_with(view, id, &changed)?;
        // A deletion of what is not held is no operation that we can vouch for.
        for op in ops.iter().filter(|op| op.cid.is_none()) {
            let path = op.path.as_bytes();
            let held = match self.changed.get(path) {
                Some(cid) => cid.is_some(),
                None => view.record(id, path)?.is_some(),
            };
            if !held {
                return Ok(false);
            }
        }
        Ok(root == Some(waiting.parked.head.data))
    }

    /// The directory has answered a question that was asked at `asked`.
    pub fn resolved(
        &mut self,
        services: &Services,
        view: &ReadView,
        asked: Tick,
        document: &Document,
    ) -> Result<(), StoreError> {
        let now = services.clock.now();
        let old = document.version < self.repo.document;
        let (repo, notices) = (&mut self.repo, &mut self.notices);
        services.decide(now, |context| {
            identity::resolved(now, repo, context.covers, asked, document, notices);
        });
        if !old {
            if !self.parked.is_empty() {
                self.tell_the_log_first(now.time, view);
            }
            self.judge_again(services, view)?;
        }
        self.unpark(services, view)
    }

    /// Frames that nobody could judge are judged now that the key is known.
    fn judge_again(&mut self, services: &Services, view: &ReadView) -> Result<(), StoreError> {
        let Some(signing) = self.repo.signing else {
            return Ok(());
        };
        let key = signing.key.as_ref().and_then(public_key);
        let still_owed = self.repo.debt.resolve.is_some();
        for rev in parked::unjudged_revs(&self.parked) {
            let Some(waiting) = self.look(view, rev)? else {
                self.drop_frame(rev, DropReason::Superseded);
                continue;
            };
            // Its stream may not be followed any more: then nobody else could tell.
            let origin = waiting.parked.origin;
            if self.repo.host.is_some() && origin.is_some() && origin != self.repo.host {
                self.drop_frame(rev, DropReason::OtherHost);
                continue;
            }
            let bytes = Bytes::from(waiting.frame);
            let Ok(event) = frame::decode(&bytes) else {
                self.drop_frame(rev, DropReason::Forged);
                continue;
            };
            // Judged as if it had been read before the question, so that another
            // key is not taken for a forgery while the directory is still owed.
            let read = match still_owed {
                true => signing.asked,
                false => Tick(0),
            };
            let known = Known {
                key: key.as_ref(),
                signing: Some(&signing),
            };
            let now = services.clock.time();
            let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let judged = judge::judge(&event, Some(&self.repo), &known, read, now, size);
            match judged.event {
                Some(Event::Unresolved { .. }) => {}
                Some(Event::Unsigned) => self.drop_frame(rev, DropReason::Forged),
                None => self.drop_frame(rev, DropReason::Superseded),
                Some(told) => {
                    self.take(view, rev)?;
                    self.counts.unparked += 1;
                    let arrival = Arrival {
                        origin: Origin {
                            upstream: waiting.upstream,
                            epoch: None,
                        },
                        seq: event.seq().unwrap_or(0),
                        bytes: &bytes,
                    };
                    self.event(services, &arrival, &told, &judged.ops, judged.block);
                }
            }
        }
        Ok(())
    }

    /// A frame that waits, with its bytes.
    fn look(&self, view: &ReadView, rev: Rev) -> Result<Option<ParkedFrame>, StoreError> {
        if let Some(frame) = self.kept.get(&rev) {
            return Ok(Some(frame.clone()));
        }
        match self.id {
            None => Ok(None),
            Some(id) => view.parked_frame(id, rev),
        }
    }
}

/// Operations as the store takes them, as far as they are wanted. `proved`: the
/// tree shows that nothing was where a create puts something.
pub fn record_ops(services: &Services, ops: &[CheckedOp<'_>], proved: bool) -> Vec<RecordOp> {
    let wanted = ops.iter().filter_map(|op| {
        let path = op.path.as_bytes();
        let keep = services.rules.filter.keep(path);
        if keep == Keep::Nothing {
            return None;
        }
        let put = op.cid.map(|cid| RecordValue {
            cid,
            bytes: match keep {
                Keep::Record => op.record.map(<[u8]>::to_vec),
                Keep::Key | Keep::Nothing => None,
            },
        });
        Some(RecordOp {
            path: path.to_vec(),
            put,
            fresh: proved && op.action == Action::Create,
        })
    });
    wanted.collect()
}

/// The root of what is held with some keys changed; none if they make no tree.
fn root_with(
    view: &ReadView,
    id: RepoId,
    changed: &BTreeMap<Vec<u8>, Option<Cid>>,
) -> Result<Option<Cid>, StoreError> {
    let mut builder = Builder::new(|_| {});
    let mut changed = changed.iter().peekable();
    for record in view.records(id) {
        let record = record?;
        let mut replaced = false;
        while let Some((path, cid)) = changed.next_if(|(path, _)| path.as_slice() <= record.path())
        {
            replaced |= path.as_slice() == record.path();
            if let Some(cid) = cid
                && builder.push(path, *cid).is_err()
            {
                return Ok(None);
            }
        }
        if !replaced && builder.push(record.path(), record.cid).is_err() {
            return Ok(None);
        }
    }
    for (path, cid) in changed {
        if let Some(cid) = cid
            && builder.push(path, *cid).is_err()
        {
            return Ok(None);
        }
    }
    Ok(Some(builder.finish()))
}
