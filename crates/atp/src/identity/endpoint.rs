//! The address of a PDS: a scheme, a host, optionally a port, and nothing else.
//!
//! Each server has exactly one form: lower case, no default port, no trailing slash. The
//! caller decides whether the address may be dialled (private networks, plain HTTP).
//! Addresses that clients interpret in different ways, such as `http://0x7f.1`, are
//! refused here.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use crate::limits::{ENDPOINT_BYTES, HANDLE_BYTES};
use crate::syntax::{Excerpt, check_domain, ends_in_top_level};

/// `https://host` or `http://host:port`, normalised. Clones share the text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint(Arc<str>);

/// Why text is not the address of a PDS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{given} is not the address of a PDS: {fault}")]
pub struct EndpointError {
    pub fault: EndpointFault,
    pub given: Excerpt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointFault {
    #[error("it is longer than {ENDPOINT_BYTES} bytes")]
    TooLong,
    #[error("it must begin with https:// or http://")]
    Scheme,
    #[error("it must end after the host or port: no path, query, fragment or user")]
    NotBare,
    #[error("the host is neither a name nor an address")]
    Host,
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        normalise(text).map_err(|fault| EndpointError {
            fault,
            given: Excerpt::of(text),
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_https(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// The host, with the port unless it is the scheme's default.
    pub fn authority(&self) -> &str {
        // A parsed endpoint always has a scheme.
        self.0.split_once("://").map_or("", |(_, rest)| rest)
    }
}

fn normalise(text: &str) -> Result<Endpoint, EndpointFault> {
    if text.len() > ENDPOINT_BYTES {
        return Err(EndpointFault::TooLong);
    }
    let lower = text.to_ascii_lowercase();
    let (scheme, rest) = lower.split_once("://").ok_or(EndpointFault::Scheme)?;
    let default_port = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return Err(EndpointFault::Scheme),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@', '\\']) {
        return Err(EndpointFault::NotBare);
    }
    let (host, port) = split_port(rest)?;
    let host = normal_host(host)?;
    match port.map(read_port).transpose()? {
        Some(port) if port != default_port => {
            Ok(Endpoint(format!("{scheme}://{host}:{port}").into()))
        }
        _ => Ok(Endpoint(format!("{scheme}://{host}").into())),
    }
}

fn split_port(rest: &str) -> Result<(&str, Option<&str>), EndpointFault> {
    let host_end = match rest.strip_prefix('[') {
        Some(inner) => inner.find(']').ok_or(EndpointFault::Host)? + 2,
        None => rest.find(':').unwrap_or(rest.len()),
    };
    let (host, after) = rest.split_at(host_end);
    if after.is_empty() {
        return Ok((host, None));
    }
    let port = after.strip_prefix(':').ok_or(EndpointFault::Host)?;
    Ok((host, Some(port)))
}

fn normal_host(host: &str) -> Result<String, EndpointFault> {
    if let Some(address) = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        let address: Ipv6Addr = address.parse().map_err(|_| EndpointFault::Host)?;
        return Ok(format!("[{address}]"));
    }
    if host.len() > HANDLE_BYTES || check_domain(host.as_bytes()).is_err() {
        return Err(EndpointFault::Host);
    }
    // Clients take a host that ends in a number for an address, in many forms; only the
    // plain form is allowed.
    if !ends_in_top_level(host.as_bytes()) && host.parse::<Ipv4Addr>().is_err() {
        return Err(EndpointFault::Host);
    }
    Ok(host.to_owned())
}

fn read_port(digits: &str) -> Result<u16, EndpointFault> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse::<u16>() {
        Ok(port) if plain && port > 0 => Ok(port),
        _ => Err(EndpointFault::Port),
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        Endpoint::parse(text)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
