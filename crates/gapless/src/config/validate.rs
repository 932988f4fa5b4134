//! Raw words become a [`Config`], or the first of them that is wrong an error.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::settings::OnRollback;
use gapless_core::ledger::{Kind, Settings};
use toml::Value;

use super::authorities::Authorities;
use super::discover::discover;
use super::error::{ConfigError, Source};
use super::raw::{Raw, Said, read_text};
use super::values::{self, Pattern, Token};
use super::{
    Config, FetchConfig, KeepKeys, LimitsConfig, LogFormat, ReadyConfig, ServeConfig,
    UpstreamConfig,
};
use crate::api::kind_of;
use crate::net::{NAME_SERVER, NameServer};
use crate::newcomers::UNREAD;
use crate::serve::ServeLimits;
use crate::serve::firehose::FirehoseSettings;

/// Bytes of a file of DIDs: some ten million of them.
const MAX_DIDS_BYTES: u64 = 512 << 20;
/// Nobody runs more tasks or threads at a time.
const MAX_AT_ONCE: u64 = 4096;
/// No host takes more requests in a second.
const MAX_REQUESTS_PER_SECOND: f64 = 10_000.0;
/// Spans of the configuration are no longer than this.
const MAX_SPAN: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// A sweep asks for every page of every host: not more often than this.
const MIN_EVERY: Duration = Duration::from_secs(1);
/// A value that is quoted in an error is cut after so many letters.
const QUOTED: usize = 80;
/// Letters of a contact: it goes into a header of every request.
const MAX_CONTACT: usize = 200;

const HOUR: Duration = Duration::from_secs(3600);

pub fn validate(raw: &Raw) -> Result<Config, ConfigError> {
    let rules = Settings::default();
    let data = PathBuf::from(text(raw, "data", "./gapless-data", "a folder")?);
    let (dids_file, dids) = dids(raw)?;
    let upstreams = upstreams(raw)?;
    let config = Config {
        bind: bind(raw)?,
        plc: parsed(raw, "plc", values::HTTP_URL, values::parse_http_url)?
            .unwrap_or_else(|| "https://plc.directory".to_owned()),
        plc_requests_per_second: rate(raw, "plc_requests_per_second", 100.0)?,
        contact: parsed(
            raw,
            "contact",
            "printable ASCII of at most 200 letters",
            contact,
        )?,
        authorities: authorities(raw)?,
        discover: discover(raw, &upstreams)?,
        upstreams,
        collections: patterns(raw, "collections")?,
        keep_keys: parsed(raw, "keep_keys", "all or wanted", keep_keys)?.unwrap_or(KeepKeys::All),
        dids,
        dids_file,
        sweep_every: span(raw, "sweep_every", MIN_EVERY, rules.sweep_every)?,
        confirm_every: span(raw, "confirm_every", MIN_EVERY, rules.confirm_every)?,
        live_grace: span(raw, "live_grace", Duration::ZERO, rules.live_grace)?,
        purge_grace: span(raw, "purge_grace", Duration::ZERO, 72 * HOUR)?,
        keep_versions: span(raw, "keep_versions", Duration::ZERO, 24 * HOUR)?,
        on_rollback: parsed(raw, "on_rollback", "auto, hold or adopt", on_rollback)?
            .unwrap_or_default(),
        allow_private: flag(raw, "allow_private")?,
        token: token(raw)?,
        log: parsed(raw, "log", "json or text", log_format)?.unwrap_or(LogFormat::Text),
        min_free_disk: size(raw, "min_free_disk", 0, 2 << 30)?,
        fetch: fetch(raw, &data)?,
        limits: LimitsConfig {
            workers: count(raw, "limits.workers", cores())?,
            newcomers: UNREAD,
        },
        ready: ReadyConfig {
            max_upstream_age: span(raw, "ready.max_upstream_age", MIN_EVERY, HOUR / 12)?,
            max_debt_age: span(raw, "ready.max_debt_age", MIN_EVERY, 24 * HOUR)?,
            max_sweep_age: span(raw, "ready.max_sweep_age", MIN_EVERY, 2 * HOUR)?,
        },
        serve: ServeConfig {
            window: span(raw, "serve.window", Duration::ZERO, 24 * HOUR)?,
            window_bytes: size(raw, "serve.window_bytes", 0, 20_000_000_000)?,
            open: switch(raw, "serve.open", true)?,
            handle_resolver: parsed(
                raw,
                "serve.handle_resolver",
                values::HTTP_URL,
                values::parse_http_url,
            )?,
            dns: parsed(raw, "serve.dns", NAME_SERVER, NameServer::parse)?.unwrap_or_default(),
            limits: ServeLimits::default(),
            firehose: firehose(raw)?,
        },
        data,
    };
    if !config.bind.ip().is_loopback() && config.token.is_none() {
        let at = raw
            .get("bind")
            .map_or(Source::Default, |said| said.at.clone());
        let bind = config.bind;
        return Err(ConfigError::TokenNeeded { bind, at });
    }
    Ok(config)
}

