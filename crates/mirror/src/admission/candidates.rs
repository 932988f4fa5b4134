//! Repositories that were found by a collection and whose DID the directory has not been
//! asked about yet. The queue is bounded, because an attacker can make up any number of
//! names.
//!
//! A candidate that a stream brought holds its position in the stream: the cursor does not
//! pass the position before the repository is durably tracked or known not to exist. This
//! also holds for a candidate that a listing had named before. Candidates that find no room
//! are counted; a listing, or their next operation, brings them again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

use gapless_atp::syntax::Did;
use gapless_store::cursor::EventPosition;
use gapless_store::sync::Mutex;
use tokio::sync::Notify;

/// Candidates that wait or are being resolved.
const MAX_CANDIDATES: usize = 8192;
/// Places among [`MAX_CANDIDATES`] that are reserved for streams. Listings can wait.
const RESERVED_FOR_STREAMS: usize = 4096;

/// A repository that is said to have a record in a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub did: Did,
    /// The collection as the configuration names it.
    pub collection: Arc<str>,
    /// The position in a stream whose cursor waits for the candidate.
    pub position: Option<EventPosition>,
    /// When the repository was found.
    pub since: Instant,
}

/// The queue of candidates.
#[derive(Default)]
pub struct Candidates {
    inner: Mutex<Inner>,
    /// Notified when a candidate arrives.
    pub arrived: Notify,
    /// Notified when there is room for a listed candidate.
    freed: Notify,
}

#[derive(Default)]
struct Inner {
    /// Candidates that a stream brought; its cursor waits for them.
    live: VecDeque<Did>,
    listed: VecDeque<Did>,
    /// The candidates of both queues, and those that are being resolved.
    all: HashMap<Did, PendingCandidate>,
}

/// A candidate that waits or is being resolved.
struct PendingCandidate {
    collection: Arc<str>,
    since: Instant,
    /// The first position in each stream that brought the candidate. No cursor passes a
    /// later position while the first is open, so only the first is kept.
    held: Vec<EventPosition>,
    /// Whether the directory is being asked.
    asked: bool,
}

/// The result of offering a candidate.
#[derive(Debug, PartialEq, Eq)]
pub enum OfferResult {
    Taken,
    /// The candidate is queued already. Contains the position that need not be held, if any.
    Known(Option<EventPosition>),
    Full,
}

impl Candidates {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Offers a candidate of a stream, without waiting.
    pub fn offer(&self, candidate: Candidate) -> OfferResult {
        let offered = self.lock().put(candidate, MAX_CANDIDATES);
        if offered == OfferResult::Taken {
            self.arrived.notify_one();
        }
        offered
    }

    /// Offers a candidate of a listing, and waits until there is room.
    pub(crate) async fn offer_when_free(&self, candidate: Candidate) {
        loop {
            let offered = self
                .lock()
                .put(candidate.clone(), MAX_CANDIDATES - RESERVED_FOR_STREAMS);
            match offered {
                OfferResult::Full => self.freed.notified().await,
                OfferResult::Known(_) => return,
                OfferResult::Taken => {
                    self.arrived.notify_one();
                    return;
                }
            }
        }
    }

    /// Takes the next candidate to resolve. The caller must report the result with
    /// [`Candidates::mark_tracked`] or [`Candidates::reject`].
    pub fn take(&self) -> Option<Candidate> {
        let mut inner = self.lock();
        let next = inner.live.pop_front();
        let did = next.or_else(|| inner.listed.pop_front())?;
        let waiting = inner.all.get_mut(&did)?;
        waiting.asked = true;
        Some(waiting.as_candidate(&did))
    }

    /// Removes a repository that is durably tracked now. Returns the positions to release.
    pub(crate) fn mark_tracked(&self, did: &Did) -> Vec<EventPosition> {
        let settled = self.lock().all.remove(did);
        self.freed.notify_one();
        settled.map(|waiting| waiting.held).unwrap_or_default()
    }

