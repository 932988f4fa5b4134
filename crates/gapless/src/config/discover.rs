//! Reads the keys of `[discover]`: whether the mirror discovers the whole network or
//! the repositories with records in some collections, and which streams it follows.

use std::time::Duration;

use gapless_core::ledger::UpstreamKind;
use gapless_mirror::settings::{DiscoverConfig, FollowWhat, UpstreamConfig};

use super::error::{ConfigError, ValueSource};
use super::raw::RawConfig;
use super::validate::{read_count, read_flag, read_patterns, read_span, read_with};
use super::values;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The shortest interval between two listings of the network.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The default of `discover.max_streams`. Each stream takes a socket.
const DEFAULT_MAX_STREAMS: usize = 4096;

/// Reads `[discover]` and checks that these upstreams can serve it.
pub(super) fn read_discover(
    raw: &RawConfig,
    upstreams: &[UpstreamConfig],
) -> Result<DiscoverConfig, ConfigError> {
    let source = "discover.collection_source";
    let found = DiscoverConfig {
        network: read_flag(raw, "discover.network")?,
        follow: read_with(raw, "discover.follow", "relays or hosts", parse_follow)?
            .unwrap_or_default(),
        every: read_span(raw, "discover.every", MIN_INTERVAL, DAY)?,
        max_streams: read_count(raw, "discover.max_streams", DEFAULT_MAX_STREAMS)?,
        collections: read_patterns(raw, "discover.collections")?,
        collection_source: read_with(raw, source, values::HTTP_URL, values::parse_http_url)?,
    };
    let relays = upstreams.iter().any(|one| one.kind == UpstreamKind::Relay);
    let by_collection = !found.collections.is_empty();
    let wrong = |key: &str, value: &str, expected: &str| {
        let given = raw.get(key);
        Err(ConfigError::Value {
            at: given.map_or(ValueSource::Default, |given| given.at.clone()),
            key: key.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        })
    };
    if found.network && !relays {
        let words = "at least one relay as an upstream (--upstream relay=URL): relays list the hosts of the network";
        return wrong("discover.network", "true", words);
    }
    if found.network && by_collection {
        let words = "either this or discover.network, which finds every repository there is";
        return wrong("discover.collections", "set", words);
    }
    if by_collection && upstreams.is_empty() && found.collection_source.is_none() {
        let words = "an upstream, or discover.collection_source, which names the repositories with such records";
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

fn parse_follow(text: &str) -> Option<FollowWhat> {
    match text {
        "relays" => Some(FollowWhat::Relays),
        "hosts" => Some(FollowWhat::Hosts),
        _ => None,
    }
}