fn authorities(raw: &Raw) -> Result<Option<Authorities>, ConfigError> {
    let file = parsed(raw, "ca_file", "a file of certificates in PEM", folder)?;
    file.map(|file| Authorities::read(&file)).transpose()
}

fn firehose(raw: &Raw) -> Result<FirehoseSettings, ConfigError> {
    let usual = FirehoseSettings::default();
    Ok(FirehoseSettings {
        consumers: count(raw, "serve.consumers", usual.consumers)?,
        stall: span(raw, "serve.stall", MIN_EVERY, usual.stall)?,
    })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

fn fetch(raw: &Raw, data: &Path) -> Result<FetchConfig, ConfigError> {
    let temp = parsed(raw, "fetch.temp", "a folder", folder)?;
    Ok(FetchConfig {
        concurrency: count(raw, "fetch.concurrency", 32)?,
        per_host: count(raw, "fetch.per_host", 4)?,
        requests_per_second: rate(raw, "fetch.requests_per_second", 10.0)?,
        max_repo_bytes: size(raw, "fetch.max_repo_bytes", 1, 8_000_000_000)?,
        temp: temp.unwrap_or_else(|| data.join("tmp")),
    })
}

/// The error about a value that was said.
fn wrong(key: &str, said: &Said, expected: &str) -> ConfigError {
    let value = match (key, &said.value) {
        // A wrong token may be nearly the right one.
        ("token", _) => "not usable".to_owned(),
        (_, Value::String(text)) => format!("{text:?}"),
        (_, other) => other.to_string(),
    };
    let mut short: String = value.chars().take(QUOTED).collect();
    if short.len() < value.len() {
        short.push('…');
    }
    ConfigError::Value {
        at: said.at.clone(),
        key: key.to_owned(),
        value: short,
        expected: expected.to_owned(),
    }
}

/// A text that a reader turns into a value.
pub(super) fn parsed<T>(
    raw: &Raw,
    key: &str,
    expected: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, ConfigError> {
    let Some(said) = raw.get(key) else {
        return Ok(None);
    };
    match said.value.as_str().and_then(read) {
        Some(value) => Ok(Some(value)),
        None => Err(wrong(key, said, expected)),
    }
}

fn text(raw: &Raw, key: &str, default: &str, expected: &str) -> Result<String, ConfigError> {
    let full = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Ok(parsed(raw, key, expected, full)?.unwrap_or_else(|| default.to_owned()))
}

fn folder(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

pub(super) fn span(
    raw: &Raw,
    key: &str,
    least: Duration,
    default: Duration,
) -> Result<Duration, ConfigError> {
    let expected = match least {
        Duration::ZERO => values::DURATION.to_owned(),
        least => format!(
            "{}, at least {}",
            values::DURATION,
            values::duration_text(least)
        ),
    };
    let read =
        |text: &str| values::parse_duration(text).filter(|span| (least..=MAX_SPAN).contains(span));
    Ok(parsed(raw, key, &expected, read)?.unwrap_or(default))
}

fn size(raw: &Raw, key: &str, least: u64, default: u64) -> Result<u64, ConfigError> {
    let read = |text: &str| values::parse_size(text).filter(|size| *size >= least);
    Ok(parsed(raw, key, values::SIZE, read)?.unwrap_or(default))
}

/// A number as a file says it, or as text from elsewhere.
fn number(said: &Said) -> Option<f64> {
    match (&said.value, &said.at) {
        (Value::Integer(number), _) => Some(*number as f64),
        (Value::Float(number), _) => Some(*number),
        (Value::String(_), Source::File(_)) => None,
        (Value::String(text), _) => text.trim().parse().ok(),
        _ => None,
    }
}

pub(super) fn count(raw: &Raw, key: &str, default: usize) -> Result<usize, ConfigError> {
    let Some(said) = raw.get(key) else {
        return Ok(default);
    };
    let whole = number(said)
        .filter(|number| number.fract() == 0.0 && (1.0..=MAX_AT_ONCE as f64).contains(number));
    match whole {
        Some(number) => Ok(number as usize),
        None => Err(wrong(key, said, "a whole number from 1 to 4096")),
    }
}

fn rate(raw: &Raw, key: &str, default: f64) -> Result<f64, ConfigError> {
    let Some(said) = raw.get(key) else {
        return Ok(default);
    };
    number(said)
        .filter(|rate| (0.01..=MAX_REQUESTS_PER_SECOND).contains(rate))
        .ok_or_else(|| wrong(key, said, "a number from 0.01 to 10000"))
}

pub(super) fn flag(raw: &Raw, key: &str) -> Result<bool, ConfigError> {
    switch(raw, key, false)
}

fn switch(raw: &Raw, key: &str, unsaid: bool) -> Result<bool, ConfigError> {
    let Some(said) = raw.get(key) else {
        return Ok(unsaid);
    };
    let value = match (&said.value, &said.at) {
        (Value::Boolean(value), _) => Some(*value),
        (Value::String(_), Source::File(_)) => None,
        (Value::String(text), _) => text.trim().parse().ok(),
        _ => None,
    };
    value.ok_or_else(|| wrong(key, said, "true or false"))
}

fn bind(raw: &Raw) -> Result<SocketAddr, ConfigError> {
    let expected = "an address and a port such as 127.0.0.1:7070 or [::1]:7070";
    let read = |text: &str| match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse().ok(),
        None => text.parse().ok(),
    };
    let default = SocketAddr::from(([127, 0, 0, 1], 7070));
    Ok(parsed(raw, "bind", expected, read)?.unwrap_or(default))
}

fn contact(text: &str) -> Option<String> {
    let printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let fits = (1..=MAX_CONTACT).contains(&text.len());
    (printable && fits).then(|| text.to_owned())
}

fn keep_keys(text: &str) -> Option<KeepKeys> {
    match text {
        "all" => Some(KeepKeys::All),
        "wanted" => Some(KeepKeys::Wanted),
        _ => None,
    }
}

fn on_rollback(text: &str) -> Option<OnRollback> {
    match text {
        "auto" => Some(OnRollback::Auto),
        "hold" => Some(OnRollback::Hold),
        "adopt" => Some(OnRollback::Adopt),
        _ => None,
    }
}

fn log_format(text: &str) -> Option<LogFormat> {
    match text {
        "json" => Some(LogFormat::Json),
        "text" => Some(LogFormat::Text),
        _ => None,
    }
}

fn token(raw: &Raw) -> Result<Option<Token>, ConfigError> {
    parsed(raw, "token", values::TOKEN, Token::parse)
}

/// A list as a file says it, or text with commas from elsewhere.
fn list(key: &str, said: &Said, expected: &str) -> Result<Vec<String>, ConfigError> {
    match (&said.value, &said.at) {
        (Value::Array(items), _) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(|| wrong(key, said, expected)),
        (Value::String(text), at) if !matches!(at, Source::File(_)) => {
            let items = text.split(',').map(str::trim);
            let items = items.filter(|item| !item.is_empty()).map(str::to_owned);
            match items.collect::<Vec<_>>() {
                // Only commas, or a variable of a script that is empty: an empty
                // list would mean all.
                none if none.is_empty() => Err(wrong(key, said, expected)),
                items => Ok(items),
            }
        }
        _ => Err(wrong(key, said, expected)),
    }
}

/// One item of a list that is wrong, alone.
fn wrong_item(key: &str, said: &Said, item: &str, expected: &str) -> ConfigError {
    let item = Said {
        value: Value::String(item.to_owned()),
        at: said.at.clone(),
    };
    wrong(key, &item, expected)
}

pub(super) fn patterns(raw: &Raw, key: &str) -> Result<Vec<Pattern>, ConfigError> {
    let Some(said) = raw.get(key) else {
        return Ok(Vec::new());
    };
    let mut patterns = Vec::new();
    for item in list(
        key,
        said,
        "a list of patterns, such as [\"app.bsky.feed.*\"]",
    )? {
        match Pattern::parse(&item) {
            Some(pattern) if patterns.contains(&pattern) => {}
            Some(pattern) => patterns.push(pattern),
            None => return Err(wrong_item(key, said, &item, values::PATTERN)),
        }
    }
    Ok(patterns)
}

fn upstreams(raw: &Raw) -> Result<Vec<UpstreamConfig>, ConfigError> {
    let Some(said) = raw.get("upstream") else {
        return Ok(Vec::new());
    };
    let found = match &said.value {
        Value::Array(entries) if entries.iter().all(Value::is_table) => entries
            .iter()
            .map(|entry| upstream_entry(said, entry))
            .collect::<Result<Vec<_>, _>>()?,
        _ => {
            let expected = "pds=URL, relay=URL or jetstream=URL; in a file, [[upstream]] entries";
            let named = list("upstream", said, expected)?;
            named
                .iter()
                .map(|item| {
                    upstream_text(item).ok_or_else(|| {
                        let words = format!(
                            "pds=URL, relay=URL or jetstream=URL, the URL {}",
                            values::URL
                        );
                        wrong_item("upstream", said, item, &words)
                    })
                })
                .collect::<Result<Vec<_>, _>>()?
        }
    };
    let private = flag(raw, "allow_private")?;
    for (at, upstream) in found.iter().enumerate() {
        if let Some(host) = upstream.host.as_deref()
            && host.starts_with("http://")
            && !private
        {
            let words = "a host that is reached by https: by http only where allow_private is set";
            return Err(wrong_item("upstream.host", said, host, words));
        }
        if found[..at].iter().any(|other| other.url == upstream.url) {
            return Err(wrong_item("upstream", said, &upstream.url, "each URL once"));
        }
    }
    Ok(found)
}

fn upstream_text(item: &str) -> Option<UpstreamConfig> {
    let (kind, url) = item.split_once('=')?;
    Some(UpstreamConfig {
        kind: kind_of(kind.trim())?,
        url: values::parse_url(url)?,
        host: None,
    })
}

fn upstream_entry(said: &Said, entry: &Value) -> Result<UpstreamConfig, ConfigError> {
    let at = &said.at;
    for key in entry.as_table().into_iter().flat_map(toml::Table::keys) {
        if !["kind", "url", "host"].contains(&key.as_str()) {
            let key = format!("upstream.{key}");
            let nearest = super::keys::nearest(&key);
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
        let said = Said {
            value,
            at: at.clone(),
        };
        let read = said.value.as_str().and_then(read);
        read.ok_or_else(|| wrong(&format!("upstream.{key}"), &said, expected))
    };
    let known = |text: &str| kind_of(text).map(|_| text.to_owned());
    let kind = inner("kind", "\"pds\", \"relay\" or \"jetstream\"", &known)?;
    let kind = kind_of(&kind).unwrap_or(Kind::Pds);
    let url = inner("url", values::URL, &values::parse_url)?;
    let host = match entry.get("host") {
        Some(value) if kind != Kind::Pds => {
            let said = Said {
                value: value.clone(),
                at: at.clone(),
            };
            let words = "no host: it stands for many";
            return Err(wrong("upstream.host", &said, words));
        }
        Some(_) => Some(inner("host", values::HOST, &values::parse_host)?),
        None => None,
    };
    Ok(UpstreamConfig { kind, url, host })
}

fn dids(raw: &Raw) -> Result<(Option<PathBuf>, Vec<Did>), ConfigError> {
    let Some(path) = parsed(raw, "dids", "a file with one DID a line", folder)? else {
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
                    text: name.chars().take(QUOTED).collect(),
                    why: error.to_string(),
                });
            }
        }
    }
    dids.sort();
    dids.dedup();
    Ok((Some(path), dids))
}
