//! Prints the validated configuration as TOML or JSON, with the source of each value.
//! The TOML can be read again; only the token is redacted.

use std::fmt::Write;

use gapless_core::ledger::settings::OnRollback;
use serde_json::json;
use toml::Value;

use super::values::{REDACTED, format_duration, format_kept_span, format_size};
use super::{Config, LoadedConfig, LogFormat, keys};
use gapless_mirror::settings::{FollowWhat, KeepKeys, UpstreamConfig};

/// The value of a key in the form that a file uses; `None` if it is unset.
fn key_value(config: &Config, key: &str) -> Option<Value> {
    let text = |text: String| Some(Value::String(text));
    let path = |path: &std::path::Path| Some(Value::String(path.display().to_string()));
    let count = |count: usize| i64::try_from(count).ok().map(Value::Integer);
    let mirror = &config.mirror;
    match key {
        "data" => path(&mirror.data),
        "bind" => text(config.bind.to_string()),
        "plc" => text(mirror.plc.clone()),
        "plc_requests_per_second" => Some(Value::Float(mirror.plc_requests_per_second)),
        "contact" => mirror.contact.clone().and_then(text),
        "ca_file" => config.ca_file.as_deref().and_then(path),
        "collections" => {
            let patterns = mirror.collections.iter();
            let patterns = patterns.map(|pattern| Value::String(pattern.to_string()));
            Some(Value::Array(patterns.collect()))
        }
        "keep_keys" => text(match mirror.keep_keys {
            KeepKeys::All => "all".to_owned(),
            KeepKeys::Wanted => "wanted".to_owned(),
        }),
        "dids" => config.dids_file.as_deref().and_then(path),
        "sweep_every" => text(format_duration(mirror.sweep_every)),
        "confirm_every" => text(format_duration(mirror.confirm_every)),
        "live_grace" => text(format_duration(mirror.live_grace)),
        "purge_grace" => text(format_duration(mirror.purge_grace)),
        "keep_versions" => text(format_duration(mirror.keep_versions)),
        "keep_log" => text(format_kept_span(mirror.keep_log)),
        "hold" => text(format_duration(mirror.hold)),
        "on_rollback" => text(match mirror.on_rollback {
            OnRollback::Auto => "auto".to_owned(),
            OnRollback::Hold => "hold".to_owned(),
            OnRollback::Adopt => "adopt".to_owned(),
        }),
        "allow_private" => Some(Value::Boolean(mirror.allow_private)),
        "token" => config.token.as_ref().and(text(REDACTED.to_owned())),
        "log" => text(match config.log {
            LogFormat::Json => "json".to_owned(),
            LogFormat::Text => "text".to_owned(),
        }),
        "min_free_disk" => text(format_size(mirror.min_free_disk)),
        "fetch.concurrency" => count(mirror.fetch.concurrency),
        "fetch.per_host" => count(mirror.fetch.per_host),
        "fetch.requests_per_second" => Some(Value::Float(mirror.fetch.requests_per_second)),
        "fetch.max_repo_bytes" => text(format_size(mirror.fetch.max_repo_bytes)),
        "fetch.temp" => path(&mirror.fetch.temp),
        "limits.workers" => count(mirror.workers),
        "ready.max_upstream_age" => text(format_duration(mirror.ready.max_upstream_age)),
        "ready.max_debt_age" => text(format_duration(mirror.ready.max_debt_age)),
        "ready.max_sweep_age" => text(format_duration(mirror.ready.max_sweep_age)),
        "serve.window" => text(format_duration(mirror.window)),
        "serve.window_bytes" => text(format_size(mirror.window_bytes)),
        "serve.open" => Some(Value::Boolean(config.serve.open)),
        "serve.handle_resolver" => config.serve.handle_resolver.clone().and_then(text),
        "serve.dns" => text(config.serve.dns.to_string()),
        "serve.consumers" => count(config.serve.firehose.consumers),
        "serve.stall" => text(format_duration(config.serve.firehose.stall)),
        "discover.network" => Some(Value::Boolean(mirror.discover.network)),
        "discover.follow" => text(match mirror.discover.follow {
            FollowWhat::Relays => "relays".to_owned(),
            FollowWhat::Hosts => "hosts".to_owned(),
        }),
        "discover.every" => text(format_duration(mirror.discover.every)),
        "discover.max_streams" => count(mirror.discover.max_streams),
        "discover.collections" => {
            let patterns = mirror.discover.collections.iter();
            let patterns = patterns.map(|pattern| Value::String(pattern.to_string()));
            Some(Value::Array(patterns.collect()))
        }
        "discover.collection_source" => mirror.discover.collection_source.clone().and_then(text),
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
    config.mirror.upstreams.iter().map(entry).collect()
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
            // Who reads this again has to set the token anew.
            Some(_) if name == "token" => {
                writeln!(out, "# token = \"{REDACTED}\"  # {source}")
            }
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
    if loaded.config.mirror.upstreams.is_empty() {
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
