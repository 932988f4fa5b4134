//! Submits the steps of a transaction to the store, one change after another, and makes the row
//! after the last step the slot's row.

use gapless_core::repo_tx::RepoTx;
use gapless_store::change::{Change, DeadChange};
use gapless_store::table::dead::DeadLetter;

use crate::desk::env::sync_frame;
use crate::desk::report::report_notices;
use crate::desk::route::StoreReply;
use crate::desk::slot::Flight;
use crate::desk::worker::Worker;
use crate::desk::{DurableReply, InboundEvent};
use crate::failpoints;

impl Worker {
    /// Submits what was decided about an event. A dead letter beyond the limit is counted
    /// and not kept.
    pub(crate) fn submit_event(
        &mut self,
        index: usize,
        tx: Option<RepoTx>,
        event: Option<Box<InboundEvent>>,
        dead: Option<DeadLetter>,
    ) {
        let dead = dead.and_then(|letter| {
            let kept = self.totals.take_dead_letter();
            if !kept {
                self.services.metrics.dead_letters.inc();
            }
            kept.then_some(letter)
        });
        self.submit(index, tx, event, None, dead);
    }

    /// Submits the steps of a transaction as changes. The last change carries the event's
    /// position, the dead letter and the reply.
    pub(crate) fn submit(
        &mut self,
        index: usize,
        tx: Option<RepoTx>,
        event: Option<Box<InboundEvent>>,
        reply: Option<DurableReply>,
        dead: Option<DeadLetter>,
    ) {
        let services = self.services.clone();
        let now = services.clock.now();
        let position = event.as_ref().and_then(|event| event.position);
        let mut changes = match tx {
            None => Vec::new(),
            Some(tx) => self.accept(index, tx, now),
        };
        if let Some(letter) = dead {
            // The letter, the debt that it causes and the position become durable together.
            let dead = Some(DeadChange::New(letter));
            match changes.last_mut() {
                Some(last) => last.dead = dead,
                None => changes.push(Change {
                    tick: now.tick,
                    dead,
                    ..Change::default()
                }),
            }
        }
        if let Some(done) = position {
            match changes.last_mut() {
                Some(last) => last.done = Some(done),
                None => changes.push(Change {
                    done: Some(done),
                    ..Change::default()
                }),
            }
        }
        if changes.is_empty() {
            self.reply_after_flights(index, reply);
            return;
        }
        let last = changes.len() - 1;
        let refusals_seen = self.refusals_seen(index);
        let mut carried = Some((event, reply));
        for (count, mut change) in changes.into_iter().enumerate() {
            let (event, reply) = if count == last {
                carried.take().unwrap_or_default()
            } else {
                (None, None)
            };
            self.next_number += 1;
            let number = self.next_number;
            change.refusals_seen = Some(refusals_seen);
            let letter = matches!(change.dead, Some(DeadChange::New(_)));
            if let Some(slot) = self.slots.get(index) {
                slot.flights.push_back(Flight {
                    number,
                    refusals_seen,
                    letter,
                    event,
                    reply,
                });
            }
            let inbox = self.inbox.clone();
            services.store.submit(change, move |result| {
                failpoints::here("event.durable");
                inbox.push_reply(StoreReply {
                    slot: index,
                    number,
                    result,
                });
            });
        }
    }

    /// Replies to a decision without changes once the last flight is answered, because the
    /// row that it was decided on may still be refused.
    fn reply_after_flights(&mut self, index: usize, reply: Option<DurableReply>) {
        let Some(reply) = reply else {
            return;
        };
        let slot = self.slots.get(index);
        let Some(last) = slot.and_then(|slot| slot.flights.back_mut()) else {
            reply(Ok(()));
            return;
        };
        last.reply = Some(match last.reply.take() {
            None => reply,
            Some(first) => Box::new(move |durable| {
                first(durable.clone());
                reply(durable);
            }),
        });
    }

    /// Finishes a transaction: its row becomes the slot's row, and its notices are counted.
    fn accept(&mut self, index: usize, tx: RepoTx, now: gapless_core::ledger::Now) -> Vec<Change> {
        let services = &self.services;
        let finished = tx.finish(now.time, |frame| sync_frame(services, &frame));
        let (repo, counts) = (finished.repo, finished.counts);
        report_notices(services, &repo, &finished.notices);
        let metrics = &services.metrics;
        metrics.events_applied.add(counts.applied);
        metrics.operations_applied.add(counts.operations);
        metrics.events_parked.add(counts.parked);
        metrics.events_unparked.add(counts.unparked);
        let steps = finished.steps.into_iter();
        let changes: Vec<Change> = steps
            .map(|step| Change {
                tick: now.tick,
                repo: Some(step),
                ..Change::default()
            })
            .collect();
        let Some(slot) = self.slots.get(index) else {
            return changes;
        };
        if let Some(parked) = finished.parked {
            slot.set_parked(&parked, &self.totals, &mut self.with_parked);
        }
        let owed = slot.repo.as_ref().map(|repo| repo.debt);
        if owed != Some(repo.debt) || slot.repo.as_ref().map(|repo| repo.host) != Some(repo.host) {
            services.schedule.note(now.time, &repo);
        }
        if !changes.is_empty() {
            slot.repo = Some(repo);
        }
        changes
    }

    /// The store's count of refusals that the changes of a slot stand on. All flights of a slot
    /// share it, so that the store refuses those behind a refused change even if the disk has
    /// room for them by then.
    fn refusals_seen(&mut self, index: usize) -> u64 {
        let first = self.slots.get(index).and_then(|slot| slot.flights.front());
        let counted = first.map(|first| first.refusals_seen);
        counted.unwrap_or_else(|| self.services.store.refusals())
    }
}
