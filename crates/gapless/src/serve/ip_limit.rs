//! Limits how many of the places one client address may use, so that no client takes all
//! of them.
//!
//! Loopback clients are not counted: a local proxy forwards all clients from one address.
//! Forwarding headers of a request are not trusted.

use gapless_store::sync::Mutex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// An address may use one in this many places, and at least one.
const PLACES_PER_SHARE: usize = 4;
/// The bits of an IPv6 address that identify a network. A network counts as one address.
const IPV6_NETWORK_MASK: u128 = !0 << 64;

/// The places in use, by address.
pub(crate) struct IpLimiter {
    each: usize,
    count_loopback: bool,
    taken: Mutex<BTreeMap<IpAddr, Arc<Semaphore>>>,
}

/// A place of an address, or the wait for one. Dropping it frees the place.
pub(crate) struct IpPermit {
    limiter: Arc<IpLimiter>,
    of: IpAddr,
    places: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl IpLimiter {
    /// Creates a limiter for `places` places. `count_loopback` counts loopback clients too,
    /// for tests.
    pub(crate) fn new(places: usize, count_loopback: bool) -> IpLimiter {
        IpLimiter {
            each: (places / PLACES_PER_SHARE).max(1),
            count_loopback,
            taken: Mutex::default(),
        }
    }

    /// Takes a place for this address; `None` if the address is not counted. If none is
    /// free, fails with the number of places that an address may use.
    pub(crate) fn try_acquire(
        self: &Arc<Self>,
        peer: Option<IpAddr>,
    ) -> Result<Option<IpPermit>, usize> {
        let Some((mut ip_permit, places)) = self.permit_for(peer) else {
            return Ok(None);
        };
        ip_permit.permit = places.try_acquire_owned().ok();
        match ip_permit.permit {
            Some(_) => Ok(Some(ip_permit)),
            None => Err(self.each),
        }
    }

    /// Waits for a place for this address; `None` if the address is not counted. The caller
    /// sets the deadline.
    pub(crate) async fn acquire(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<IpPermit> {
        let (mut ip_permit, places) = self.permit_for(peer)?;
        // The semaphore is never closed.
        ip_permit.permit = places.acquire_owned().await.ok();
        Some(ip_permit)
    }

    fn permit_for(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<(IpPermit, Arc<Semaphore>)> {
        let of = counted_as(peer?, self.count_loopback)?;
        let mut taken = self.lock();
        let places = taken.entry(of);
        let places = places.or_insert_with(|| Arc::new(Semaphore::new(self.each)));
        let permit = IpPermit {
            limiter: Arc::clone(self),
            of,
            places: Some(Arc::clone(places)),
            permit: None,
        };
        Some((permit, Arc::clone(places)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Arc<Semaphore>>> {
        self.taken.lock()
    }
}

impl Drop for IpPermit {
    fn drop(&mut self) {
        drop((self.permit.take(), self.places.take()));
        let mut taken = self.limiter.lock();
        // Clones are made only under this lock, so the last user removes the entry.
        if taken
            .get(&self.of)
            .is_some_and(|places| Arc::strong_count(places) == 1)
        {
            taken.remove(&self.of);
        }
    }
}

/// The address under which a peer is counted; `None` if it is not counted.
fn counted_as(peer: IpAddr, count_loopback: bool) -> Option<IpAddr> {
    match peer.to_canonical() {
        own if own.is_loopback() && !count_loopback => None,
        IpAddr::V4(address) => Some(IpAddr::V4(address)),
        IpAddr::V6(address) => {
            let network = Ipv6Addr::from(u128::from(address) & IPV6_NETWORK_MASK);
            Some(IpAddr::V6(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn an_address_has_its_share_and_a_network_of_version_6_is_one() {
        let limiter = Arc::new(IpLimiter::new(8, false));
        let first = limiter.try_acquire(address("192.0.2.1")).expect("a place");
        let _second = limiter
            .try_acquire(address("::ffff:192.0.2.1"))
            .expect("a place");
        assert_eq!(limiter.try_acquire(address("192.0.2.1")).err(), Some(2));
        let _other = limiter
            .try_acquire(address("192.0.2.2"))
            .expect("its own permit");
        drop(first);
        let _again = limiter
            .try_acquire(address("192.0.2.1"))
            .expect("free again");
        let _six = limiter
            .try_acquire(address("2001:db8::1"))
            .expect("a place");
        let _near = limiter
            .try_acquire(address("2001:db8::2"))
            .expect("a place");
        assert_eq!(
            limiter.try_acquire(address("2001:db8::3:0:0:1")).err(),
            Some(2)
        );
        let _far = limiter
            .try_acquire(address("2001:db8:0:1::1"))
            .expect("a place");
    }

    #[test]
    fn loopback_clients_are_not_counted() {
        let limiter = Arc::new(IpLimiter::new(1, false));
        for peer in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            for _ in 0..3 {
                let place = limiter.try_acquire(address(peer)).expect("always");
                assert!(place.is_none(), "{peer}");
            }
        }
    }

    #[test]
    fn an_address_without_a_place_is_forgotten() {
        let limiter = Arc::new(IpLimiter::new(1, false));
        let place = limiter
            .try_acquire(address("192.0.2.1"))
            .expect("at least one");
        assert_eq!(limiter.try_acquire(address("192.0.2.1")).err(), Some(1));
        drop(place);
        assert!(limiter.lock().is_empty());
    }

    #[tokio::test]
    async fn a_freed_place_goes_to_a_waiter_and_a_dropped_waiter_leaves_nothing() {
        let limiter = Arc::new(IpLimiter::new(1, true));
        let place = limiter.try_acquire(address("127.0.0.1")).expect("one");
        let mut waits = Box::pin(limiter.acquire(address("127.0.0.1")));
        let mut stops = Box::pin(limiter.acquire(address("127.0.0.1")));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert!(stops.as_mut().poll(&mut context).is_pending());
        let other = limiter.acquire(address("127.0.0.2")).await;
        assert!(other.is_some(), "it has its own");
        drop((place, other));
        let next = waits.await.expect("it is counted");
        drop(next);
        // It was given the place, and never took it.
        drop(stops);
        assert!(limiter.lock().is_empty());
    }
}
