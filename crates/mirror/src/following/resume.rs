//! Follows, at the start, the upstreams that the configuration names and those that were
//! added before.

use std::sync::Arc;

use gapless_core::ledger::{FollowReason, Upstream, UpstreamKind};
use gapless_store::error::StoreError;

use crate::following::{FollowError, Following};
use crate::settings::UpstreamConfig;

impl Following {
    /// Follows the configured upstreams and those that were added before. Stops following
    /// upstreams that the configuration no longer wants.
    pub async fn resume(self: &Arc<Self>, configured: &[UpstreamConfig]) -> Result<(), StoreError> {
        let rows = self.services.store.view().upstreams()?;
        let named = |row: &Upstream| {
            let mut all = configured.iter();
            all.any(|one| one.kind == row.kind && one.url == row.url)
        };
        {
            let _one = self.changing.lock().await;
            for (id, row) in rows.iter().filter(|(_, row)| !named(row)) {
                // The API answers already, so an operator may have added the upstream.
                let new = !self.lock().contains_key(id);
                if new && self.is_resumed(row) {
                    self.start(*id, row.clone());
                }
            }
        }
        // A new row waits for room on the disk. Upstreams with a row come first, so that
        // they do not wait.
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

    /// Whether upstreams of a kind are followed. If each host has a stream of its own, relays
    /// only list the hosts.
    fn follows(&self, kind: UpstreamKind) -> bool {
        kind != UpstreamKind::Relay || self.services.admission.scope.follows_relays()
    }

    /// Whether an upstream that was followed before is followed at once. Discovery dials the
    /// hosts of the network later, a few at a time.
    fn is_resumed(&self, row: &Upstream) -> bool {
        let refused = row.kind != UpstreamKind::Pds && self.services.admission.scope.is_narrow();
        match row.followed {
            FollowReason::Added if refused || !self.follows(row.kind) => {
                tracing::warn!(upstream = %row.url, "an added relay is not followed, because relays are read only for collections or hosts are followed instead");
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
                tracing::warn!(%error, "an upstream of the configuration is not followed")
            }
        }
        Ok(())
    }
}
