//! A stream for each host of the network, where that is wanted. Dialing is spread: so
//! many a second, those first that are known longest.

use std::sync::Arc;

use gapless_core::ledger::{FollowReason, HostId, UpstreamKind};

use crate::discover::Discovery;
use crate::following::FollowError;

/// Hosts that are dialed for the first time at each look.
const DIALS_PER_CHECK: usize = 10;

pub async fn run(discovery: Arc<Discovery>) {
    let mut full = false;
    while discovery.wait().await {
        let (hosts, left_out) = discovery.unfollowed();
        if left_out > 0 && !full {
            full = true;
            tracing::warn!(
                left_out,
                limit = discovery.settings.discover.max_streams,
                "more hosts are known than are followed at a time (discover.max_streams): repositories of the others are not complete"
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
                    tracing::warn!(host = %name, %error, "a host of the network cannot be followed")
                }
            }
        }
    }
}

impl Discovery {
    /// Hosts that have no stream yet and get one now; and how many find no place.
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
