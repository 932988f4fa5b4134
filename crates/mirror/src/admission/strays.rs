//! Detects upstreams of kind `pds` that bring repositories of other hosts: the operator has
//! added a relay as a host, or a host under another name than in DID documents. Such a
//! stream covers none of these repositories, so none of them becomes complete.
//!
//! A repository counts as a stray if its DID document was read after the host had brought
//! the repository, and names another host. The counts start at zero with every start.

use std::collections::{HashMap, HashSet};
use std::sync::MutexGuard;

use gapless_atp::syntax::Did;
use gapless_core::ledger::HostId;
use gapless_store::sync::Mutex;

/// The number of strays from which a host is reported; fewer may just have moved.
const MIN_STRAYS: usize = 3;
/// Repositories whose documents are awaited. Further repositories are not counted.
const MAX_WAITING: usize = 10_000;
/// Strays that are counted of one host, and hosts whose strays are counted.
const MAX_STRAYS_PER_HOST: usize = 10_000;
const MAX_HOSTS: usize = 1_000;

/// The strays of each host.
#[derive(Default)]
pub struct Strays {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The host that brought each repository whose document is awaited.
    waiting: HashMap<Did, HostId>,
    of: HashMap<HostId, HostStrays>,
}

#[derive(Default)]
struct HostStrays {
    dids: HashSet<Did>,
    /// Whether the host was reported.
    reported: bool,
}

impl Strays {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Records that a host brought a repository that lives elsewhere, as far as is known.
    pub fn record_foreign_repo(&self, host: HostId, did: &Did) {
        let mut inner = self.lock();
        let counted = |others: &HostStrays| others.dids.contains(did);
        if inner.of.get(&host).is_some_and(counted) {
            return;
        }
        if inner.waiting.len() < MAX_WAITING || inner.waiting.contains_key(did) {
            inner.waiting.insert(did.clone(), host);
        }
    }

    /// Records that the document of a repository was read. Returns the host that brought the
    /// repository although it lives elsewhere, with the number of its strays, if the host
    /// is not reported yet and the number is [`MIN_STRAYS`] or a power of two above.
    pub fn resolved(&self, did: &Did, lives: Option<HostId>) -> Option<(HostId, usize)> {
        let mut inner = self.lock();
        let host = inner.waiting.remove(did)?;
        if lives.is_none_or(|lives| lives == host) {
            return None;
        }
        if inner.of.len() >= MAX_HOSTS && !inner.of.contains_key(&host) {
            return None;
        }
        let others = inner.of.entry(host).or_default();
        if others.dids.len() >= MAX_STRAYS_PER_HOST || !others.dids.insert(did.clone()) {
            return None;
        }
        let count = others.dids.len();
        let time = count == MIN_STRAYS || (count > MIN_STRAYS && count.is_power_of_two());
        (time && !others.reported).then_some((host, count))
    }

    /// Marks a host as reported. Returns whether it was not reported before.
    pub fn report(&self, host: HostId) -> bool {
        let mut inner = self.lock();
        let others = inner.of.get_mut(&host);
        others.is_some_and(|others| !std::mem::replace(&mut others.reported, true))
    }

    /// The number of strays of a host that was reported.
    pub(crate) fn reported_count(&self, host: HostId) -> Option<u64> {
        let inner = self.lock();
        let others = inner.of.get(&host).filter(|others| others.reported)?;
        Some(others.dids.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(number: usize) -> Did {
        Did::parse(&format!("did:web:host{number}.example.com")).expect("a DID")
    }

    #[test]
    fn it_counts_what_its_document_says_lives_elsewhere_and_once() {
        let strays = Strays::default();
        let (relay, host) = (HostId(1), HostId(2));
        let mut looked_at = Vec::new();
        for number in 0..9 {
            for _ in 0..2 {
                strays.record_foreign_repo(relay, &did(number));
                looked_at.extend(strays.resolved(&did(number), Some(host)));
            }
        }
        assert_eq!(looked_at, [(relay, 3), (relay, 4), (relay, 8)]);
        assert_eq!(strays.reported_count(relay), None, "nothing was reported");
        assert!(strays.report(relay) && !strays.report(relay));
        assert_eq!(strays.reported_count(relay), Some(9));
        for number in 9..20 {
            strays.record_foreign_repo(relay, &did(number));
            assert_eq!(
                strays.resolved(&did(number), Some(host)),
                None,
                "reported once"
            );
        }
    }

    #[test]
    fn who_lives_there_or_has_just_moved_there_does_not_count() {
        let strays = Strays::default();
        let host = HostId(1);
        for number in 0..20 {
            strays.record_foreign_repo(host, &did(number));
            assert_eq!(strays.resolved(&did(number), Some(host)), None);
            // Read for another reason, or not readable.
            assert_eq!(strays.resolved(&did(number), Some(HostId(2))), None);
            strays.record_foreign_repo(host, &did(number));
            assert_eq!(strays.resolved(&did(number), None), None);
        }
        assert!(!strays.report(host));
    }

    #[test]
    fn a_flood_is_bounded() {
        let strays = Strays::default();
        for number in 0..MAX_WAITING + 10 {
            strays.record_foreign_repo(HostId(1), &did(number));
        }
        assert_eq!(strays.lock().waiting.len(), MAX_WAITING);
    }
}
