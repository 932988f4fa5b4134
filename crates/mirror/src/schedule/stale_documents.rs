//! Stale DID documents that no debt covers. Each is refreshed once, however many events
//! report it meanwhile, and failed refreshes are retried with backoff.

use std::collections::{BTreeSet, HashMap};

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Tick, Time, debt};

/// Documents that wait for a refresh. Beyond this number a document is queued by its next
/// event.
const MAX_DOCUMENTS: usize = 10_000;

#[derive(Default)]
pub(super) struct StaleDocuments {
    /// The number of attempts for each document, and the time of the next one.
    attempts: HashMap<Did, (u32, Time)>,
    by_time: BTreeSet<(Time, Did)>,
}

impl StaleDocuments {
    /// Adds a stale document. Returns false if the document is known, or at capacity.
    pub(super) fn insert(&mut self, did: &Did) -> bool {
        let new = self.attempts.len() < MAX_DOCUMENTS && !self.attempts.contains_key(did);
        if new {
            self.put(did, 0, Time(0));
        }
        new
    }

    /// Returns the next document that is due and is not being resolved.
    pub(super) fn next(&self, now: Time, is_resolving: impl Fn(&Did) -> bool) -> Option<&Did> {
        let mut due = self.by_time.iter().take_while(|(at, _)| *at <= now);
        due.find(|(_, did)| !is_resolving(did)).map(|(_, did)| did)
    }

    /// Counts an attempt, and puts the next attempt off.
    pub(super) fn begin(&mut self, now: Time, did: &Did) {
        if let Some(attempts) = self.remove(did) {
            let attempts = attempts.saturating_add(1);
            // The schedule has no ticks; the time serves as the seed of the jitter.
            let wait = debt::backoff(attempts, Tick(now.0));
            self.put(did, attempts, now.after(wait));
        }
    }

    /// Removes a document and returns its number of attempts.
    pub(super) fn remove(&mut self, did: &Did) -> Option<u32> {
        let (attempts, at) = self.attempts.remove(did)?;
        self.by_time.remove(&(at, did.clone()));
        Some(attempts)
    }

    fn put(&mut self, did: &Did, attempts: u32, at: Time) {
        self.attempts.insert(did.clone(), (attempts, at));
        self.by_time.insert((at, did.clone()));
    }
}
