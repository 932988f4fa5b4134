//! Names to addresses, each address checked.
//!
//! Lookups run on threads that cannot be interrupted, and a stranger's name
//! server may be slow: so only a bounded number runs at once, and a lookup that
//! its asker gave up on still holds its place until it ends.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;
use tokio::sync::Semaphore;

use super::guard::{Refusal, check_address};

/// Lookups at once. Each holds a thread of the runtime's pool (512 by default).
const LOOKUPS: usize = 128;
/// Addresses of one host that are looked at. A host with more is cut, after all
/// of them were checked.
const ADDRESSES: usize = 16;

/// Why a name has no address for us.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the name cannot be resolved: {0}")]
    Failed(#[from] io::Error),
}

/// Resolves names. Clones share the bound.
#[derive(Clone)]
pub struct Lookup {
    places: Arc<Semaphore>,
    /// Whether addresses must be public.
    guarded: bool,
}

impl Lookup {
    pub fn new(guarded: bool) -> Lookup {
        Lookup {
            places: Arc::new(Semaphore::new(LOOKUPS)),
            guarded,
        }
    }

    /// The same bound, without the check.
    pub fn unguarded(&self) -> Lookup {
        Lookup {
            guarded: false,
            ..self.clone()
        }
    }

    /// All addresses of a host, or a refusal if any of them is not public.
    pub async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, LookupError> {
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

    fn check(&self, found: &[SocketAddr]) -> Result<(), Refusal> {
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
            // Port 0: the client fills in the one of the URL.
            match lookup.addresses(name.as_str(), 0).await {
                Ok(found) => Ok(Box::new(found.into_iter()) as Addrs),
                // Unwrapped, so that the refusal is found again among the causes.
                Err(LookupError::Refused(refusal)) => Err(refusal.into()),
                Err(error) => Err(error.into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_with_a_private_address_is_refused_when_guarded() {
        let guarded = Lookup::new(true);
        let refused = guarded.addresses("localhost", 443).await;
        assert!(
            matches!(refused, Err(LookupError::Refused(Refusal::Address(_)))),
            "{refused:?}"
        );
        let found = guarded.unguarded().addresses("localhost", 443).await;
        let found = found.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()));
    }

    #[test]
    fn one_bad_address_among_good_ones_is_enough() {
        let good: SocketAddr = "8.8.8.8:443".parse().unwrap();
        let bad: SocketAddr = "10.0.0.1:443".parse().unwrap();
        let guarded = Lookup::new(true);
        assert_eq!(guarded.check(&[good]), Ok(()));
        let refused = Err(Refusal::Address(bad.ip()));
        assert_eq!(guarded.check(&[good, bad]), refused);
        assert_eq!(guarded.unguarded().check(&[good, bad]), Ok(()));
    }
}
