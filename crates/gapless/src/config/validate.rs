//! Turns raw values into a [`Config`]. The first invalid value is the error.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::filter::Pattern;
use gapless_core::ledger::settings::OnRollback;
use gapless_core::ledger::{Settings, UpstreamKind};
use gapless_mirror::settings::{
    FetchSettings, KeepKeys, MirrorSettings, ReadySettings, UpstreamConfig,
};
use gapless_net::{Certificate, NAME_SERVER, NameServer, parse_certificates};
use toml::Value;

use super::discover::read_discover;
use super::error::{ConfigError, ValueSource};
use super::raw::{RawConfig, RawValue, read_text};
use super::serve::{FirehoseSettings, ServeLimits};
use super::values::{self, Token};
use super::{Config, LogFormat, ServeConfig};

/// New names that one upstream may bring before their documents are read.
const NEWCOMERS_PER_UPSTREAM: usize = 100_000;
/// The largest file of DIDs, in bytes: about ten million DIDs.
const MAX_DIDS_BYTES: u64 = 512 << 20;
/// Bytes of a file of certificates. All authorities of the public web take a fifth of it.
const MAX_CA_BYTES: u64 = 1 << 20;
/// The largest number of tasks, threads, streams or consumers.
const MAX_COUNT: u64 = 4096;
/// The highest rate of requests to one host.
const MAX_REQUESTS_PER_SECOND: f64 = 10_000.0;
/// The longest duration.
const MAX_SPAN: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The shortest interval. A sweep reads every page of every host.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Characters of a value that an error quotes.
const MAX_QUOTED_CHARS: usize = 80;
/// Characters of `contact`, which is a header of every request.
const MAX_CONTACT_CHARS: usize = 200;

const HOUR: Duration = Duration::from_secs(3600);

pub(crate) fn validate(raw: &RawConfig) -> Result<Config, ConfigError> {
    let rules = Settings::default();
    let data = PathBuf::from(read_string(raw, "data", "./gapless-data", "a folder")?);
    let (dids_file, dids) = read_dids(raw)?;
    let upstreams = read_upstreams(raw)?;
    let bind = read_bind(raw)?;
    let (ca_file, authorities) = read_authorities(raw)?;
    let mirror = MirrorSettings {
        plc: read_with(raw, "plc", values::HTTP_URL, values::parse_http_url)?
            .unwrap_or_else(|| "https://plc.directory".to_owned()),
        plc_requests_per_second: read_rate(raw, "plc_requests_per_second", 100.0)?,
        contact: read_with(
            raw,
            "contact",
            "printable ASCII of at most 200 letters",
            parse_contact,
        )?,
        authorities,
        discover: read_discover(raw, &upstreams)?,
        upstreams,
        collections: read_patterns(raw, "collections")?,
        keep_keys: read_with(raw, "keep_keys", "all or wanted", parse_keep_keys)?
            .unwrap_or(KeepKeys::All),
        dids,
        sweep_every: read_span(raw, "sweep_every", MIN_INTERVAL, rules.sweep_every)?,
        confirm_every: read_span(raw, "confirm_every", MIN_INTERVAL, rules.confirm_every)?,
        live_grace: read_span(raw, "live_grace", Duration::ZERO, rules.live_grace)?,
        purge_grace: read_span(raw, "purge_grace", Duration::ZERO, 72 * HOUR)?,
        keep_versions: read_span(raw, "keep_versions", Duration::ZERO, 24 * HOUR)?,
        keep_log: read_kept_span(raw, "keep_log")?,
        hold: read_span(raw, "hold", MIN_INTERVAL, 72 * HOUR)?,
        on_rollback: read_with(raw, "on_rollback", "auto, hold or adopt", parse_on_rollback)?
            .unwrap_or_default(),
        allow_private: read_flag(raw, "allow_private")?,
        min_free_disk: read_size(raw, "min_free_disk", 0, 2 << 30)?,
        fetch: read_fetch(raw, &data)?,
        workers: read_count(raw, "limits.workers", count_cores())?,
        newcomers: NEWCOMERS_PER_UPSTREAM,
        ready: ReadySettings {
            max_upstream_age: read_span(raw, "ready.max_upstream_age", MIN_INTERVAL, HOUR / 12)?,
            max_debt_age: read_span(raw, "ready.max_debt_age", MIN_INTERVAL, 24 * HOUR)?,
            max_sweep_age: read_span(raw, "ready.max_sweep_age", MIN_INTERVAL, 2 * HOUR)?,
        },
        window: read_span(raw, "serve.window", Duration::ZERO, 24 * HOUR)?,
        window_bytes: read_size(raw, "serve.window_bytes", 0, 20_000_000_000)?,
        data,
    };
    let config = Config {
        mirror,
        bind,
        ca_file,
        dids_file,
        token: read_token(raw)?,
        log: read_with(raw, "log", "json or text", parse_log_format)?.unwrap_or(LogFormat::Text),
        serve: ServeConfig {
            open: read_bool(raw, "serve.open", true)?,
            handle_resolver: read_with(
                raw,
                "serve.handle_resolver",
                values::HTTP_URL,
                values::parse_http_url,
            )?,
            dns: read_with(raw, "serve.dns", NAME_SERVER, NameServer::parse)?.unwrap_or_default(),
            limits: ServeLimits::default(),
            firehose: read_firehose(raw)?,
        },
    };
    if !config.bind.ip().is_loopback() && config.token.is_none() {
        let at = raw
            .get("bind")
            .map_or(ValueSource::Default, |given| given.at.clone());
        let bind = config.bind;
        return Err(ConfigError::TokenNeeded { bind, at });
    }
    Ok(config)
}

