//! Skips events of repositories that are not wanted, and moves the cursor past them. An event in a
//! wanted collection makes its repository a candidate first.

use std::sync::Arc;
use std::time::Instant;

use gapless_atp::syntax::Did;
use gapless_store::cursor::EventPosition;

use crate::admission::candidates::{Candidate, OfferResult};
use crate::ingest::follow::Follower;

/// Events that are skipped before the cursor moves past them.
const MAX_SKIPPED: u32 = 512;

/// Events that were skipped since the cursor last moved past some.
#[derive(Default)]
pub(crate) struct SkippedEvents {
    count: u32,
    last: Option<(Did, EventPosition)>,
}

impl SkippedEvents {
    fn add(&mut self, did: Did, position: Option<EventPosition>) {
        self.count += 1;
        if let Some(position) = position {
            self.last = Some((did, position));
        }
    }
}

impl Follower {
    /// Skips an event of a repository that is not tracked, or keeps its place in the
    /// stream until its repository is tracked or known not to exist.
    pub(crate) fn skip(
        &self,
        did: Did,
        found: Option<Arc<str>>,
        position: Option<EventPosition>,
        skipped: &mut SkippedEvents,
    ) {
        if let Some(collection) = found
            && self.offer(&did, collection, position)
        {
            return;
        }
        self.services.metrics.events_skipped.inc();
        skipped.add(did, position);
        if skipped.count >= MAX_SKIPPED {
            self.flush_skipped(skipped);
        }
    }

    /// Makes the repository of an event in a wanted collection a candidate. Returns
    /// whether the event's place in the stream is kept, so that the cursor does not pass
    /// it, until the repository is tracked or known not to exist.
    fn offer(&self, did: &Did, collection: Arc<str>, position: Option<EventPosition>) -> bool {
        let candidate = Candidate {
            did: did.clone(),
            collection,
            position,
            since: Instant::now(),
        };
        if let Some(position) = &position {
            self.begin(position);
        }
        let free = match self.services.admission.candidates.offer(candidate) {
            OfferResult::Taken => return true,
            OfferResult::Known(free) => free,
            OfferResult::Full => {
                self.services.metrics.found_dropped.inc();
                position
            }
        };
        if let Some(free) = free {
            // The position was begun, so it has to be done.
            self.desks.skip(did, free);
        }
        position.is_some()
    }

    /// Tells the store that an event has begun: the cursor stays below its number until
    /// the event is done.
    pub(crate) fn begin(&self, position: &EventPosition) {
        let EventPosition {
            upstream,
            numbering,
            seq,
            ..
        } = *position;
        self.services.store.begin(upstream, numbering, seq);
    }

    /// Lets the cursor move past the skipped events.
    pub(crate) fn flush_skipped(&self, skipped: &mut SkippedEvents) {
        if self.services.disk.shortage().is_some() {
            // A later call moves the cursor, once there is room on the disk.
            return;
        }
        if let Some((did, position)) = skipped.last.take() {
            self.begin(&position);
            self.desks.skip(&did, position);
        }
        skipped.count = 0;
    }
}
