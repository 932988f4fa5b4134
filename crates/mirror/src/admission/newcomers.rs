//! Repositories that nobody has heard of before an event told of them: how many of them
//! one upstream may make us write down before their documents are read. Anybody can make
//! up names, and each would be a row for ever, and questions to the directory.
//!
//! Beyond that the directory is asked first, and only a name that it knows is written
//! down. What came of it until then is passed over, with the cursor: nothing is held of
//! the repository and nothing is said of it, and once it is written down it is owed, and
//! fetched whole. What finds no place here either comes with its next event, or with the
//! sweep of its host. Counted since the start.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gapless_atp::syntax::Did;
use gapless_core::ledger::UpstreamId;
use tokio::sync::Notify;

/// Names of all upstreams together whose documents were not read yet.
const UNREAD_IN_ALL: usize = 300_000;
/// Names that wait until the directory is asked; and of these, of one upstream.
const WAITING: usize = 4096;
const WAITING_OF_ONE: usize = 1024;

pub struct Newcomers {
    /// Names of one upstream whose documents were not read yet.
    most: usize,
    kept: Mutex<Kept>,
    /// Somebody waits.
    pub came: Notify,
}

#[derive(Default)]
struct Kept {
    /// Written down, or about to be, and who told of them.
    unread: HashMap<Did, UpstreamId>,
    unread_of: HashMap<UpstreamId, usize>,
    waiting: VecDeque<(Did, UpstreamId)>,
    /// The same, to find them by.
    names: HashSet<Did>,
    waiting_of: HashMap<UpstreamId, usize>,
}

impl Newcomers {
    pub fn new(most: usize) -> Newcomers {
        Newcomers {
            most,
            kept: Mutex::default(),
            came: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing in here can panic half way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An upstream tells of somebody unknown. Whether they may be written down; if not,
    /// the directory is asked first, if there is a place.
    pub fn may_come(&self, upstream: UpstreamId, did: &Did) -> bool {
        let mut kept = self.lock();
        if kept.unread.contains_key(did) {
            return true;
        }
        let own = kept.unread_of.get(&upstream).copied().unwrap_or(0);
        if own < self.most && kept.unread.len() < UNREAD_IN_ALL {
            kept.unread.insert(did.clone(), upstream);
            *kept.unread_of.entry(upstream).or_default() += 1;
            return true;
        }
        let own = kept.waiting_of.get(&upstream).copied().unwrap_or(0);
        if own < WAITING_OF_ONE && kept.waiting.len() < WAITING && !kept.names.contains(did) {
            kept.names.insert(did.clone());
            kept.waiting.push_back((did.clone(), upstream));
            *kept.waiting_of.entry(upstream).or_default() += 1;
            drop(kept);
            self.came.notify_one();
        }
        false
    }

    /// A document was read.
    pub fn resolved(&self, did: &Did) {
        let mut kept = self.lock();
        if let Some(upstream) = kept.unread.remove(did) {
            one_less(&mut kept.unread_of, upstream);
        }
    }

    /// The next one about whom the directory is asked.
    pub fn take(&self) -> Option<Did> {
        let mut kept = self.lock();
        let (did, upstream) = kept.waiting.pop_front()?;
        kept.names.remove(&did);
        one_less(&mut kept.waiting_of, upstream);
        Some(did)
    }
}

fn one_less(counts: &mut HashMap<UpstreamId, usize>, upstream: UpstreamId) {
    if let Some(count) = counts.get_mut(&upstream) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&upstream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(number: usize) -> Did {
        Did::parse(&format!("did:web:host{number}.example.com")).expect("a DID")
    }

    #[test]
    fn who_makes_up_names_fills_their_own_share_alone() {
        let newcomers = Newcomers::new(3);
        let (liar, honest) = (UpstreamId(1), UpstreamId(2));
        let came = (0..10).filter(|number| newcomers.may_come(liar, &did(*number)));
        assert_eq!(came.collect::<Vec<_>>(), [0, 1, 2]);
        assert!(newcomers.may_come(liar, &did(1)), "it has come already");
        assert!(newcomers.may_come(honest, &did(20)));
        // Those that have not are asked about, each once, in their order.
        assert!(!newcomers.may_come(liar, &did(3)));
        let asked: Vec<Did> = std::iter::from_fn(|| newcomers.take()).collect();
        assert_eq!(asked, (3..10).map(did).collect::<Vec<_>>());
        // A document that is read makes room, and only one that was waited for.
        newcomers.resolved(&did(7));
        assert!(!newcomers.may_come(liar, &did(30)));
        newcomers.resolved(&did(1));
        assert!(newcomers.may_come(liar, &did(31)));
        assert!(!newcomers.may_come(liar, &did(32)));
    }

    #[test]
    fn however_many_wait_there_is_room_for_others() {
        let newcomers = Newcomers::new(0);
        for number in 0..WAITING {
            assert!(!newcomers.may_come(UpstreamId(1), &did(number)));
        }
        assert_eq!(newcomers.lock().waiting.len(), WAITING_OF_ONE);
        newcomers.may_come(UpstreamId(2), &did(WAITING));
        assert_eq!(newcomers.lock().waiting.len(), WAITING_OF_ONE + 1);
        while newcomers.take().is_some() {}
        assert!(newcomers.lock().waiting_of.is_empty() && newcomers.lock().names.is_empty());
    }
}
