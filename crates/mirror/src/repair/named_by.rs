//! Decides what a DID document means beyond its repository: which source made the host in the
//! document known, and whether an upstream brings repositories of other hosts (strays).

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Held, HostId, NamedBy};
use gapless_store::error::StoreError;

use crate::services::Services;

/// Warns once about a host that brought `count` repositories of other hosts, if fewer repositories
/// live at the host itself. Such an upstream is a relay, or has another name in DID documents. If
/// as many live at the host, the others may just have moved.
pub(super) fn warn_of_strays(
    services: &Services,
    host: HostId,
    count: usize,
) -> Result<(), StoreError> {
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
            "a host brings repositories of other hosts, so they cannot become complete through this upstream; the host is a relay, or has another name in DID documents. For a relay: gapless upstream remove URL, then gapless upstream add relay URL"
        );
    }
    Ok(())
}

/// Returns the source that a new host in a repository's document is attributed to.
pub(super) fn named_by(services: &Services, did: &Did) -> Result<NamedBy, StoreError> {
    let row = services
        .store
        .view()
        .repo_by_did(did)?
        .map(|(_, repo)| repo);
    let tracked_by_operator =
        services.admission.is_tracked(did) && services.admission.found_by(did).is_none();
    let kept = tracked_by_operator || row.as_ref().is_some_and(|repo| repo.held != Held::Nothing);
    let relay = row.as_ref().and_then(|repo| repo.relay);
    let relay = relay.and_then(|id| {
        let covers = services.upstreams.read();
        covers.get(id).map(|source| source.row.url.clone())
    });
    let host = row.and_then(|repo| repo.host);
    Ok(services.hosts.namer(host, kept, relay))
}