    /// Removes a candidate that does not exist or could not be resolved; it may be found
    /// again. Returns the positions to release. Fails with the present candidate if only a
    /// listing had named it and a stream has brought it since: it must be resolved again.
    pub fn reject(&self, asked: &Candidate) -> Result<Vec<EventPosition>, Candidate> {
        let mut inner = self.lock();
        if let Some(waiting) = inner.all.get(&asked.did)
            && asked.position.is_none()
            && !waiting.held.is_empty()
        {
            return Err(waiting.as_candidate(&asked.did));
        }
        let settled = inner.all.remove(&asked.did);
        drop(inner);
        self.freed.notify_one();
        Ok(settled.map(|waiting| waiting.held).unwrap_or_default())
    }

    /// Enqueues the candidates that were being resolved when the task that resolves them
    /// failed.
    pub(crate) fn ask_again(&self) {
        let mut inner = self.lock();
        let Inner { live, listed, all } = &mut *inner;
        for (did, waiting) in all.iter_mut().filter(|(_, waiting)| waiting.asked) {
            waiting.asked = false;
            if waiting.held.is_empty() {
                listed.push_back(did.clone())
            } else {
                live.push_back(did.clone())
            }
        }
    }
}

impl PendingCandidate {
    fn as_candidate(&self, did: &Did) -> Candidate {
        Candidate {
            did: did.clone(),
            collection: self.collection.clone(),
            position: self.held.first().copied(),
            since: self.since,
        }
    }

    /// Holds the position at which a stream brought the candidate. Returns the position
    /// that need not be held.
    fn hold(&mut self, position: EventPosition) -> Option<EventPosition> {
        let mut held = self.held.iter_mut();
        let Some(first) = held.find(|one| one.upstream == position.upstream) else {
            self.held.push(position);
            return None;
        };
        let place = |one: &EventPosition| (one.numbering, one.seq);
        if place(first) == place(&position) {
            // The same event, read again after a fault.
            return None;
        }
        // Positions of an older numbering hold no cursor any more.
        let instead = if position.numbering == first.numbering {
            position.seq < first.seq
        } else {
            position.numbering > first.numbering
        };
        Some(if instead {
            std::mem::replace(first, position)
        } else {
            position
        })
    }
}

impl Inner {
    fn put(&mut self, candidate: Candidate, most: usize) -> OfferResult {
        let Candidate {
            did,
            collection,
            position,
            since,
        } = candidate;
        if let Some(waiting) = self.all.get_mut(&did) {
            let Some(position) = position else {
                return OfferResult::Known(None);
            };
            let was_listed = waiting.held.is_empty();
            let free = waiting.hold(position);
            if was_listed {
                // From now on the cursor of a stream waits for the candidate.
                (waiting.collection, waiting.since) = (collection, since);
                if !waiting.asked {
                    self.listed.retain(|one| *one != did);
                    self.live.push_back(did);
                }
            }
            return OfferResult::Known(free);
        }
        if self.all.len() >= most {
            return OfferResult::Full;
        }
        match position {
            Some(_) => self.live.push_back(did.clone()),
            None => self.listed.push_back(did.clone()),
        }
        let waiting = PendingCandidate {
            collection,
            since,
            held: position.into_iter().collect(),
            asked: false,
        };
        self.all.insert(did, waiting);
        OfferResult::Taken
    }
}

#[cfg(test)]
mod tests {
    use gapless_core::ledger::UpstreamId;

    use super::*;

    fn candidate(number: usize) -> Candidate {
        let did = format!("did:web:host{number}.example.com");
        Candidate {
            did: Did::parse(&did).expect("a DID"),
            collection: "app.bsky.feed.post".into(),
            position: None,
            since: Instant::now(),
        }
    }

    fn place(upstream: u32, seq: u64) -> EventPosition {
        EventPosition {
            upstream: UpstreamId(upstream),
            numbering: 0,
            seq,
            event: [0; 16],
        }
    }

    fn live(number: usize, position: EventPosition) -> Candidate {
        Candidate {
            position: Some(position),
            ..candidate(number)
        }
    }

