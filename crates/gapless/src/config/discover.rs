//! What is to be found by itself: the whole network, or whoever has a record in some
//! collection; and which streams bring it.

use std::time::Duration;

use gapless_core::ledger::Kind;

use super::error::{ConfigError, Source};
use super::raw::Raw;
use super::validate::{count, flag, parsed, patterns, span};
use super::values;
use super::{DiscoverConfig, FollowWhat, UpstreamConfig};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Listings of the whole network are not asked for more often than this.
const MIN_EVERY: Duration = Duration::from_secs(1);
/// Hosts that are followed by a stream each, unless told otherwise. Each takes a
/// socket.
const STREAMS: usize = 4096;

/// Reads what is to be discovered, and whether it can be with these upstreams.
pub(super) fn discover(
    raw: &Raw,
    upstreams: &[UpstreamConfig],
) -> Result<DiscoverConfig, ConfigError> {
    let source = "discover.collection_source";
    let found = DiscoverConfig {
        network: flag(raw, "discover.network")?,
        follow: parsed(raw, "discover.follow", "relays or hosts", follow)?.unwrap_or_default(),
        every: span(raw, "discover.every", MIN_EVERY, DAY)?,
        max_streams: count(raw, "discover.max_streams", STREAMS)?,
        collections: patterns(raw, "discover.collections")?,
        collection_source: parsed(raw, source, values::HTTP_URL, values::parse_http_url)?,
    };
    let relays = upstreams.iter().any(|one| one.kind == Kind::Relay);
    let by_collection = !found.collections.is_empty();
    let wrong = |key: &str, value: &str, expected: &str| {
        let said = raw.get(key);
        Err(ConfigError::Value {
            at: said.map_or(Source::Default, |said| said.at.clone()),
            key: key.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        })
    };
    if found.network && !relays {
        let words = "at least one relay as an upstream (--upstream relay=URL): relays tell which hosts there are";
        return wrong("discover.network", "true", words);
    }
    if found.network && by_collection {
        let words = "either this or discover.network, which finds every repository there is";
        return wrong("discover.collections", "set", words);
    }
    if by_collection && upstreams.is_empty() && found.collection_source.is_none() {
        let words =
            "an upstream, or discover.collection_source: somebody has to tell who has such records";
        return wrong("discover.collections", "set", words);
    }
    if found.collection_source.is_some() && !by_collection {
        return wrong(source, "set", "discover.collections beside it");
    }
    if found.follow == FollowWhat::Hosts && !found.network && !by_collection {
        let words =
            "relays, unless discover.network or discover.collections finds hosts to be followed";
        return wrong("discover.follow", "hosts", words);
    }
    Ok(found)
}

fn follow(text: &str) -> Option<FollowWhat> {
    match text {
        "relays" => Some(FollowWhat::Relays),
        "hosts" => Some(FollowWhat::Hosts),
        _ => None,
    }
}