/// The file of certificate authorities that the operator trusts in addition to the built-in ones
/// (those of a test network, or of hosts in a private network), and its certificates.
fn read_authorities(raw: &RawConfig) -> Result<(Option<PathBuf>, Vec<Certificate>), ConfigError> {
    let file = read_with(raw, "ca_file", "a file of certificates in PEM", parse_path)?;
    let Some(path) = file else {
        return Ok((None, Vec::new()));
    };
    let text = read_text("the file of certificates", &path, MAX_CA_BYTES)?;
    match parse_certificates(&text) {
        Ok(certificates) => Ok((Some(path), certificates)),
        Err(error) => {
            let why = error.to_string();
            Err(ConfigError::Certificates { path, why })
        }
    }
}

fn read_firehose(raw: &RawConfig) -> Result<FirehoseSettings, ConfigError> {
    let usual = FirehoseSettings::default();
    Ok(FirehoseSettings {
        consumers: read_count(raw, "serve.consumers", usual.consumers)?,
        stall: read_span(raw, "serve.stall", MIN_INTERVAL, usual.stall)?,
    })
}

fn count_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

fn read_fetch(raw: &RawConfig, data: &Path) -> Result<FetchSettings, ConfigError> {
    let temp = read_with(raw, "fetch.temp", "a folder", parse_path)?;
    Ok(FetchSettings {
        concurrency: read_count(raw, "fetch.concurrency", 32)?,
        per_host: read_count(raw, "fetch.per_host", 4)?,
        requests_per_second: read_rate(raw, "fetch.requests_per_second", 10.0)?,
        max_repo_bytes: read_size(raw, "fetch.max_repo_bytes", 1, 8_000_000_000)?,
        temp: temp.unwrap_or_else(|| data.join("tmp")),
    })
}

/// The error for an invalid value.
fn value_error(key: &str, given: &RawValue, expected: &str) -> ConfigError {
    let value = match (key, &given.value) {
        // A mistyped token may be close to the real one.
        ("token", _) => "not usable".to_owned(),
        (_, Value::String(text)) => format!("{text:?}"),
        (_, other) => other.to_string(),
    };
    let mut short: String = value.chars().take(MAX_QUOTED_CHARS).collect();
    if short.len() < value.len() {
        short.push('…');
    }
    ConfigError::Value {
        at: given.at.clone(),
        key: key.to_owned(),
        value: short,
        expected: expected.to_owned(),
    }
}

