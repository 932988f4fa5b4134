//! What is held, handed on as a PDS or a relay would hand it on: read by others who
//! check it against the owner's signature themselves.
//!
//! | module | its question |
//! |---|---|
//! | [`which`] | which repository is meant, and may it be shown? |
//! | [`refuse`] | why is there no answer? |
//! | [`evidence`] | what does an answer stand on? |
//! | [`trees`] | the tree that a commit signs, built from the held keys and kept a while |
//! | [`hands`], [`ends`] | the threads that build them; records read from both ends at once |
//! | [`parcel`] | some records as a CAR has them |
//! | [`repo_car`], [`ahead`] | a whole repository, streamed; records read while others are sent |
//! | [`proof`], [`blocks`] | one record with its proof; blocks by their CIDs |
//! | [`listing`] | which repositories are there? |
//! | [`records`] | records as JSON |
//! | [`names`] | whose handle is it? |
//! | [`share`] | how much may one address have? |
//!
//! Nothing is served that is not exactly what its owner signed: what is being fetched,
//! or damaged, or hidden, is refused with its state.

pub mod blocks;
pub mod evidence;
pub mod firehose;
pub mod getrepo;
pub mod handles;
pub mod ip_limit;
pub mod limits;
pub mod listing;
pub mod lookup;
pub mod proof;
pub mod records;
pub mod refuse;
pub mod tree_cache;

use std::sync::Arc;

use gapless_atp::syntax::Did;
use gapless_core::ledger::Head;
use tokio::sync::Semaphore;

use crate::config::{ServeConfig, ServeLimits};
use gapless_mirror::damage;
use gapless_mirror::desk::Desks;
use gapless_mirror::services::Services;
use gapless_net::Net;
use handles::Handles;
use ip_limit::Shares;
use tree_cache::Trees;

use firehose::Firehose;
pub use refuse::Refusal;

/// What the handlers of `/xrpc` read from. One for a running mirror.
pub struct Serving {
    pub services: Arc<Services>,
    desks: Arc<Desks>,
    net: Net,
    pub limits: ServeLimits,
    pub firehose: Arc<Firehose>,
    trees: Trees,
    handles: Handles,
    /// Whole repositories that are sent at a time.
    exports: Arc<Semaphore>,
    /// How much of that each address has, or asks for.
    shares: Arc<Shares>,
}

impl Serving {
    /// One for each mirror: the store tells one firehose of its head.
    pub fn new(
        services: Arc<Services>,
        desks: Arc<Desks>,
        net: Net,
        config: &ServeConfig,
    ) -> Serving {
        let limits = config.limits;
        Serving {
            firehose: Arc::new(Firehose::new(services.clone(), config.firehose)),
            services,
            desks,
            net,
            limits,
            trees: Trees::new(&limits),
            handles: Handles::new(config.handle_resolver.clone(), config.dns),
            exports: Arc::new(Semaphore::new(limits.exports)),
            shares: Arc::new(Shares::of(limits.exports, limits.count_loopback)),
        }
    }

    /// Reports that the held data of a repository is not that of `head`.
    async fn report_damage(&self, did: &Did, head: Head, why: &str) {
        damage::report(&self.services, &self.desks, did, head, why).await;
    }
}
