//! What a document that was read says of others than its repository: who made us know
//! the host that it names, and whether who brought the repository is its host.

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Held, HostId, NamedBy};
use gapless_store::error::StoreError;

use crate::repair::worker::Fetcher;

impl Fetcher {
    /// A host brings so many repositories of others. Where more than those live there
    /// themselves, some have moved; else it is no host, or not by that name.
    pub(crate) fn look_at_strays(&self, host: HostId, count: usize) -> Result<(), StoreError> {
        let services = &self.services;
        let url = {
            let covers = services.upstreams.read();
            let mut own = covers.iter().filter(|(_, one)| one.row.host == Some(host));
            own.find(|(_, one)| one.row.followed.is_by_operator())
                .map(|(_, one)| one.row.url.clone())
        };
        let Some(url) = url else {
            return Ok(());
        };
        let mut own = 0;
        for repo in services.store.view().hosted(host).take(count) {
            repo?;
            own += 1;
        }
        if own < count && services.admission.strays.report(host) {
            tracing::warn!(
                upstream = %url, repositories = count,
                "a host brings repositories of other hosts; is it a relay, or has it another name in DID documents? It speaks for none of them. For a relay: gapless upstream remove URL, then gapless upstream add relay URL"
            );
        }
        Ok(())
    }

    /// Who names the host that a repository's document names.
    pub(crate) fn namer(&self, did: &Did) -> Result<NamedBy, StoreError> {
        let services = &self.services;
        let row = services
            .store
            .view()
            .repo_by_did(did)?
            .map(|(_, repo)| repo);
        let wanted =
            services.admission.is_tracked(did) && services.admission.found_by(did).is_none();
        let kept = wanted || row.as_ref().is_some_and(|repo| repo.held != Held::Nothing);
        let relay = row.as_ref().and_then(|repo| repo.relay);
        let relay = relay.and_then(|id| {
            let covers = services.upstreams.read();
            covers.get(id).map(|source| source.row.url.clone())
        });
        let lives = row.and_then(|repo| repo.host);
        Ok(services.hosts.namer(lives, kept, relay))
    }
}
