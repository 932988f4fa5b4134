//! How many of the places one address may have, so that nobody takes all of them.
//!
//! A consumer on this machine is not counted: a proxy there brings everybody from one
//! address, and whoever can log in here can do worse.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One in so many places is an address's share, and at least one is.
const PART: usize = 4;
/// Whoever has one address of version 6 has as many as agree in these first bits.
const ONE_NETWORK: u128 = !0 << 64;

/// The places that are taken, by address.
pub struct Shares {
    each: usize,
    taken: Mutex<BTreeMap<IpAddr, usize>>,
}

/// A place of an address; free again when this is dropped.
pub struct Share {
    shares: Arc<Shares>,
    of: IpAddr,
}

impl Shares {
    pub fn of(places: usize) -> Shares {
        Shares {
            each: (places / PART).max(1),
            taken: Mutex::default(),
        }
    }

    /// A place for this address, none if it is not counted; or how many it has, when
    /// those are all.
    pub fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Result<Option<Share>, usize> {
        let Some(of) = peer.and_then(counted) else {
            return Ok(None);
        };
        let mut taken = self.lock();
        let count = taken.entry(of).or_default();
        if *count >= self.each {
            return Err(*count);
        }
        *count += 1;
        let shares = Arc::clone(self);
        Ok(Some(Share { shares, of }))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        // Nothing in here can panic half way.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.shares.lock();
        if let Some(count) = taken.get_mut(&self.of) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.remove(&self.of);
            }
        }
    }
}

/// What an address is counted as; none if it is not.
fn counted(peer: IpAddr) -> Option<IpAddr> {
    match peer.to_canonical() {
        own if own.is_loopback() => None,
        IpAddr::V4(address) => Some(IpAddr::V4(address)),
        IpAddr::V6(address) => {
            let network = Ipv6Addr::from(u128::from(address) & ONE_NETWORK);
            Some(IpAddr::V6(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[test]
    fn an_address_has_its_share_and_a_network_of_version_6_is_one() {
        let shares = Arc::new(Shares::of(8));
        let first = shares.take(address("192.0.2.1")).expect("a place");
        let _second = shares.take(address("::ffff:192.0.2.1")).expect("a place");
        assert_eq!(shares.take(address("192.0.2.1")).err(), Some(2));
        let _other = shares.take(address("192.0.2.2")).expect("its own share");
        drop(first);
        let _again = shares.take(address("192.0.2.1")).expect("free again");
        let _six = shares.take(address("2001:db8::1")).expect("a place");
        let _near = shares.take(address("2001:db8::2")).expect("a place");
        assert_eq!(shares.take(address("2001:db8::3:0:0:1")).err(), Some(2));
        let _far = shares.take(address("2001:db8:0:1::1")).expect("a place");
    }

    #[test]
    fn whoever_is_on_this_machine_is_not_counted() {
        let shares = Arc::new(Shares::of(1));
        for peer in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            for _ in 0..3 {
                let place = shares.take(address(peer)).expect("always");
                assert!(place.is_none(), "{peer}");
            }
        }
    }

    #[test]
    fn what_nobody_has_is_not_remembered() {
        let shares = Arc::new(Shares::of(1));
        let place = shares.take(address("192.0.2.1")).expect("at least one");
        assert_eq!(shares.take(address("192.0.2.1")).err(), Some(1));
        drop(place);
        assert!(shares.lock().is_empty());
    }
}
