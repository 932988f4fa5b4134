//! Follows each host of the network by a stream of its own, if configured. Dials are spread
//! over time, and the hosts that were known first come first.

use std::sync::Arc;

use gapless_core::ledger::{FollowReason, HostId, UpstreamKind};

use crate::discover::Discovery;
use crate::following::FollowError;

/// Hosts that are dialed for the first time in one check.
const DIALS_PER_CHECK: usize = 10;

/// Follows new hosts until the program shuts down.
pub(crate) async fn run(discovery: Arc<Discovery>) {
    let mut full = false;
    while discovery.wait().await {
        let (hosts, left_out) = discovery.unfollowed();
        if left_out > 0 && !full {
            full = true;
            tracing::warn!(
                left_out,
                limit = discovery.settings.discover.max_streams,
                "more hosts are known than discover.max_streams allows; repositories on the hosts left out stay incomplete"
            );
        }
        for (_, name) in hosts {
            let added =
                discovery
                    .following
                    .add(UpstreamKind::Pds, &name, None, FollowReason::Discovered);
            match added.await {
                Ok(_) => {}
                Err(FollowError::Store(error)) if error.is_final() => return,
                Err(error) => {
                    tracing::warn!(host = %name, %error, "a host of the network cannot be followed; Gapless tries again")
                }
            }
        }
    }
}

impl Discovery {
    /// The hosts that get a stream now, and the number of hosts for which there is no room.
    fn unfollowed(&self) -> (Vec<(HostId, String)>, usize) {
        let (streams, found) = self.following.streams();
        let room = self.settings.discover.max_streams.saturating_sub(found);
        let mut hosts = Vec::new();
        self.services.hosts.each(|id, host| {
            if !streams.contains(&id) {
                hosts.push((id, host.name.clone()));
            }
        });
        hosts.retain(|(_, name)| self.fetcher.net.may_be_named(name).is_ok());
        hosts.sort();
        let left_out = hosts.len().saturating_sub(room);
        hosts.truncate(room.min(DIALS_PER_CHECK));
        (hosts, left_out)
    }
}