/// Reads a key whose text `read` parses.
pub(super) fn read_with<T>(
    raw: &RawConfig,
    key: &str,
    expected: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, ConfigError> {
    let Some(given) = raw.get(key) else {
        return Ok(None);
    };
    match given.value.as_str().and_then(read) {
        Some(value) => Ok(Some(value)),
        None => Err(value_error(key, given, expected)),
    }
}

fn read_string(
    raw: &RawConfig,
    key: &str,
    default: &str,
    expected: &str,
) -> Result<String, ConfigError> {
    let full = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Ok(read_with(raw, key, expected, full)?.unwrap_or_else(|| default.to_owned()))
}

fn parse_path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

pub(super) fn read_span(
    raw: &RawConfig,
    key: &str,
    least: Duration,
    default: Duration,
) -> Result<Duration, ConfigError> {
    let expected = match least {
        Duration::ZERO => values::DURATION.to_owned(),
        least => format!(
            "{}, at least {}",
            values::DURATION,
            values::format_duration(least)
        ),
    };
    let read =
        |text: &str| values::parse_duration(text).filter(|span| (least..=MAX_SPAN).contains(span));
    Ok(read_with(raw, key, &expected, read)?.unwrap_or(default))
}

/// Reads how long something is kept; without a value, or with `all`, for ever.
fn read_kept_span(raw: &RawConfig, key: &str) -> Result<Option<Duration>, ConfigError> {
    let expected = format!("all, or {}", values::DURATION);
    let read = |text: &str| {
        values::parse_kept_span(text).filter(|span| span.is_none_or(|span| span <= MAX_SPAN))
    };
    Ok(read_with(raw, key, &expected, read)?.flatten())
}

fn read_size(raw: &RawConfig, key: &str, least: u64, default: u64) -> Result<u64, ConfigError> {
    let read = |text: &str| values::parse_size(text).filter(|size| *size >= least);
    Ok(read_with(raw, key, values::SIZE, read)?.unwrap_or(default))
}

/// A number: a TOML number from a file, text from any other layer.
fn as_number(given: &RawValue) -> Option<f64> {
    match (&given.value, &given.at) {
        (Value::Integer(number), _) => Some(*number as f64),
        (Value::Float(number), _) => Some(*number),
        (Value::String(_), ValueSource::File(_)) => None,
        (Value::String(text), _) => text.trim().parse().ok(),
        _ => None,
    }
}

pub(super) fn read_count(raw: &RawConfig, key: &str, default: usize) -> Result<usize, ConfigError> {
    let Some(given) = raw.get(key) else {
        return Ok(default);
    };
    let whole = as_number(given)
        .filter(|number| number.fract() == 0.0 && (1.0..=MAX_COUNT as f64).contains(number));
    match whole {
        Some(number) => Ok(number as usize),
        None => Err(value_error(key, given, "a whole number from 1 to 4096")),
    }
}

fn read_rate(raw: &RawConfig, key: &str, default: f64) -> Result<f64, ConfigError> {
    let Some(given) = raw.get(key) else {
        return Ok(default);
    };
    as_number(given)
        .filter(|rate| (0.01..=MAX_REQUESTS_PER_SECOND).contains(rate))
        .ok_or_else(|| value_error(key, given, "a number from 0.01 to 10000"))
}

pub(super) fn read_flag(raw: &RawConfig, key: &str) -> Result<bool, ConfigError> {
    read_bool(raw, key, false)
}

fn read_bool(raw: &RawConfig, key: &str, default: bool) -> Result<bool, ConfigError> {
    let Some(given) = raw.get(key) else {
        return Ok(default);
    };
    let value = match (&given.value, &given.at) {
        (Value::Boolean(value), _) => Some(*value),
        (Value::String(_), ValueSource::File(_)) => None,
        (Value::String(text), _) => text.trim().parse().ok(),
        _ => None,
    };
    value.ok_or_else(|| value_error(key, given, "true or false"))
}

fn read_bind(raw: &RawConfig) -> Result<SocketAddr, ConfigError> {
    let expected = "an address and a port such as 127.0.0.1:7070 or [::1]:7070";
    let read = |text: &str| match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse().ok(),
        None => text.parse().ok(),
    };
    let default = SocketAddr::from(([127, 0, 0, 1], 7070));
    Ok(read_with(raw, "bind", expected, read)?.unwrap_or(default))
}

