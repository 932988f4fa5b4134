//! Forgets hosts that never answered, once no stream follows them and no known repository
//! lives there.

use gapless_core::ledger::{FollowReason, HostId, NamedBy, UpstreamId};
use gapless_store::error::StoreError;

use crate::following::Following;

impl Following {
    /// Forgets a host that never answered, on which no known repository lives and which is not
    /// followed: its name may be mistyped. The store keeps only the number of the host, and its URL
    /// in a row that no answer shows.
    pub(crate) async fn forget_unreached(
        &self,
        id: UpstreamId,
        host: HostId,
    ) -> Result<(), StoreError> {
        let view = self.services.store.view();
        let reached = self.services.hosts.get(host).is_none_or(|row| row.reached);
        if reached || view.hosted(host).next().is_some() {
            return Ok(());
        }
        let mut speak = view.upstreams()?;
        speak.retain(|_, row| row.host == Some(host));
        let alone = speak.len() == 1;
        let own = speak.into_iter().find(|(other, _)| *other == id);
        let Some((_, row)) = own.filter(|(_, row)| alone && row.followed == FollowReason::No)
        else {
            return Ok(());
        };
        drop(view);
        let name = self.services.hosts.get(host).unwrap_or_default().name;
        match self.services.hosts.forget(host, (id, row)).await {
            Ok(()) => {
                tracing::info!(host = %name, "host forgotten: it never answered, and no known repository lives there");
                Ok(())
            }
            // A repository has just moved there, so the host stays.
            Err(StoreError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// At the start: forgets hosts that the last run had left and not forgotten.
    pub(crate) async fn forget_left(&self) -> Result<(), StoreError> {
        for (id, row) in self.services.store.view().upstreams()? {
            let Some(host) = row.host.filter(|_| row.followed == FollowReason::No) else {
                continue;
            };
            let named = self.services.hosts.get(host).map(|row| row.named);
            // Relays and documents would name the host again.
            if named == Some(NamedBy::Operator) {
                match self.forget_unreached(id, host).await {
                    // The next start tries again.
                    Ok(()) | Err(StoreError::Full(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
