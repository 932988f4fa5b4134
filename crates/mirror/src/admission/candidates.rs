//! Names that were found by a collection and that nobody has asked about yet: bounded,
//! because anybody can make up more.
//!
//! One that came by a stream keeps its place in the stream until it is settled: the
//! cursor does not pass it before it is tracked, durably, or known to be nobody. That
//! holds as well when it waited already because a listing named it. What finds no place
//! here is counted; listings, or its next operation, bring it again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gapless_atp::syntax::Did;
use gapless_store::cursor::EventPosition;
use tokio::sync::Notify;

/// Names that wait.
const MAX_CANDIDATES: usize = 8192;
/// Of these: places that listings, which can wait, leave to streams.
const RESERVED_FOR_STREAMS: usize = 4096;

/// A repository that is said to have a record in a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub did: Did,
    /// As it was asked for.
    pub collection: Arc<str>,
    /// Its place in a stream, which waits for it.
    pub position: Option<EventPosition>,
    /// When it was found.
    pub since: Instant,
}

/// Those that wait.
#[derive(Default)]
pub struct Candidates {
    inner: Mutex<Inner>,
    /// One has come.
    pub arrived: Notify,
    /// There is room for more.
    freed: Notify,
}

#[derive(Default)]
struct Inner {
    /// From streams, which wait for them.
    live: VecDeque<Did>,
    listed: VecDeque<Did>,
    /// These, and those that are being asked about.
    all: HashMap<Did, PendingCandidate>,
}

struct PendingCandidate {
    collection: Arc<str>,
    since: Instant,
    /// Its first place in each stream that brought it, one for a stream. While the
    /// first is not done no cursor passes any later one, so those need no keeping.
    held: Vec<EventPosition>,
    /// It is being asked about.
    asked: bool,
}

/// What became of one that a stream brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Offered {
    Taken,
    /// It waits already, and its stream waits for it. This place, if any, need not be
    /// held for that.
    Known(Option<EventPosition>),
    Full,
}

impl Candidates {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here can panic half way.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From a stream, which waits for nobody.
    pub fn offer(&self, candidate: Candidate) -> Offered {
        let offered = self.lock().put(candidate, MAX_CANDIDATES);
        if offered == Offered::Taken {
            self.arrived.notify_one();
        }
        offered
    }

    /// From a listing, which waits for room.
    pub async fn offer_when_free(&self, candidate: Candidate) {
        loop {
            let offered = self
                .lock()
                .put(candidate.clone(), MAX_CANDIDATES - RESERVED_FOR_STREAMS);
            match offered {
                Offered::Full => self.freed.notified().await,
                Offered::Known(_) => return,
                Offered::Taken => {
                    self.arrived.notify_one();
                    return;
                }
            }
        }
    }

    /// The next to be asked about; [`Candidates::tracked`] or [`Candidates::nobody`]
    /// follows.
    pub fn take(&self) -> Option<Candidate> {
        let mut inner = self.lock();
        let next = inner.live.pop_front();
        let did = next.or_else(|| inner.listed.pop_front())?;
        let waiting = inner.all.get_mut(&did)?;
        waiting.asked = true;
        Some(waiting.as_candidate(&did))
    }

    /// It is tracked, durably. Returns the places that waited for that.
    pub fn mark_tracked(&self, did: &Did) -> Vec<EventPosition> {
        let settled = self.lock().all.remove(did);
        self.freed.notify_one();
        settled.map(|waiting| waiting.held).unwrap_or_default()
    }

    /// It is nobody, or nobody can say: it may be found anew. Returns the places that
    /// waited for that; or it as it is now, if a listing alone had named it when it was
    /// asked about, and a stream has brought it since: that is to be asked anew.
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

