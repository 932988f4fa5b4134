//! Prints the validated configuration as TOML or JSON, with the source of each value.
//! The TOML can be read again; only the token is redacted.

use std::fmt::Write;

use gapless_core::ledger::settings::OnRollback;
use serde_json::json;
use toml::Value;

use super::values::{format_duration, format_size};
use super::{Config, LoadedConfig, LogFormat, keys};
use gapless_mirror::settings::{FollowWhat, KeepKeys, UpstreamConfig};

/// Replaces the token.
const REDACTED: &str = "(redacted)";

/// The value of a key in the form that a file uses; `None` if it is unset.
fn key_value(config: &Config, key: &str) -> Option<Value> {
    let text = |text: String| Some(Value::String(text));
    let path = |path: &std::path::Path| Some(Value::String(path.display().to_string()));
    let count = |count: usize| i64::try_from(count).ok().map(Value::Integer);
    match key {
        "data" => path(&config.data),
        "bind" => text(config.bind.to_string()),
        "plc" => text(config.plc.clone()),
        "plc_requests_per_second" => Some(Value::Float(config.plc_requests_per_second)),
        "contact" => config.contact.clone().and_then(text),
        "ca_file" => {
            let authorities = config.authorities.as_ref();
            authorities.and_then(|found| path(&found.file))
        }
        "collections" => {
            let patterns = config.collections.iter();
            let patterns = patterns.map(|pattern| Value::String(pattern.to_string()));
            Some(Value::Array(patterns.collect()))
        }
        "keep_keys" => text(match config.keep_keys {
            KeepKeys::All => "all".to_owned(),
            KeepKeys::Wanted => "wanted".to_owned(),
        }),
        "dids" => config.dids_file.as_deref().and_then(path),
        "sweep_every" => text(format_duration(config.sweep_every)),
        "confirm_every" => text(format_duration(config.confirm_every)),
        "live_grace" => text(format_duration(config.live_grace)),
        "purge_grace" => text(format_duration(config.purge_grace)),
        "keep_versions" => text(format_duration(config.keep_versions)),
        "on_rollback" => text(match config.on_rollback {
            OnRollback::Auto => "auto".to_owned(),
            OnRollback::Hold => "hold".to_owned(),
            OnRollback::Adopt => "adopt".to_owned(),
        }),
        "allow_private" => Some(Value::Boolean(config.allow_private)),
        "token" => config.token.as_ref().and(text(REDACTED.to_owned())),
        "log" => text(match config.log {
            LogFormat::Json => "json".to_owned(),
            LogFormat::Text => "text".to_owned(),
        }),
        "min_free_disk" => text(format_size(config.min_free_disk)),
        "fetch.concurrency" => count(config.fetch.concurrency),
        "fetch.per_host" => count(config.fetch.per_host),
        "fetch.requests_per_second" => Some(Value::Float(config.fetch.requests_per_second)),
        "fetch.max_repo_bytes" => text(format_size(config.fetch.max_repo_bytes)),
        "fetch.temp" => path(&config.fetch.temp),
        "limits.workers" => count(config.limits.workers),
        "ready.max_upstream_age" => text(format_duration(config.ready.max_upstream_age)),
        "ready.max_debt_age" => text(format_duration(config.ready.max_debt_age)),
        "ready.max_sweep_age" => text(format_duration(config.ready.max_sweep_age)),
        "serve.window" => text(format_duration(config.serve.window)),
        "serve.window_bytes" => text(format_size(config.serve.window_bytes)),
        "serve.open" => Some(Value::Boolean(config.serve.open)),
        "serve.handle_resolver" => config.serve.handle_resolver.clone().and_then(text),
        "serve.dns" => text(config.serve.dns.to_string()),
        "serve.consumers" => count(config.serve.firehose.consumers),
        "serve.stall" => text(format_duration(config.serve.firehose.stall)),
        "discover.network" => Some(Value::Boolean(config.discover.network)),
        "discover.follow" => text(match config.discover.follow {
            FollowWhat::Relays => "relays".to_owned(),
            FollowWhat::Hosts => "hosts".to_owned(),
        }),
        "discover.every" => text(format_duration(config.discover.every)),
        "discover.max_streams" => count(config.discover.max_streams),
        "discover.collections" => {
            let patterns = config.discover.collections.iter();
            let patterns = patterns.map(|pattern| Value::String(pattern.to_string()));
            Some(Value::Array(patterns.collect()))
        }
        "discover.collection_source" => config.discover.collection_source.clone().and_then(text),
        _ => None,
    }
}

/// The keys and values of each upstream.
fn upstream_entries(config: &Config) -> Vec<Vec<(&'static str, String)>> {
    let entry = |upstream: &UpstreamConfig| {
        let kind = upstream.kind.name().to_owned();
        let mut entry = vec![("kind", kind), ("url", upstream.url.clone())];
        entry.extend(upstream.host.clone().map(|host| ("host", host)));
        entry
    };
    config.upstreams.iter().map(entry).collect()
}

pub(crate) fn to_toml(loaded: &LoadedConfig) -> String {
    let mut out = String::new();
    let mut table = "";
    for key in keys::layer_keys().filter(|key| *key != "upstream") {
        let (of, name) = key.split_once('.').unwrap_or(("", key));
        if of != table {
            table = of;
            let _ = writeln!(out, "\n[{table}]");
        }
        let source = loaded.source(key);
        let _ = match key_value(&loaded.config, key) {
            Some(value) => writeln!(out, "{name} = {value}  # {source}"),
            None => writeln!(out, "# {name} is not set  # {source}"),
        };
    }
    let source = loaded.source("upstream");
    for entry in upstream_entries(&loaded.config) {
        let _ = writeln!(out, "\n[[upstream]]  # {source}");
        for (name, text) in entry {
            let _ = writeln!(out, "{name} = {}", Value::String(text));
        }
    }
    if loaded.config.upstreams.is_empty() {
        let _ = writeln!(out, "\n# no [[upstream]]  # {source}");
    }
    out
}

pub(crate) fn to_json(loaded: &LoadedConfig) -> serde_json::Value {
    let mut out = serde_json::Map::new();
    for key in keys::layer_keys().filter(|key| *key != "upstream") {
        let source = loaded.source(key).to_string();
        let value = key_value(&loaded.config, key);
        out.insert(key.to_owned(), json!({ "value": value, "source": source }));
    }
    let entries: Vec<serde_json::Map<_, _>> = upstream_entries(&loaded.config)
        .into_iter()
        .map(|entry| {
            let pairs = entry.into_iter();
            pairs
                .map(|(name, text)| (name.to_owned(), json!(text)))
                .collect()
        })
        .collect();
    let source = loaded.source("upstream").to_string();
    out.insert(
        "upstream".to_owned(),
        json!({ "value": entries, "source": source }),
    );
    serde_json::Value::Object(out)
}
