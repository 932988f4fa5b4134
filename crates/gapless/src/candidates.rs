//! Names that were found by a collection and that nobody has asked about yet: bounded,
//! because anybody can make up more.
//!
//! One that came by a stream keeps its place in the stream until it is settled: the
//! cursor does not pass it before it is tracked, durably, or known to be nobody. What
//! finds no place here is counted; listings, or its next operation, bring it again.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use gapless_atp::syntax::Did;
use gapless_store::cursor::Position;
use tokio::sync::Notify;

/// Names that wait.
const WAITING: usize = 8192;
/// Of these: places that listings, which can wait, leave to streams.
const FOR_STREAMS: usize = 4096;

/// A repository that is said to have a record in a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub did: Did,
    /// As it was asked for.
    pub collection: Arc<str>,
    /// Its place in a stream, which waits for it.
    pub position: Option<Position>,
    /// When it was found.
    pub since: Instant,
}

/// Those that wait.
#[derive(Default)]
pub struct Candidates {
    kept: Mutex<Kept>,
    /// One has come.
    pub came: Notify,
    /// There is room for more.
    room: Notify,
}

#[derive(Default)]
struct Kept {
    /// From streams, which wait for them.
    live: VecDeque<Candidate>,
    listed: VecDeque<Candidate>,
    /// These, and those that are being asked about.
    names: HashSet<Did>,
}

/// What became of one that a stream brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Offered {
    Taken,
    /// It waits already: nothing new is told.
    Known,
    Full,
}

impl Candidates {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing in here can panic half way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From a stream, which waits for nobody.
    pub fn offer(&self, candidate: Candidate) -> Offered {
        let offered = self.lock().put(candidate, WAITING);
        if offered == Offered::Taken {
            self.came.notify_one();
        }
        offered
    }

    /// From a listing, which waits for room.
    pub async fn bring(&self, candidate: Candidate) {
        loop {
            let offered = self.lock().put(candidate.clone(), WAITING - FOR_STREAMS);
            match offered {
                Offered::Full => self.room.notified().await,
                Offered::Known => return,
                Offered::Taken => {
                    self.came.notify_one();
                    return;
                }
            }
        }
    }

    /// The next to be asked about; [`Candidates::settled`] follows.
    pub fn take(&self) -> Option<Candidate> {
        let mut kept = self.lock();
        kept.live.pop_front().or_else(|| kept.listed.pop_front())
    }

    /// It is tracked, or nobody: it may be found anew.
    pub fn settled(&self, did: &Did) {
        self.lock().names.remove(did);
        self.room.notify_one();
    }
}

impl Kept {
    fn put(&mut self, candidate: Candidate, most: usize) -> Offered {
        if self.names.contains(&candidate.did) {
            return Offered::Known;
        }
        if self.names.len() >= most {
            return Offered::Full;
        }
        self.names.insert(candidate.did.clone());
        match candidate.position {
            Some(_) => self.live.push_back(candidate),
            None => self.listed.push_back(candidate),
        }
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

    #[tokio::test]
    async fn they_are_bounded_and_listings_leave_places_to_streams() {
        let all = Candidates::default();
        for number in 0..WAITING - FOR_STREAMS {
            all.bring(candidate(number)).await;
        }
        let waits = tokio::time::timeout(
            std::time::Duration::from_millis(20),
            all.bring(candidate(WAITING)),
        );
        assert!(waits.await.is_err(), "a listing waits");
        for number in WAITING..WAITING + FOR_STREAMS {
            assert_eq!(all.offer(candidate(number)), Offered::Taken);
        }
        assert_eq!(all.offer(candidate(1)), Offered::Known);
        assert_eq!(all.offer(candidate(WAITING * 3)), Offered::Full);
        let urgent = Candidate {
            position: Some(Position {
                upstream: UpstreamId(1),
                numbering: 0,
                seq: 7,
                event: [0; 16],
            }),
            ..candidate(WAITING * 2)
        };
        assert_eq!(all.offer(urgent.clone()), Offered::Full);
        let listed = all.take().expect("there are many");
        all.settled(&listed.did);
        assert_eq!(all.offer(urgent.clone()), Offered::Taken);
        assert_eq!(all.take(), Some(urgent), "a stream waits for it");
        let first = all.take().expect("there are many");
        assert_eq!(
            all.offer(first.clone()),
            Offered::Known,
            "it is asked about"
        );
        all.settled(&first.did);
        assert_eq!(all.offer(first), Offered::Taken);
    }
}