    /// Whoever asked is gone: those that were being asked about wait again.
    pub fn ask_again(&self) {
        let mut inner = self.lock();
        let Inner { live, listed, all } = &mut *inner;
        for (did, waiting) in all.iter_mut().filter(|(_, waiting)| waiting.asked) {
            waiting.asked = false;
            match waiting.held.is_empty() {
                true => listed.push_back(did.clone()),
                false => live.push_back(did.clone()),
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

    /// A stream brings it, again or for the first time. Returns the place that need
    /// not be held.
    fn hold(&mut self, position: EventPosition) -> Option<EventPosition> {
        let mut held = self.held.iter_mut();
        let Some(first) = held.find(|one| one.upstream == position.upstream) else {
            self.held.push(position);
            return None;
        };
        let place = |one: &EventPosition| (one.numbering, one.seq);
        if place(first) == place(&position) {
            // Read again after a fault: the same place.
            return None;
        }
        // Of an older numbering nothing holds a cursor any more.
        let instead = match position.numbering == first.numbering {
            true => position.seq < first.seq,
            false => position.numbering > first.numbering,
        };
        Some(match instead {
            true => std::mem::replace(first, position),
            false => position,
        })
    }
}

impl Inner {
    fn put(&mut self, candidate: Candidate, most: usize) -> Offered {
        let Candidate {
            did,
            collection,
            position,
            since,
        } = candidate;
        if let Some(waiting) = self.all.get_mut(&did) {
            let Some(position) = position else {
                return Offered::Known(None);
            };
            let was_listed = waiting.held.is_empty();
            let free = waiting.hold(position);
            if was_listed {
                // From now on a stream waits for it.
                (waiting.collection, waiting.since) = (collection, since);
                if !waiting.asked {
                    self.listed.retain(|one| *one != did);
                    self.live.push_back(did);
                }
            }
            return Offered::Known(free);
        }
        if self.all.len() >= most {
            return Offered::Full;
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
        Offered::Taken
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
        assert_eq!(all.offer(live(2, first)), Offered::Known(None), "held");
        assert_eq!(all.offer(live(2, later)), Offered::Known(Some(later)));
        assert_eq!(
            all.offer(live(2, first)),
            Offered::Known(None),
            "read again, it does not pass itself"
        );
        let other = place(2, 3);
        assert_eq!(all.offer(live(2, other)), Offered::Known(None));
        let earlier = place(2, 1);
        assert_eq!(all.offer(live(2, earlier)), Offered::Known(Some(other)));
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
        assert_eq!(all.offer(live(1, at)), Offered::Known(None));
        let stronger = all.reject(&asked).expect_err("it is asked anew");
        assert_eq!(stronger.position, Some(at));
        assert_eq!(all.take(), None, "by whoever asks already");
        assert_eq!(
            all.offer(live(1, place(1, 8))),
            Offered::Known(Some(place(1, 8)))
        );
        assert_eq!(all.reject(&stronger), Ok(vec![at]), "once");
        assert_eq!(all.offer(live(1, place(1, 9))), Offered::Taken);
    }

    #[tokio::test]
    async fn when_whoever_asks_ends_by_a_fault_nobody_is_forgotten() {
        let all = Candidates::default();
        all.offer_when_free(candidate(1)).await;
        assert_eq!(all.offer(live(2, place(1, 7))), Offered::Taken);
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
            assert_eq!(all.offer(candidate(number)), Offered::Taken);
        }
        assert_eq!(all.offer(candidate(1)), Offered::Known(None));
        assert_eq!(all.offer(candidate(MAX_CANDIDATES * 3)), Offered::Full);
        let urgent = Candidate {
            position: Some(place(1, 7)),
            ..candidate(MAX_CANDIDATES * 2)
        };
        assert_eq!(all.offer(urgent.clone()), Offered::Full);
        let listed = all.take().expect("there are many");
        all.mark_tracked(&listed.did);
        assert_eq!(all.offer(urgent.clone()), Offered::Taken);
        assert_eq!(all.take(), Some(urgent), "a stream waits for it");
        let first = all.take().expect("there are many");
        assert_eq!(
            all.offer(first.clone()),
            Offered::Known(None),
            "it is asked about"
        );
        all.mark_tracked(&first.did);
        assert_eq!(all.offer(first), Offered::Taken);
    }
}
