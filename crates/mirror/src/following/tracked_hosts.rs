//! Follows the hosts of tracked repositories, each for as long as a tracked repository lives
//! there.

use std::sync::Arc;

use gapless_core::ledger::{FollowReason, HostId, UpstreamKind};
use gapless_net::HostAddress;
use gapless_store::error::StoreError;

use crate::following::Following;
use crate::repair::worker::Addresses;
use crate::services::Services;
use crate::store_io::blocking;

impl Following {
    /// Whether a tracked repository lives on a host.
    pub(crate) async fn is_wanted(&self, host: HostId) -> Result<bool, StoreError> {
        let services = self.services.clone();
        let read = move || is_wanted(&services, host);
        let work = "looking for tracked repositories on a host";
        blocking(&self.services.metrics, work, read).await
    }

    /// Stops following a host for tracked repositories if none of them lives there any more.
    /// A repository that is tracked meanwhile is either seen here or follows the host again
    /// afterwards, because changes are serialized.
    pub(crate) async fn leave_unless_wanted(&self, host: HostId) -> Result<(), StoreError> {
        let _one = self.changing.lock().await;
        let ours = {
            let followees = self.lock();
            let ours = followees.iter().find(|(_, one)| {
                one.host == Some(host) && one.followed == FollowReason::ForTracked
            });
            ours.map(|(id, one)| (*id, one.url.clone()))
        };
        let Some((id, url)) = ours else {
            return Ok(());
        };
        if self.is_wanted(host).await? {
            return Ok(());
        }
        tracing::info!(upstream = %url, "no longer followed: no tracked repository lives there any more");
        self.end(id, FollowReason::No).await
    }

    /// The hosts that are followed for tracked repositories alone.
    pub fn for_tracked(&self) -> Vec<HostId> {
        let followees = self.lock();
        let ours = followees
            .values()
            .filter(|one| one.followed == FollowReason::ForTracked);
        ours.filter_map(|one| one.host).collect()
    }
}

/// Whether a repository that is tracked by name lives on a host.
fn is_wanted(services: &Services, host: HostId) -> Result<bool, StoreError> {
    let view = services.store.view();
    for id in view.hosted(host) {
        let repo = view.repo(id?)?;
        if repo.is_some_and(|repo| services.wants_stream(&repo.did)) {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Addresses for Arc<Following> {
    fn of(&self, name: &str) -> HostAddress {
        let followees = self.lock();
        let own = followees
            .values()
            .find(|one| one.host_name.as_deref() == Some(name) && one.followed.is_by_operator());
        match own {
            // The operator says that the host is reached at this URL.
            Some(followee) => HostAddress::configured(followee.url.clone()),
            None => HostAddress::named(name.to_owned()),
        }
    }

    fn follow_for_tracked(&self, host: HostId) {
        // A stream for tracked repositories may be about to end, so it does not count.
        let stays = self
            .lock()
            .values()
            .any(|one| one.host == Some(host) && one.followed != FollowReason::ForTracked);
        let Some(row) = self.services.hosts.get(host).filter(|_| !stays) else {
            return;
        };
        let following = self.clone();
        self.runtime.spawn(async move {
            let added = following
                .add(UpstreamKind::Pds, &row.name, None, FollowReason::ForTracked)
                .await;
            if let Err(error) = added {
                tracing::warn!(host = %row.name, %error, "the host of a tracked repository cannot be followed; sweeps and fetches go on");
            }
        });
    }

    fn tracked_left(&self, host: HostId) {
        let following = self.clone();
        self.runtime.spawn(async move {
            if let Err(error) = following.leave_unless_wanted(host).await {
                if error.is_final() {
                    following.services.shutdown.fail(error);
                } else {
                    tracing::warn!(
                        %error,
                        "the tracked repositories of a host cannot be read; Gapless follows the host until the next start"
                    );
                }
            }
        });
    }
}
