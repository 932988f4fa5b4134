//! Tests the guard of addresses: which addresses untrusted input may lead to, and which are
//! refused.

use super::*;

fn judge(url: &str) -> Result<(), BlockedAddress> {
    check_url(&Url::parse(url).unwrap(), false)
}

#[test]
fn public_hosts_are_let_through() {
    for url in [
        "https://pds.example.com",
        "https://pds.example.com:443/xrpc/x?did=a",
        "wss://relay.example.com/",
        "https://xn--bcher-kva.ch",
        "https://test.com",
        "https://localhost.com",
        "https://a.b.c.d.e",
    ] {
        assert_eq!(judge(url), Ok(()), "{url}");
    }
}

#[test]
fn everything_else_is_refused_by_its_own_rule() {
    for (url, refusal) in [
        ("http://pds.example.com", BlockedAddress::Scheme),
        ("http://pds.example.com:443", BlockedAddress::Scheme),
        ("ws://pds.example.com", BlockedAddress::Scheme),
        ("ftp://pds.example.com", BlockedAddress::Scheme),
        ("https://pds.example.com:8443", BlockedAddress::Port),
        ("https://pds.example.com:80", BlockedAddress::Port),
        ("wss://pds.example.com:80", BlockedAddress::Port),
        ("https://a@pds.example.com", BlockedAddress::Credentials),
        ("https://:b@pds.example.com", BlockedAddress::Credentials),
        ("https://8.8.8.8", BlockedAddress::Literal),
        ("https://127.0.0.1", BlockedAddress::Literal),
        ("https://0x7f.1", BlockedAddress::Literal),
        ("https://2130706433", BlockedAddress::Literal),
        ("https://[::1]", BlockedAddress::Literal),
        ("https://[2600::1]", BlockedAddress::Literal),
        ("https://localhost", BlockedAddress::Name),
        ("https://com", BlockedAddress::Name),
        ("https://pds.example.com.", BlockedAddress::Name),
        ("https://LOCALHOST", BlockedAddress::Name),
        ("https://a.LocalHost", BlockedAddress::Reserved),
        ("https://a.local", BlockedAddress::Reserved),
        ("https://metadata.google.internal", BlockedAddress::Reserved),
        ("https://a.test", BlockedAddress::Reserved),
        ("https://a.invalid", BlockedAddress::Reserved),
        ("https://a.example", BlockedAddress::Reserved),
        ("https://a.onion", BlockedAddress::Reserved),
        ("https://a.alt", BlockedAddress::Reserved),
        ("https://1.0.0.127.in-addr.arpa", BlockedAddress::Reserved),
        ("data:text/plain,x", BlockedAddress::Unreadable),
    ] {
        assert_eq!(judge(url), Err(refusal), "{url}");
    }
}

#[test]
fn a_test_network_may_be_anywhere_but_never_with_credentials() {
    let judge = |url: &str| check_url(&Url::parse(url).unwrap(), true);
    for url in [
        "http://localhost:2583",
        "ws://127.0.0.1:1",
        "https://[::1]:9",
    ] {
        assert_eq!(judge(url), Ok(()), "{url}");
    }
    assert_eq!(
        judge("http://a@localhost"),
        Err(BlockedAddress::Credentials)
    );
    assert_eq!(judge("ftp://localhost/etc"), Err(BlockedAddress::Scheme));
}

