//! The rules for hosts that others name: in DID documents, in listings and in redirects.
//!
//! Such a host must be public: https or wss on port 443, a DNS name of at least two labels whose
//! top-level name is not reserved, and only addresses that the public internet routes. If a single
//! address is not public, the host is refused, because its owner controls which address the client
//! takes. Addresses are checked when a connection is made, not before, because a name may resolve
//! differently a moment later.
//!
//! The rules are pure functions; [`super::lookup`] and [`super::client`] apply them.
//! `allow_private` is for test networks and lifts all rules except the refusal of credentials.
//! Addresses that the operator configured are not guarded.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Where an address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// The operator configured the address.
    Configured,
    /// A DID document, a listing, or a redirect to another origin named the address.
    Named,
}

impl Trust {
    /// The trust in the target of a redirect. The operator trusts an origin: another port
    /// of that host is another service, which the operator did not configure.
    pub(crate) fn redirected(self, from: &Url, to: &Url) -> Trust {
        if from.origin() == to.origin() {
            self
        } else {
            Trust::Named
        }
    }
}

/// Why Gapless does not connect to an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlockedAddress {
    #[error("the address cannot be parsed; Gapless does not connect to it")]
    Unreadable,
    #[error(
        "only https and wss are used for hosts that others name; Gapless does not connect to it (--allow-private allows it, for networks of your own)"
    )]
    Scheme,
    #[error(
        "only port 443 is used for hosts that others name; Gapless does not connect to it (--allow-private allows it, for networks of your own)"
    )]
    Port,
    #[error("the address contains credentials; Gapless does not connect to it")]
    Credentials,
    #[error(
        "others may name hosts by DNS name only; Gapless does not connect to it (--allow-private allows it, for networks of your own)"
    )]
    Literal,
    #[error(
        "the name is not a full DNS name; Gapless does not connect to it (--allow-private allows it, for networks of your own)"
    )]
    Name,
    #[error(
        "the top-level name is reserved; Gapless does not connect to it (--allow-private allows it, for networks of your own)"
    )]
    Reserved,
    #[error("no handle may end in that top-level name; Gapless does not look it up")]
    ReservedHandle,
    #[error(
        "it resolves to {0}, which is not a public address; Gapless does not connect to it (--allow-private allows it, for networks of your own)"
    )]
    Address(IpAddr),
}

/// Top-level names that never name a public host.
const RESERVED: [&str; 9] = [
    "localhost",
    "local",
    "internal",
    "test",
    "invalid",
    "example",
    "onion",
    "alt",
    "arpa",
];

/// Checks a URL that others name, without resolving its host.
pub(crate) fn check_url(url: &Url, allow_private: bool) -> Result<(), BlockedAddress> {
    if !url.username().is_empty() || url.password().is_some() {
        return Err(BlockedAddress::Credentials);
    }
    let host = url.host().ok_or(BlockedAddress::Unreadable)?;
    match (url.scheme(), allow_private) {
        ("https" | "wss", _) | ("http" | "ws", true) => (),
        _ => return Err(BlockedAddress::Scheme),
    }
    if allow_private {
        return Ok(());
    }
    if url.port_or_known_default() != Some(443) {
        return Err(BlockedAddress::Port);
    }
    match host {
        Host::Domain(name) => check_name(name),
        Host::Ipv4(_) | Host::Ipv6(_) => Err(BlockedAddress::Literal),
    }
}

/// Checks that a name is a full DNS name and not reserved. The URL parser has already
/// converted the name to lower case and recognized numeric addresses.
fn check_name(name: &str) -> Result<(), BlockedAddress> {
    let labels: Vec<&str> = name.split('.').collect();
    if labels.len() < 2 || labels.iter().any(|label| label.is_empty()) {
        return Err(BlockedAddress::Name);
    }
    match labels.last() {
        Some(top) if !RESERVED.contains(top) => Ok(()),
        _ => Err(BlockedAddress::Reserved),
    }
}

/// The reserved top-level name that private networks may use for handles.
const OWN_HANDLES: &str = "test";

/// Checks whether a handle may be looked up. Of the reserved top-level names only `test`
/// is allowed, in private networks.
pub(crate) fn check_handle(handle: &str, allow_private: bool) -> Result<(), BlockedAddress> {
    match handle.rsplit('.').next() {
        Some(OWN_HANDLES) if allow_private => Ok(()),
        Some(top) if !RESERVED.contains(&top) => Ok(()),
        _ => Err(BlockedAddress::ReservedHandle),
    }
}

/// IPv4 networks that are not part of the public internet: address and prefix length.
const PRIVATE_V4: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),       // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),      // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),   // shared by carriers
    (Ipv4Addr::new(127, 0, 0, 0), 8),     // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16),  // link-local, and cloud metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12),   // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),    // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),    // documentation
    (Ipv4Addr::new(192, 88, 99, 0), 24),  // relays of 6to4, given up
    (Ipv4Addr::new(192, 168, 0, 0), 16),  // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),   // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),  // documentation
    (Ipv4Addr::new(233, 252, 0, 0), 24),  // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4),     // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4),     // reserved, and broadcast
];

/// IPv6 networks inside 2000::/3 that are not part of the public internet.
const PRIVATE_V6: [(Ipv6Addr, u32); 3] = [
    // Protocol assignments: Teredo, benchmarks, ORCHID.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),     // documentation
];

const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const SIX_TO_FOUR: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16);
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Checks that an address belongs to the public internet.
pub(crate) fn check_address(address: IpAddr) -> Result<(), BlockedAddress> {
    let public = match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    };
    if public {
        Ok(())
    } else {
        Err(BlockedAddress::Address(address))
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let inside = |(network, bits): &(Ipv4Addr, u32)| {
        (address.to_bits() ^ network.to_bits()) >> (32 - bits) == 0
    };
    !PRIVATE_V4.iter().any(inside)
}

fn inside_v6(address: Ipv6Addr, (network, bits): (Ipv6Addr, u32)) -> bool {
    (address.to_bits() ^ network.to_bits()) >> (128 - bits) == 0
}

/// Whether an IPv6 address is public. One that embeds an IPv4 address leads there, so the IPv4
/// address decides.
fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    if inside_v6(address, NAT64) {
        return is_public_v4(Ipv4Addr::from_bits(address.to_bits() as u32));
    }
    if inside_v6(address, SIX_TO_FOUR) {
        return is_public_v4(Ipv4Addr::from_bits((address.to_bits() >> 80) as u32));
    }
    let special = |network: &(Ipv6Addr, u32)| inside_v6(address, *network);
    inside_v6(address, GLOBAL_V6) && !PRIVATE_V6.iter().any(special)
}

#[cfg(test)]
mod tests;
