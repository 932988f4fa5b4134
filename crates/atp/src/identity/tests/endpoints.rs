//! Tests the parser of PDS endpoints: one spelling for each server, and only a scheme, a host
//! and a port.

use proptest::prelude::*;

use crate::identity::{Endpoint, EndpointFault};

#[test]
fn one_server_has_one_spelling() {
    let legal = [
        ("https://pds.example.com", "https://pds.example.com"),
        ("https://pds.example.com/", "https://pds.example.com"),
        ("HTTPS://PDS.Example.COM:443/", "https://pds.example.com"),
        ("https://pds.example.com:80", "https://pds.example.com:80"),
        ("http://pds.example.com:80", "http://pds.example.com"),
        ("http://pds.example.com:443", "http://pds.example.com:443"),
        ("https://pds.example.com:0443", "https://pds.example.com"),
        ("http://localhost:2583", "http://localhost:2583"),
        ("http://localhost:65535/", "http://localhost:65535"),
        ("http://pds:1", "http://pds:1"),
        ("http://127.0.0.1:2583", "http://127.0.0.1:2583"),
        ("http://[::1]:2583", "http://[::1]:2583"),
        ("http://[0:0:0:0:0:0:0:1]", "http://[::1]"),
        (
            "https://xn--bcher-kva.example",
            "https://xn--bcher-kva.example",
        ),
    ];
    for (given, expected) in legal {
        let endpoint = Endpoint::parse(given).unwrap();
        assert_eq!(endpoint.as_str(), expected);
        assert_eq!(endpoint.is_https(), expected.starts_with("https:"));
        let scheme = if endpoint.is_https() { "https" } else { "http" };
        assert_eq!(format!("{scheme}://{}", endpoint.authority()), expected);
    }
}

#[test]
fn anything_but_scheme_host_and_port_is_refused() {
    let long = format!("https://{}", "a".repeat(293));
    let long_host = format!("https://{}.com", ["abcdefghi"; 26].join("."));
    let refused = [
        (long.as_str(), EndpointFault::TooLong),
        (long_host.as_str(), EndpointFault::Host),
        ("", EndpointFault::Scheme),
        ("pds.example.com", EndpointFault::Scheme),
        ("//pds.example.com", EndpointFault::Scheme),
        ("https:/pds.example.com", EndpointFault::Scheme),
        ("wss://pds.example.com", EndpointFault::Scheme),
        ("ftp://pds.example.com", EndpointFault::Scheme),
        ("file:///etc/passwd", EndpointFault::Scheme),
        (" https://pds.example.com", EndpointFault::Scheme),
        ("https://pds.example.com/path", EndpointFault::NotBare),
        ("https://pds.example.com//", EndpointFault::NotBare),
        ("https://pds.example.com?q", EndpointFault::NotBare),
        ("https://pds.example.com/?q", EndpointFault::NotBare),
        ("https://pds.example.com#f", EndpointFault::NotBare),
        ("https://user@pds.example.com", EndpointFault::NotBare),
        ("https://user:pass@pds.example.com", EndpointFault::NotBare),
        (
            "https://pds.example.com\\@evil.example",
            EndpointFault::NotBare,
        ),
        ("https://", EndpointFault::Host),
        ("https:///", EndpointFault::Host),
        ("https://:443", EndpointFault::Host),
        ("https://pds..example", EndpointFault::Host),
        ("https://pds.example.", EndpointFault::Host),
        ("https://pds_1.example", EndpointFault::Host),
        ("https://bücher.example", EndpointFault::Host),
        ("https://pds.example.com ", EndpointFault::Host),
        ("https://pds.example%2ecom", EndpointFault::Host),
        ("http://2130706433", EndpointFault::Host),
        ("http://0x7f.1", EndpointFault::Host),
        ("http://127.1", EndpointFault::Host),
        ("http://0177.0.0.1", EndpointFault::Host),
        ("http://256.0.0.1", EndpointFault::Host),
        ("http://[::1", EndpointFault::Host),
        ("http://[]", EndpointFault::Host),
        ("http://[::1]x", EndpointFault::Host),
        ("http://[fe80::1%25eth0]", EndpointFault::Host),
        ("http://::1", EndpointFault::Host),
        ("https://pds.example.com:", EndpointFault::Port),
        ("https://pds.example.com:0", EndpointFault::Port),
        ("https://pds.example.com:65536", EndpointFault::Port),
        ("https://pds.example.com:+80", EndpointFault::Port),
        ("https://pds.example.com:80:80", EndpointFault::Port),
        ("https://pds.example.com:8o", EndpointFault::Port),
    ];
    for (text, fault) in refused {
        let found = Endpoint::parse(text).map_err(|error| error.fault);
        assert_eq!(found, Err(fault), "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_an_endpoint_or_an_error(
        text in any::<String>(),
        near in "(https?://)?[a-z0-9.:\\[\\]@/-]{0,30}",
    ) {
        for text in [text, near] {
            if let Ok(endpoint) = Endpoint::parse(&text) {
                prop_assert_eq!(Endpoint::parse(endpoint.as_str()), Ok(endpoint));
            }
        }
    }
}