#[test]
fn every_special_network_is_refused_to_its_edges() {
    for (inside, outside) in [
        ("0.0.0.0", None),
        ("0.255.255.255", Some("1.0.0.0")),
        ("10.0.0.0", Some("9.255.255.255")),
        ("10.255.255.255", Some("11.0.0.0")),
        ("100.64.0.0", Some("100.63.255.255")),
        ("100.127.255.255", Some("100.128.0.0")),
        ("127.0.0.1", Some("126.255.255.255")),
        ("127.255.255.255", Some("128.0.0.0")),
        ("169.254.169.254", Some("169.253.255.255")),
        ("169.254.255.255", Some("169.255.0.0")),
        ("172.16.0.0", Some("172.15.255.255")),
        ("172.31.255.255", Some("172.32.0.0")),
        ("192.0.0.8", Some("191.255.255.255")),
        ("192.0.2.255", Some("192.0.3.0")),
        ("192.88.99.1", Some("192.88.98.255")),
        ("192.168.0.0", Some("192.167.255.255")),
        ("192.168.255.255", Some("192.169.0.0")),
        ("198.18.0.0", Some("198.17.255.255")),
        ("198.19.255.255", Some("198.20.0.0")),
        ("198.51.100.1", Some("198.51.101.0")),
        ("203.0.113.1", Some("203.0.114.0")),
        ("224.0.0.0", Some("223.255.255.255")),
        ("233.252.0.1", None),
        ("239.255.255.255", None),
        ("240.0.0.0", None),
        ("255.255.255.255", None),
        ("::", None),
        ("::1", None),
        ("::8.8.8.8", None),
        ("::ffff:127.0.0.1", Some("::ffff:8.8.8.8")),
        ("::ffff:10.1.2.3", None),
        ("64:ff9b::10.0.0.1", Some("64:ff9b::8.8.8.8")),
        ("64:ff9b:1::8.8.8.8", None),
        ("100::1", None),
        ("1fff:ffff::1", Some("2000::1")),
        ("2001::1", Some("2001:200::1")),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", None),
        ("2001:2::1", None),
        ("2001:10::1", None),
        ("2001:1ff:ffff::1", None),
        ("2001:db8::1", Some("2001:db9::1")),
        ("2002:7f00:1::1", Some("2002:808:808::1")),
        ("2002:c0a8:1::1", None),
        ("3fff::1", Some("3fff:1000::1")),
        ("3fff:fff::1", Some("2606:4700::6810:84e5")),
        ("4000::1", Some("3ffe::1")),
        ("5f00::1", None),
        ("fc00::1", None),
        ("fdff::1", None),
        ("fe80::1", None),
        ("fec0::1", None),
        ("ff02::1", None),
    ] {
        let inside: IpAddr = inside.parse().unwrap();
        assert_eq!(check_address(inside), Err(BlockedAddress::Address(inside)));
        if let Some(outside) = outside {
            assert_eq!(check_address(outside.parse().unwrap()), Ok(()), "{outside}");
        }
    }
}

#[test]
fn trust_does_not_follow_a_redirect_to_another_origin() {
    let url = |text: &str| Url::parse(text).unwrap();
    let from = url("http://plc.internal/x");
    for (to, trust) in [
        ("http://plc.internal/y?z", Trust::Configured),
        ("http://PLC.internal:80", Trust::Configured),
        ("https://plc.internal/x", Trust::Named),
        ("http://plc.internal:6379/x", Trust::Named),
        ("ws://plc.internal/x", Trust::Named),
        ("http://a.plc.internal/x", Trust::Named),
        ("http://169.254.169.254/", Trust::Named),
        ("data:text/plain,x", Trust::Named),
    ] {
        assert_eq!(Trust::Configured.redirected(&from, &url(to)), trust, "{to}");
        assert_eq!(Trust::Named.redirected(&from, &url(to)), Trust::Named);
    }
}

#[test]
fn handles_of_reserved_names_are_not_asked_for() {
    for private in [false, true] {
        assert_eq!(check_handle("alice.bsky.social", private), Ok(()));
        for top in RESERVED.into_iter().filter(|top| *top != OWN_HANDLES) {
            let handle = format!("alice.{top}");
            let refused = Err(BlockedAddress::ReservedHandle);
            assert_eq!(check_handle(&handle, private), refused, "{handle}");
        }
        assert_eq!(check_handle("alice.test", private).is_ok(), private);
    }
}
