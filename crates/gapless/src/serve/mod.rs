//! Serves the held repositories as a PDS or a relay would, to clients that check the
//! owner's signature themselves.
//!
//! | module | content |
//! |---|---|
//! | `lookup` | finds the repository, and decides whether its state may be served |
//! | `refuse` | errors, by the names of the lexicons |
//! | `evidence` | the header that says how well a state is proven |
//! | `tree_cache` | the tree that a commit signs, built from the held keys and cached |
//! | `getrepo` | a whole repository as a streamed CAR, and the reading of its records |
//! | `proof`, `blocks` | a record with its proof; blocks by their CIDs |
//! | `listing` | lists of repositories |
//! | `records` | records as JSON |
//! | `handles` | the DID of a handle |
//! | `firehose` | `subscribeRepos` |
//! | `ip_limit` | limits per client address |
//! | `limits` | all other limits |
//!
//! Only exactly what the owner signed is served. A repository that is being fetched,
//! damaged or hidden is refused with its state.

pub(crate) mod blocks;
pub(crate) mod evidence;
pub(crate) mod firehose;
pub(crate) mod getrepo;
pub(crate) mod handles;
pub(crate) mod ip_limit;
pub(crate) mod limits;
pub(crate) mod listing;
pub(crate) mod lookup;
pub(crate) mod proof;
pub(crate) mod records;
pub(crate) mod refuse;
pub(crate) mod tree_cache;

use std::sync::Arc;

use gapless_atp::syntax::Did;
use gapless_core::ledger::Head;
use tokio::sync::Semaphore;

use crate::config::{ServeConfig, ServeLimits};
use gapless_mirror::Mirror;
use gapless_mirror::damage;
use gapless_mirror::desk::Desks;
use gapless_mirror::services::Services;
use gapless_net::Net;
use handles::HandleResolver;
use ip_limit::IpLimiter;
use tree_cache::TreeCache;

use firehose::Firehose;
pub(crate) use refuse::ServeError;

/// What the handlers of `/xrpc` read from. A running mirror has one.
pub struct Serving {
    pub(crate) services: Arc<Services>,
    desks: Arc<Desks>,
    net: Net,
    pub(crate) limits: ServeLimits,
    pub firehose: Arc<Firehose>,
    trees: TreeCache,
    handles: HandleResolver,
    /// Permits for concurrent exports.
    exports: Arc<Semaphore>,
    /// Limits the exports and proofs of each client address.
    ip_limiter: Arc<IpLimiter>,
}

impl Serving {
    /// Creates what serves from a mirror. One instance serves all requests, so that its limits
    /// hold for all of them.
    pub fn new(mirror: &Mirror, config: &ServeConfig) -> Serving {
        let services = mirror.services();
        let limits = config.limits;
        Serving {
            firehose: Arc::new(Firehose::new(
                services.clone(),
                mirror.log().clone(),
                config.firehose,
            )),
            services: services.clone(),
            desks: mirror.desks().clone(),
            net: mirror.fetcher().net.clone(),
            limits,
            trees: TreeCache::new(&limits),
            handles: HandleResolver::new(config.handle_resolver.clone(), config.dns),
            exports: Arc::new(Semaphore::new(limits.exports)),
            ip_limiter: Arc::new(IpLimiter::new(limits.exports, limits.count_loopback)),
        }
    }

    /// Reports that the stored data of a repository is not that of `head`.
    async fn report_damage(&self, did: &Did, head: Head, why: &str) {
        damage::report(&self.services, &self.desks, did, head, why).await;
    }
}