fn parse_contact(text: &str) -> Option<String> {
    let printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let fits = (1..=MAX_CONTACT_CHARS).contains(&text.len());
    (printable && fits).then(|| text.to_owned())
}

fn parse_keep_keys(text: &str) -> Option<KeepKeys> {
    match text {
        "all" => Some(KeepKeys::All),
        "wanted" => Some(KeepKeys::Wanted),
        _ => None,
    }
}

fn parse_on_rollback(text: &str) -> Option<OnRollback> {
    match text {
        "auto" => Some(OnRollback::Auto),
        "hold" => Some(OnRollback::Hold),
        "adopt" => Some(OnRollback::Adopt),
        _ => None,
    }
}

fn parse_log_format(text: &str) -> Option<LogFormat> {
    match text {
        "json" => Some(LogFormat::Json),
        "text" => Some(LogFormat::Text),
        _ => None,
    }
}

fn read_token(raw: &RawConfig) -> Result<Option<Token>, ConfigError> {
    read_with(raw, "token", values::TOKEN, Token::parse)
}

/// Reads a list: a TOML array from a file, text with commas from any other layer.
fn read_list(key: &str, given: &RawValue, expected: &str) -> Result<Vec<String>, ConfigError> {
    match (&given.value, &given.at) {
        (Value::Array(items), _) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(|| value_error(key, given, expected)),
        (Value::String(text), at) if !matches!(at, ValueSource::File(_)) => {
            let items = text.split(',').map(str::trim);
            let items = items.filter(|item| !item.is_empty()).map(str::to_owned);
            match items.collect::<Vec<_>>() {
                // The text has only commas, or comes from an empty variable. An empty list would
                // mean everything, so it is an error.
                none if none.is_empty() => Err(value_error(key, given, expected)),
                items => Ok(items),
            }
        }
        _ => Err(value_error(key, given, expected)),
    }
}

/// The error for one invalid item of a list.
fn item_error(key: &str, given: &RawValue, item: &str, expected: &str) -> ConfigError {
    let item = RawValue {
        value: Value::String(item.to_owned()),
        at: given.at.clone(),
    };
    value_error(key, &item, expected)
}

pub(super) fn read_patterns(raw: &RawConfig, key: &str) -> Result<Vec<Pattern>, ConfigError> {
    let Some(given) = raw.get(key) else {
        return Ok(Vec::new());
    };
    let mut patterns = Vec::new();
    for item in read_list(
        key,
        given,
        "a list of patterns, such as [\"app.bsky.feed.*\"]",
    )? {
        match Pattern::parse(&item) {
            Some(pattern) if patterns.contains(&pattern) => {}
            Some(pattern) => patterns.push(pattern),
            None => return Err(item_error(key, given, &item, values::PATTERN)),
        }
    }
    Ok(patterns)
}

