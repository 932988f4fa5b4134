//! Hosts that never answered: forgotten once nobody follows them, if nobody is known to
//! live there.

use gapless_core::ledger::{FollowReason, HostId, NamedBy, UpstreamId};
use gapless_store::error::StoreError;

use crate::following::Following;

impl Following {
    /// A host that never answered, that nobody lives on and that nothing is followed for:
    /// perhaps somebody has mistyped it. Nothing of it stays but a number, and the
    /// address in a row that nobody is told of.
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
                tracing::info!(host = %name, "forgotten: it never answered, and nobody is known to live there");
                Ok(())
            }
            // Somebody has come to live there just now: then it stays.
            Err(StoreError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// At the start: what was left and not forgotten any more before the end.
    pub(crate) async fn forget_left(&self) -> Result<(), StoreError> {
        for (id, row) in self.services.store.view().upstreams()? {
            let Some(host) = row.host.filter(|_| row.followed == FollowReason::No) else {
                continue;
            };
            let named = self.services.hosts.get(host).map(|row| row.named);
            // Others would name it again.
            if named == Some(NamedBy::Operator) {
                match self.forget_unreached(id, host).await {
                    // There is time for that at another start.
                    Ok(()) | Err(StoreError::Full(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}
