//! What was decided goes to the store, step after step, and what it was decided
//! from becomes the row at hand.

use gapless_core::repo_tx::RepoTx;
use gapless_store::change::{Change, DeadChange};
use gapless_store::table::dead::DeadLetter;

use crate::desk::env::sync_frame;
use crate::desk::report::report;
use crate::desk::route::Answer;
use crate::desk::slot::Flight;
use crate::desk::worker::Worker;
use crate::desk::{Arrived, Then};
use crate::failpoints;

impl Worker {
    /// An event is decided: its changes go to the store.
    pub(crate) fn finish(
        &mut self,
        place: usize,
        tx: Option<RepoTx>,
        event: Option<Box<Arrived>>,
        dead: Option<DeadLetter>,
    ) {
        let dead = dead.and_then(|letter| {
            let kept = self.services.totals.take_dead_letter();
            if !kept {
                self.services.metrics.dead_letters.inc();
            }
            kept.then_some(letter)
        });
        self.submit(place, tx, event, None, dead);
    }

    pub(crate) fn submit(
        &mut self,
        place: usize,
        tx: Option<RepoTx>,
        event: Option<Box<Arrived>>,
        then: Option<Then>,
        dead: Option<DeadLetter>,
    ) {
        let services = self.services.clone();
        let now = services.clock.now();
        let position = event.as_ref().and_then(|event| event.position);
        let mut changes = match tx {
            None => Vec::new(),
            Some(tx) => self.take_over(place, tx, now),
        };
        if let Some(letter) = dead {
            // With the doubt that it casts, or not at all: the cursor goes with it.
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
            self.tell(place, then);
            return;
        }
        let last = changes.len() - 1;
        let stands_on = self.stands_on(place);
        let mut carried = Some((event, then));
        for (count, mut change) in changes.into_iter().enumerate() {
            let (event, then) = match count == last {
                true => carried.take().unwrap_or_default(),
                false => (None, None),
            };
            self.next_number += 1;
            let number = self.next_number;
            change.stands_on = Some(stands_on);
            let letter = matches!(change.dead, Some(DeadChange::New(_)));
            if let Some(slot) = self.slots.get(place) {
                slot.flights.push_back(Flight {
                    number,
                    stands_on,
                    letter,
                    event,
                    then,
                });
            }
            let inbox = self.inbox.clone();
            services.store.submit(change, move |result| {
                failpoints::here("event.durable");
                inbox.answer(Answer {
                    slot: place,
                    number,
                    result,
                });
            });
        }
    }

    /// Nothing changes. But what it was decided from may be on its way, and may yet be
    /// refused: then that is told.
    fn tell(&mut self, place: usize, then: Option<Then>) {
        let Some(then) = then else {
            return;
        };
        let slot = self.slots.get(place);
        let Some(last) = slot.and_then(|slot| slot.flights.back_mut()) else {
            then(Ok(()));
            return;
        };
        last.then = Some(match last.then.take() {
            None => then,
            Some(first) => Box::new(move |told| {
                first(told.clone());
                then(told);
            }),
        });
    }

    /// Ends a transaction: its row becomes the one at hand, its notices are counted.
    fn take_over(
        &mut self,
        place: usize,
        tx: RepoTx,
        now: gapless_core::ledger::Now,
    ) -> Vec<Change> {
        let services = &self.services;
        let finished = tx.finish(now.time, |frame| sync_frame(services, &frame));
        let (repo, counts) = (finished.repo, finished.counts);
        report(services, &repo, &finished.notices);
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
        let Some(slot) = self.slots.get(place) else {
            return changes;
        };
        if let Some(parked) = finished.parked {
            let bytes = parked.values().map(|one| u64::from(one.bytes)).sum();
            slot.count_parked(&services.totals.parked_bytes, bytes);
            slot.has_parked = !parked.is_empty();
            if let Some(id) = slot.id {
                match slot.has_parked {
                    true => self.waiting.insert(id),
                    false => self.waiting.remove(&id),
                };
            }
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

    /// What is on its way for a repository goes together: when room was lacking for
    /// one, those behind it are refused even if there is room for them.
    fn stands_on(&mut self, place: usize) -> u64 {
        let first = self.slots.get(place).and_then(|slot| slot.flights.front());
        let counted = first.map(|first| first.stands_on);
        counted.unwrap_or_else(|| self.services.store.refusals())
    }
}