fn read_upstreams(raw: &RawConfig) -> Result<Vec<UpstreamConfig>, ConfigError> {
    let Some(given) = raw.get("upstream") else {
        return Ok(Vec::new());
    };
    let found = match &given.value {
        Value::Array(entries) if entries.iter().all(Value::is_table) => entries
            .iter()
            .map(|entry| read_upstream_entry(given, entry))
            .collect::<Result<Vec<_>, _>>()?,
        _ => {
            let expected = "pds=URL, relay=URL or jetstream=URL; in a file, [[upstream]] entries";
            let named = read_list("upstream", given, expected)?;
            named
                .iter()
                .map(|item| {
                    parse_upstream(item).ok_or_else(|| {
                        let words = format!(
                            "pds=URL, relay=URL or jetstream=URL, the URL {}",
                            values::URL
                        );
                        item_error("upstream", given, item, &words)
                    })
                })
                .collect::<Result<Vec<_>, _>>()?
        }
    };
    let private = read_flag(raw, "allow_private")?;
    for (at, upstream) in found.iter().enumerate() {
        if let Some(host) = upstream.host.as_deref()
            && host.starts_with("http://")
            && !private
        {
            let words = "a host that is reached by https: by http only where allow_private is set";
            return Err(item_error("upstream.host", given, host, words));
        }
        if found[..at].iter().any(|other| other.url == upstream.url) {
            return Err(item_error(
                "upstream",
                given,
                &upstream.url,
                "each URL once",
            ));
        }
    }
    Ok(found)
}

fn parse_upstream(item: &str) -> Option<UpstreamConfig> {
    let (kind, url) = item.split_once('=')?;
    Some(UpstreamConfig {
        kind: UpstreamKind::parse(kind.trim())?,
        url: values::parse_url(url)?,
        host: None,
    })
}

fn read_upstream_entry(given: &RawValue, entry: &Value) -> Result<UpstreamConfig, ConfigError> {
    let at = &given.at;
    for key in entry.as_table().into_iter().flat_map(toml::Table::keys) {
        if !["kind", "url", "host"].contains(&key.as_str()) {
            let key = format!("upstream.{key}");
            let nearest = super::keys::nearest_key(&key);
            return Err(ConfigError::UnknownKey {
                at: at.clone(),
                key,
                nearest,
            });
        }
    }
    let inner = |key: &str, expected: &str, read: &dyn Fn(&str) -> Option<String>| {
        let Some(value) = entry.get(key).cloned() else {
            return Err(ConfigError::Value {
                at: at.clone(),
                key: format!("upstream.{key}"),
                value: "missing".to_owned(),
                expected: expected.to_owned(),
            });
        };
        let given = RawValue {
            value,
            at: at.clone(),
        };
        let read = given.value.as_str().and_then(read);
        read.ok_or_else(|| value_error(&format!("upstream.{key}"), &given, expected))
    };
    let known = |text: &str| UpstreamKind::parse(text).map(|_| text.to_owned());
    let kind = inner("kind", "\"pds\", \"relay\" or \"jetstream\"", &known)?;
    let kind = UpstreamKind::parse(&kind).unwrap_or(UpstreamKind::Pds);
    let url = inner("url", values::URL, &values::parse_url)?;
    let host = match entry.get("host") {
        Some(value) if kind != UpstreamKind::Pds => {
            let given = RawValue {
                value: value.clone(),
                at: at.clone(),
            };
            let words = "no host for this kind: a relay or Jetstream stands for many hosts";
            return Err(value_error("upstream.host", &given, words));
        }
        Some(_) => Some(inner("host", values::HOST, &values::parse_host)?),
        None => None,
    };
    Ok(UpstreamConfig { kind, url, host })
}

fn read_dids(raw: &RawConfig) -> Result<(Option<PathBuf>, Vec<Did>), ConfigError> {
    let Some(path) = read_with(raw, "dids", "a file with one DID a line", parse_path)? else {
        return Ok((None, Vec::new()));
    };
    let text = read_text("the file of DIDs", &path, MAX_DIDS_BYTES)?;
    let mut dids = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let name = line.split('#').next().unwrap_or("").trim();
        if name.is_empty() {
            continue;
        }
        match Did::parse(name) {
            Ok(did) => dids.push(did),
            Err(error) => {
                return Err(ConfigError::BadDid {
                    path,
                    line: at + 1,
                    text: name.chars().take(MAX_QUOTED_CHARS).collect(),
                    why: error.to_string(),
                });
            }
        }
    }
    dids.sort();
    dids.dedup();
    Ok((Some(path), dids))
}