    #[tokio::test]
    async fn a_stream_waits_for_one_that_a_listing_named_before() {
        let all = Candidates::default();
        all.offer_when_free(candidate(1)).await;
        all.offer_when_free(candidate(2)).await;
        let (first, later) = (place(1, 7), place(1, 9));
        assert_eq!(all.offer(live(2, first)), OfferResult::Known(None), "held");
        assert_eq!(all.offer(live(2, later)), OfferResult::Known(Some(later)));
        assert_eq!(
            all.offer(live(2, first)),
            OfferResult::Known(None),
            "read again, it does not pass itself"
        );
        let other = place(2, 3);
        assert_eq!(all.offer(live(2, other)), OfferResult::Known(None));
        let earlier = place(2, 1);
        assert_eq!(all.offer(live(2, earlier)), OfferResult::Known(Some(other)));
        let next = all.take().expect("two wait");
        assert_eq!(next.did, candidate(2).did, "a stream waits for it");
        assert_eq!(next.position, Some(first));
        assert_eq!(all.mark_tracked(&next.did), [first, earlier]);
        assert_eq!(all.take().map(|one| one.did), Some(candidate(1).did));
        assert_eq!(all.take(), None, "each waits once");
    }

    #[tokio::test]
    async fn what_is_said_of_a_listed_one_is_not_said_of_one_that_a_stream_brought_since() {
        let all = Candidates::default();
        all.offer_when_free(candidate(1)).await;
        let asked = all.take().expect("it waits");
        let at = place(1, 7);
        assert_eq!(all.offer(live(1, at)), OfferResult::Known(None));
        let stronger = all.reject(&asked).expect_err("it is asked anew");
        assert_eq!(stronger.position, Some(at));
        assert_eq!(all.take(), None, "by whoever asks already");
        assert_eq!(
            all.offer(live(1, place(1, 8))),
            OfferResult::Known(Some(place(1, 8)))
        );
        assert_eq!(all.reject(&stronger), Ok(vec![at]), "once");
        assert_eq!(all.offer(live(1, place(1, 9))), OfferResult::Taken);
    }

    #[tokio::test]
    async fn after_a_panic_of_the_asking_task_every_candidate_is_asked_again() {
        let all = Candidates::default();
        all.offer_when_free(candidate(1)).await;
        assert_eq!(all.offer(live(2, place(1, 7))), OfferResult::Taken);
        let asked = (all.take(), all.take());
        assert!(asked.1.is_some() && all.take().is_none());
        all.ask_again();
        assert_eq!((all.take(), all.take()), asked);
    }

    #[tokio::test]
    async fn they_are_bounded_and_listings_leave_places_to_streams() {
        let all = Candidates::default();
        for number in 0..MAX_CANDIDATES - RESERVED_FOR_STREAMS {
            all.offer_when_free(candidate(number)).await;
        }
        let waits = tokio::time::timeout(
            std::time::Duration::from_millis(20),
            all.offer_when_free(candidate(MAX_CANDIDATES)),
        );
        assert!(waits.await.is_err(), "a listing waits");
        for number in MAX_CANDIDATES..MAX_CANDIDATES + RESERVED_FOR_STREAMS {
            assert_eq!(all.offer(candidate(number)), OfferResult::Taken);
        }
        assert_eq!(all.offer(candidate(1)), OfferResult::Known(None));
        assert_eq!(all.offer(candidate(MAX_CANDIDATES * 3)), OfferResult::Full);
        let urgent = Candidate {
            position: Some(place(1, 7)),
            ..candidate(MAX_CANDIDATES * 2)
        };
        assert_eq!(all.offer(urgent.clone()), OfferResult::Full);
        let listed = all.take().expect("there are many");
        all.mark_tracked(&listed.did);
        assert_eq!(all.offer(urgent.clone()), OfferResult::Taken);
        assert_eq!(all.take(), Some(urgent), "a stream waits for it");
        let first = all.take().expect("there are many");
        assert_eq!(
            all.offer(first.clone()),
            OfferResult::Known(None),
            "it is asked about"
        );
        all.mark_tracked(&first.did);
        assert_eq!(all.offer(first), OfferResult::Taken);
    }
}
