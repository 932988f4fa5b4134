//! Resolves host names to addresses and checks each address.
//!
//! Lookups run on threads that cannot be interrupted, and a remote name server may be
//! slow. So the number of concurrent lookups is bounded, and an abandoned lookup counts
//! until it ends. Names that the operator configured have a limit of their own, so that
//! other names cannot delay them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;
use tokio::sync::Semaphore;

use super::guard::{BlockedAddress, check_address};

/// Concurrent lookups of names that others chose. Each occupies a thread of the runtime's
/// pool (512 by default).
const LOOKUPS: usize = 112;
/// Concurrent lookups of names that the operator configured: upstreams and the directory.
const CONFIGURED_LOOKUPS: usize = 16;
/// The most addresses of one host that are returned. All addresses are checked, those
/// beyond the limit too.
const ADDRESSES: usize = 16;

/// Why a name has no usable address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error(transparent)]
    Refused(#[from] BlockedAddress),
    #[error("the name cannot be resolved: {0}")]
    Failed(#[from] io::Error),
}

/// Resolves names. Clones share the limits.
#[derive(Clone)]
pub(crate) struct Lookup {
    places: Arc<Semaphore>,
    configured: Arc<Semaphore>,
    /// Whether addresses must be public.
    guarded: bool,
}

impl Lookup {
    pub(crate) fn new(guarded: bool) -> Lookup {
        Lookup {
            places: Arc::new(Semaphore::new(LOOKUPS)),
            configured: Arc::new(Semaphore::new(CONFIGURED_LOOKUPS)),
            guarded,
        }
    }

    /// A lookup for names that the operator configured: with a limit of its own, without the check.
    pub(crate) fn for_configured(&self) -> Lookup {
        Lookup {
            places: self.configured.clone(),
            configured: self.configured.clone(),
            guarded: false,
        }
    }

    /// The addresses of a host. Fails if any of them is not public.
    pub(crate) async fn addresses(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, LookupError> {
        let place = self.places.clone().acquire_owned().await;
        let place = place.map_err(io::Error::other)?;
        let name = host.to_owned();
        let lookup = tokio::spawn(async move {
            let _place = place;
            let found = lookup_host((name, port)).await?;
            Ok::<_, io::Error>(found.collect::<Vec<SocketAddr>>())
        });
        let mut found = lookup.await.map_err(io::Error::other)??;
        self.check(&found)?;
        if found.is_empty() {
            let error = io::Error::new(io::ErrorKind::NotFound, "it has no address");
            return Err(LookupError::Failed(error));
        }
        found.truncate(ADDRESSES);
        Ok(found)
    }

    fn check(&self, found: &[SocketAddr]) -> Result<(), BlockedAddress> {
        if !self.guarded {
            return Ok(());
        }
        found
            .iter()
            .try_for_each(|address| check_address(address.ip()))
    }
}

impl Resolve for Lookup {
    fn resolve(&self, name: Name) -> Resolving {
        let lookup = self.clone();
        Box::pin(async move {
            // Port 0: the client fills in the URL's port.
            match lookup.addresses(name.as_str(), 0).await {
                Ok(found) => Ok(Box::new(found.into_iter()) as Addrs),
                // Unwrapped, so that `find_refusal` finds it among the causes.
                Err(LookupError::Refused(refusal)) => Err(refusal.into()),
                Err(error) => Err(error.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_name_with_a_private_address_is_refused_when_guarded() {
        let guarded = Lookup::new(true);
        let refused = guarded.addresses("localhost", 443).await;
        assert!(
            matches!(
                refused,
                Err(LookupError::Refused(BlockedAddress::Address(_)))
            ),
            "{refused:?}"
        );
        let found = guarded.for_configured().addresses("localhost", 443).await;
        let found = found.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()));
    }

    #[tokio::test]
    async fn names_of_strangers_take_no_place_from_configured_ones() {
        let named = Lookup::new(false);
        let all = u32::try_from(LOOKUPS).unwrap();
        let slow = named.places.clone().acquire_many_owned(all).await;
        let waits = Duration::from_millis(50);
        assert!(
            timeout(waits, named.addresses("localhost", 443))
                .await
                .is_err()
        );
        let configured = named.for_configured();
        let found = timeout(
            Duration::from_secs(20),
            configured.addresses("localhost", 443),
        );
        assert!(!found.await.expect("it has a place").unwrap().is_empty());
        // One of them is no stranger's either.
        let again = configured.for_configured();
        assert!(Arc::ptr_eq(&again.places, &configured.places));
        drop(slow);
        let found = timeout(Duration::from_secs(20), named.addresses("localhost", 443));
        assert!(found.await.expect("a place is free").is_ok());
    }

    #[test]
    fn one_bad_address_among_good_ones_is_enough() {
        let good: SocketAddr = "8.8.8.8:443".parse().unwrap();
        let bad: SocketAddr = "10.0.0.1:443".parse().unwrap();
        let guarded = Lookup::new(true);
        assert_eq!(guarded.check(&[good]), Ok(()));
        let refused = Err(BlockedAddress::Address(bad.ip()));
        assert_eq!(guarded.check(&[good, bad]), refused);
        assert_eq!(guarded.for_configured().check(&[good, bad]), Ok(()));
    }
}
