//! At the start: what the configuration names, and what was added before, is followed.

use std::sync::Arc;

use gapless_core::ledger::{FollowReason, Upstream, UpstreamKind};
use gapless_store::error::StoreError;

use crate::following::{FollowError, Following};
use crate::settings::UpstreamConfig;

impl Following {
    /// At the start: what the configuration names, and what was added before.
    pub async fn resume(self: &Arc<Self>, configured: &[UpstreamConfig]) -> Result<(), StoreError> {
        let rows = self.services.store.view().upstreams()?;
        let named = |row: &Upstream| {
            let mut all = configured.iter();
            all.any(|one| one.kind == row.kind && one.url == row.url)
        };
        {
            let _one = self.changing.lock().await;
            for (id, row) in rows.iter().filter(|(_, row)| !named(row)) {
                // Somebody may have been here before: the program answers already.
                let new = !self.lock().contains_key(id);
                if new && self.is_resumed(row) {
                    self.start(*id, row.clone());
                }
            }
        }
        // What has to be written waits for room on the disk, and nobody for it: those
        // that are known as they are come first.
        let known = |one: &&UpstreamConfig| {
            let mut rows = rows.iter();
            rows.any(|(_, row)| row.kind == one.kind && row.url == one.url)
        };
        let (old, new): (Vec<_>, Vec<_>) = configured.iter().partition(known);
        let followed = old
            .into_iter()
            .chain(new)
            .filter(|one| self.follows(one.kind));
        for one in followed {
            self.configure(one).await?;
        }
        let _one = self.changing.lock().await;
        for (id, row) in self.services.store.view().upstreams()? {
            let left = match row.followed {
                FollowReason::Configured | FollowReason::Narrowed => {
                    !named(&row) || !self.follows(row.kind)
                }
                FollowReason::Discovered => {
                    !self.services.admission.scope.network
                        || !self.services.admission.scope.by_hosts
                }
                FollowReason::No | FollowReason::Added | FollowReason::ForTracked => false,
            };
            if left && !self.lock().contains_key(&id) {
                let mut row = row;
                self.follow_as(&mut row, FollowReason::No);
                self.services.upstreams.keep(id, row).await?;
            }
        }
        self.forget_left().await
    }

    /// Whether upstreams of a kind are followed. Where each host has a stream of its
    /// own, relays only tell which there are.
    fn follows(&self, kind: UpstreamKind) -> bool {
        kind != UpstreamKind::Relay || self.services.admission.scope.follows_relays()
    }

    /// Whether one that was followed before is at once. Hosts of the network are dialed
    /// one after the other, and not here.
    fn is_resumed(&self, row: &Upstream) -> bool {
        let refused = row.kind != UpstreamKind::Pds && self.services.admission.scope.is_narrow();
        match row.followed {
            FollowReason::Added if refused || !self.follows(row.kind) => {
                tracing::warn!(upstream = %row.url, "a relay that was added is not followed: only what is found is wanted, or hosts are followed instead");
                false
            }
            FollowReason::Added | FollowReason::ForTracked => true,
            _ => false,
        }
    }

    /// Follows an upstream of the configuration.
    async fn configure(self: &Arc<Self>, one: &UpstreamConfig) -> Result<(), StoreError> {
        let host = one.host.as_deref();
        let followed = if one.kind != UpstreamKind::Pds && self.services.admission.scope.is_narrow()
        {
            FollowReason::Narrowed
        } else {
            FollowReason::Configured
        };
        let added = self.add(one.kind, &one.url, host, followed);
        match added.await {
            Ok(_) | Err(FollowError::Already(_)) => {}
            Err(FollowError::Store(error)) => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "an upstream of the configuration is left out")
            }
        }
        Ok(())
    }
}
