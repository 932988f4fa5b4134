//! Decides which repositories are wanted: repositories that are tracked by name, that a
//! collection found, or that the scope of discovery covers. Also holds the queues of
//! repositories that may be added next, and the strays.

pub(crate) mod candidates;
pub(crate) mod newcomers;
pub(crate) mod scope;
pub(crate) mod strays;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use gapless_atp::syntax::Did;
use gapless_core::ledger::Time;

use candidates::Candidates;
use newcomers::Newcomers;
use scope::Scope;
use strays::Strays;

use gapless_store::sync::RwLock;

/// What decides whether a repository is wanted.
pub struct Admission {
    /// Repositories that are wanted without being named.
    pub scope: Scope,
    /// Repositories that are tracked.
    pub tracked: RwLock<HashSet<Did>>,
    /// Tracked repositories that a collection found: by which collection, and when.
    pub found: RwLock<HashMap<Did, (Arc<str>, Time)>>,
    /// Repositories that were unknown before an event brought them.
    pub newcomers: Newcomers,
    /// Repositories that a collection named and that are not resolved yet.
    pub candidates: Candidates,
    /// Hosts that bring repositories of other hosts.
    pub strays: Strays,
}

impl Admission {
    /// Whether a repository is tracked.
    pub fn is_tracked(&self, did: &Did) -> bool {
        let tracked = self.tracked.read();
        tracked.contains(did)
    }

    /// The collection by which a tracked repository was found, and when.
    pub(crate) fn found_by(&self, did: &Did) -> Option<(Arc<str>, Time)> {
        let found = self.found.read();
        found.get(did).cloned()
    }

    /// All tracked repositories that a collection found.
    pub(crate) fn found_dids(&self) -> Vec<Did> {
        let found = self.found.read();
        found.keys().cloned().collect()
    }
}
