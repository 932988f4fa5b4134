//! Limits how many unknown repositories one upstream may add before their DID documents are
//! read. An attacker can make up any number of names, and each would cost a permanent row and
//! requests to the directory.
//!
//! Beyond the limit Gapless asks the directory first and adds only repositories that the
//! directory knows. Earlier events of such a repository are skipped, and the cursor passes
//! them: nothing is held and nothing is claimed about the repository, and once it is added
//! it is fetched whole. A name that finds no room in the queue comes again with its next
//! event or with the sweep of its host. The counts start at zero with every start.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::MutexGuard;

use gapless_atp::syntax::Did;
use gapless_core::ledger::UpstreamId;
use gapless_store::sync::Mutex;
use tokio::sync::Notify;

/// Repositories of all upstreams together whose documents were not read yet.
const MAX_UNREAD: usize = 300_000;
/// Repositories that wait until the directory is asked, in total and of one upstream.
const MAX_QUEUED: usize = 4096;
const MAX_QUEUED_PER_UPSTREAM: usize = 1024;

/// The unknown repositories that upstreams brought.
pub struct Newcomers {
    /// Repositories of one upstream whose documents may be unread.
    max_unread: usize,
    inner: Mutex<Inner>,
    /// Notified when a repository is enqueued for the directory.
    pub arrived: Notify,
}

#[derive(Default)]
struct Inner {
    /// Repositories that were admitted, with the upstream that brought them.
    unread: HashMap<Did, UpstreamId>,
    unread_of: HashMap<UpstreamId, usize>,
    queue: VecDeque<(Did, UpstreamId)>,
    /// The repositories in `queue`, for lookups.
    queued: HashSet<Did>,
    queued_of: HashMap<UpstreamId, usize>,
}

impl Newcomers {
    pub fn new(max_unread: usize) -> Newcomers {
        Newcomers {
            max_unread,
            inner: Mutex::default(),
            arrived: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Returns whether an unknown repository that an upstream brings may be added. If not,
    /// the repository is enqueued for the directory, if there is room.
    pub fn admit(&self, upstream: UpstreamId, did: &Did) -> bool {
        let mut inner = self.lock();
        if inner.unread.contains_key(did) {
            return true;
        }
        let own = inner.unread_of.get(&upstream).copied().unwrap_or(0);
        if own < self.max_unread && inner.unread.len() < MAX_UNREAD {
            inner.unread.insert(did.clone(), upstream);
            *inner.unread_of.entry(upstream).or_default() += 1;
            return true;
        }
        let own = inner.queued_of.get(&upstream).copied().unwrap_or(0);
        if own < MAX_QUEUED_PER_UPSTREAM
            && inner.queue.len() < MAX_QUEUED
            && !inner.queued.contains(did)
        {
            inner.queued.insert(did.clone());
            inner.queue.push_back((did.clone(), upstream));
            *inner.queued_of.entry(upstream).or_default() += 1;
            drop(inner);
            self.arrived.notify_one();
        }
        false
    }

    /// Records that the document of a repository was read.
    pub fn resolved(&self, did: &Did) {
        let mut inner = self.lock();
        if let Some(upstream) = inner.unread.remove(did) {
            decrement(&mut inner.unread_of, upstream);
        }
    }

    /// Takes the next repository that the directory is asked about.
    pub fn take(&self) -> Option<Did> {
        let mut inner = self.lock();
        let (did, upstream) = inner.queue.pop_front()?;
        inner.queued.remove(&did);
        decrement(&mut inner.queued_of, upstream);
        Some(did)
    }
}

fn decrement(counts: &mut HashMap<UpstreamId, usize>, upstream: UpstreamId) {
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
        let came = (0..10).filter(|number| newcomers.admit(liar, &did(*number)));
        assert_eq!(came.collect::<Vec<_>>(), [0, 1, 2]);
        assert!(newcomers.admit(liar, &did(1)), "it has come already");
        assert!(newcomers.admit(honest, &did(20)));
        // Those that have not are asked about, each once, in their order.
        assert!(!newcomers.admit(liar, &did(3)));
        let asked: Vec<Did> = std::iter::from_fn(|| newcomers.take()).collect();
        assert_eq!(asked, (3..10).map(did).collect::<Vec<_>>());
        // A document that is read makes room, and only one that was waited for.
        newcomers.resolved(&did(7));
        assert!(!newcomers.admit(liar, &did(30)));
        newcomers.resolved(&did(1));
        assert!(newcomers.admit(liar, &did(31)));
        assert!(!newcomers.admit(liar, &did(32)));
    }

    #[test]
    fn however_many_wait_there_is_room_for_others() {
        let newcomers = Newcomers::new(0);
        for number in 0..MAX_QUEUED {
            assert!(!newcomers.admit(UpstreamId(1), &did(number)));
        }
        assert_eq!(newcomers.lock().queue.len(), MAX_QUEUED_PER_UPSTREAM);
        newcomers.admit(UpstreamId(2), &did(MAX_QUEUED));
        assert_eq!(newcomers.lock().queue.len(), MAX_QUEUED_PER_UPSTREAM + 1);
        while newcomers.take().is_some() {}
        assert!(newcomers.lock().queued_of.is_empty() && newcomers.lock().queued.is_empty());
    }
}
