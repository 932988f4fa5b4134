//! What most modules of the running mirror need: the store, the clock, the rules, and
//! what is known of upstreams, hosts, debts and wanted repositories.

use std::sync::Arc;

use gapless_atp::syntax::Did;
use gapless_core::ledger::complete::{self, Completeness};
use gapless_core::ledger::event::Context;
use gapless_core::ledger::{Now, Repo, UpstreamKind};
pub use gapless_core::repo_tx::Rules;
use gapless_store::Store;

use crate::admission::Admission;
use crate::clock::Clock;
use crate::disk_space::DiskSpace;
use crate::hosts::HostRows;
use crate::metrics::Metrics;
use crate::schedule::Schedule;
use crate::shutdown::Shutdown;
use crate::upstreams::Upstreams;

/// The parts of the running mirror that most of its modules need.
pub struct Services {
    pub store: Arc<Store>,
    pub clock: Arc<Clock>,
    pub rules: Rules,
    pub metrics: Metrics,
    pub shutdown: Arc<Shutdown>,
    pub disk: Arc<DiskSpace>,
    pub upstreams: Upstreams,
    pub hosts: HostRows,
    pub schedule: Schedule,
    pub admission: Admission,
}

impl Services {
    /// Calls `act` with the context of one decision. The covers stay locked meanwhile.
    pub fn decide<T>(&self, now: Now, act: impl FnOnce(Context<'_>) -> T) -> T {
        let covers = self.upstreams.read();
        act(Context {
            now,
            covers: &covers,
            settings: &self.rules.settings,
        })
    }

    /// Whether a repository is complete, with the reasons and the evidence.
    pub fn completeness(&self, repo: &Repo) -> Completeness {
        let host = repo.host.and_then(|host| self.hosts.get(host));
        let now = self.clock.last_tick_now();
        self.decide(now, |context| {
            complete::completeness(context, repo, host.as_ref())
        })
    }

    /// Whether the host of a repository is followed for its sake: the repository is
    /// tracked, and if a collection found it, no relay brings its events.
    pub(crate) fn wants_stream(&self, did: &Did) -> bool {
        let relayed = || {
            let covers = self.upstreams.read();
            covers
                .iter()
                .any(|(_, source)| source.row.kind == UpstreamKind::Relay)
        };
        self.admission.is_tracked(did) && (self.admission.found_by(did).is_none() || !relayed())
    }
}
