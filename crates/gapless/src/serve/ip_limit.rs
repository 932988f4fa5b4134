//! How many of the places one address may have, so that nobody takes all of them.
//!
//! A reader on this machine is not counted: a proxy there brings everybody from one
//! address, and whoever can log in here can do worse. Nothing is believed that a request
//! says about whom it is forwarded for.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One in so many places is an address's share, and at least one is.
const PART: usize = 4;
/// Whoever has one address of version 6 has as many as agree in these first bits.
const ONE_NETWORK: u128 = !0 << 64;

/// The places that are taken, by address.
pub struct Shares {
    each: usize,
    own_counted: bool,
    taken: Mutex<BTreeMap<IpAddr, Arc<Semaphore>>>,
}

/// A place of an address, or the wait for one; free again when this is dropped.
pub struct Share {
    shares: Arc<Shares>,
    of: IpAddr,
    room: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Shares {
    /// Of so many places. `own_counted`: whether this machine is counted too, which
    /// only tests want.
    pub fn of(places: usize, own_counted: bool) -> Shares {
        Shares {
            each: (places / PART).max(1),
            own_counted,
            taken: Mutex::default(),
        }
    }

    /// A place for this address, none if it is not counted; or how many it has, when
    /// those are all.
    pub fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Result<Option<Share>, usize> {
        let Some((mut share, room)) = self.begin(peer) else {
            return Ok(None);
        };
        share.permit = room.try_acquire_owned().ok();
        match share.permit {
            Some(_) => Ok(Some(share)),
            None => Err(self.each),
        }
    }

    /// The same, as soon as one is free. The caller bounds the time.
    pub async fn wait(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<Share> {
        let (mut share, room) = self.begin(peer)?;
        // Nobody closes it; if it were, an address goes uncounted.
        share.permit = room.acquire_owned().await.ok();
        Some(share)
    }

    fn begin(self: &Arc<Self>, peer: Option<IpAddr>) -> Option<(Share, Arc<Semaphore>)> {
        let of = counted(peer?, self.own_counted)?;
        let mut taken = self.lock();
        let room = taken.entry(of);
        let room = room.or_insert_with(|| Arc::new(Semaphore::new(self.each)));
        let share = Share {
            shares: Arc::clone(self),
            of,
            room: Some(Arc::clone(room)),
            permit: None,
        };
        Some((share, Arc::clone(room)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Arc<Semaphore>>> {
        // Nothing in here can panic half way.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        drop((self.permit.take(), self.room.take()));
        let mut taken = self.shares.lock();
        // Others get hold of it under this lock alone: whoever is the last forgets it.
        if taken
            .get(&self.of)
            .is_some_and(|room| Arc::strong_count(room) == 1)
        {
            taken.remove(&self.of);
        }
    }
}

/// What an address is counted as; none if it is not.
fn counted(peer: IpAddr, own_counted: bool) -> Option<IpAddr> {
    match peer.to_canonical() {
        own if own.is_loopback() && !own_counted => None,
        IpAddr::V4(address) => Some(IpAddr::V4(address)),
        IpAddr::V6(address) => {
            let network = Ipv6Addr::from(u128::from(address) & ONE_NETWORK);
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
        let shares = Arc::new(Shares::of(8, false));
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
        let shares = Arc::new(Shares::of(1, false));
        for peer in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            for _ in 0..3 {
                let place = shares.take(address(peer)).expect("always");
                assert!(place.is_none(), "{peer}");
            }
        }
    }

    #[test]
    fn what_nobody_has_is_not_remembered() {
        let shares = Arc::new(Shares::of(1, false));
        let place = shares.take(address("192.0.2.1")).expect("at least one");
        assert_eq!(shares.take(address("192.0.2.1")).err(), Some(1));
        drop(place);
        assert!(shares.lock().is_empty());
    }

    #[tokio::test]
    async fn whoever_waits_gets_what_is_let_go_of_and_whoever_stops_waiting_leaves_nothing() {
        let shares = Arc::new(Shares::of(1, true));
        let place = shares.take(address("127.0.0.1")).expect("one");
        let mut waits = Box::pin(shares.wait(address("127.0.0.1")));
        let mut stops = Box::pin(shares.wait(address("127.0.0.1")));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        assert!(stops.as_mut().poll(&mut context).is_pending());
        let other = shares.wait(address("127.0.0.2")).await;
        assert!(other.is_some(), "it has its own");
        drop((place, other));
        let next = waits.await.expect("it is counted");
        drop(next);
        // It was given the place, and never took it.
        drop(stops);
        assert!(shares.lock().is_empty());
    }
}
