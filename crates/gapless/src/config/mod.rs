//! The configuration: read from file, environment and flags, validated once here,
//! then passed on by value. No other module reads the environment, except for tests: in debug
//! builds `gapless_mirror::failpoints` reads `STOP_POINT` and `HOLD_POINT`, and
//! `gapless_store::space` reads `FREE_BYTES_FILE`.
//!
//! Built-in defaults < `gapless.toml` < `GAPLESS_*` < flags. A layer replaces a list
//! as a whole and never merges it. Every invalid value is an error that names its
//! source, the key, the value and what is expected; nothing is guessed or ignored.

mod authorities;
mod discover;
mod error;
mod flags;
mod keys;
mod raw;
mod serve;
mod show;
mod validate;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::filter::Pattern;
use gapless_core::ledger::settings::OnRollback;
use gapless_mirror::settings::{
    DiscoverConfig, FetchSettings, KeepKeys, MirrorSettings, ReadySettings, UpstreamConfig,
};
use gapless_net::NameServer;

pub use authorities::Authorities;
pub use error::{ConfigError, ValueSource};
pub use flags::Flags;
pub use raw::environment;
pub use serve::{FirehoseSettings, ServeLimits};
pub use values::{HOST, Token, URL};
pub(crate) use values::{HTTP_URL, parse_host, parse_http_url, parse_url};

/// The error text for a configuration without anything to follow.
pub(crate) const WAYS_TO_START: &str = "there is nothing to follow. Name a host \
(--upstream pds=https://pds.example.com), a relay (--upstream relay=https://relay.example.com), \
or a file of DIDs (--dids FILE); a configuration file can name them too (docs/configuration.md)";

/// A validated configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The data folder.
    pub data: PathBuf,
    /// Where the HTTP interface listens.
    pub bind: SocketAddr,
    /// The PLC directory, as `http(s)://host[:port]`.
    pub plc: String,
    /// Requests to the PLC directory per second.
    pub plc_requests_per_second: f64,
    /// Contact details for the User-Agent header.
    pub contact: Option<String>,
    /// Certificate authorities that are trusted in addition to the built-in ones.
    pub authorities: Option<Authorities>,
    pub upstreams: Vec<UpstreamConfig>,
    /// The collections whose records are kept; empty means all.
    pub collections: Vec<Pattern>,
    pub keep_keys: KeepKeys,
    /// Repositories that are followed by name.
    pub dids: Vec<Did>,
    pub dids_file: Option<PathBuf>,
    pub sweep_every: Duration,
    pub confirm_every: Duration,
    pub live_grace: Duration,
    pub purge_grace: Duration,
    /// How long superseded records are kept for readers of the log.
    pub keep_versions: Duration,
    pub on_rollback: OnRollback,
    /// Whether hosts may have private or loopback addresses.
    pub allow_private: bool,
    pub token: Option<Token>,
    pub log: LogFormat,
    /// Bytes of free disk space below which nothing is written.
    pub min_free_disk: u64,
    pub fetch: FetchSettings,
    pub limits: LimitsConfig,
    pub ready: ReadySettings,
    pub serve: ServeConfig,
    pub discover: DiscoverConfig,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Json,
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Threads that verify events.
    pub workers: usize,
    /// New names that one upstream may bring before their DID documents are read. No
    /// configuration key sets this; tests set it lower.
    pub newcomers: usize,
}

/// How the mirror serves other programs: how long verified frames are kept, and who
/// may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeConfig {
    pub window: Duration,
    pub window_bytes: u64,
    /// Whether clients without a token may read what is mirrored.
    pub open: bool,
    /// The service that resolves handles; `None` asks the DNS and the handle's domain.
    pub handle_resolver: Option<String>,
    /// The name servers that resolve handles before their domains are asked.
    pub dns: NameServer,
    /// No configuration key sets these; tests set them lower.
    pub limits: ServeLimits,
    pub firehose: FirehoseSettings,
}

impl Config {
    /// Whether the configuration names anything to follow. The store may know more.
    pub fn has_sources(&self) -> bool {
        !self.upstreams.is_empty()
            || !self.dids.is_empty()
            || self.discover.collection_source.is_some()
    }

    /// Whether records of this collection are kept.
    pub fn wants(&self, collection: &str) -> bool {
        let mut patterns = self.collections.iter();
        self.collections.is_empty() || patterns.any(|pattern| pattern.matches(collection))
    }

    /// The settings of the mirror that this configuration describes.
    pub fn mirror_settings(&self) -> MirrorSettings {
        let authorities = self.authorities.as_ref();
        MirrorSettings {
            data: self.data.clone(),
            plc: self.plc.clone(),
            plc_requests_per_second: self.plc_requests_per_second,
            contact: self.contact.clone(),
            authorities: authorities.map_or(Vec::new(), |found| found.certificates.clone()),
            upstreams: self.upstreams.clone(),
            collections: self.collections.clone(),
            keep_keys: self.keep_keys,
            dids: self.dids.clone(),
            sweep_every: self.sweep_every,
            confirm_every: self.confirm_every,
            live_grace: self.live_grace,
            purge_grace: self.purge_grace,
            keep_versions: self.keep_versions,
            on_rollback: self.on_rollback,
            allow_private: self.allow_private,
            min_free_disk: self.min_free_disk,
            fetch: self.fetch.clone(),
            workers: self.limits.workers,
            newcomers: self.limits.newcomers,
            ready: self.ready,
            discover: self.discover.clone(),
            window: self.serve.window,
            window_bytes: self.serve.window_bytes,
        }
    }
}

/// A configuration and the source of each value.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    pub config: Config,
    sources: BTreeMap<&'static str, ValueSource>,
}

impl LoadedConfig {
    /// The layer that set a key.
    pub fn source(&self, key: &str) -> ValueSource {
        self.sources
            .get(key)
            .cloned()
            .unwrap_or(ValueSource::Default)
    }

    /// The configuration as TOML that can be read again (the token is redacted), with
    /// the source of each value as a comment.
    pub fn to_toml(&self) -> String {
        show::to_toml(self)
    }

    /// Each key with its value and source, as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        show::to_json(self)
    }
}

/// Reads and validates the configuration. `environment` is what [`environment`]
/// returns; `here` is the folder that is searched for `gapless.toml`.
pub fn load(
    flags: &Flags,
    environment: &[(String, String)],
    here: &Path,
) -> Result<LoadedConfig, ConfigError> {
    let raw = raw::read_layers(flags, environment, here)?;
    let config = validate::validate(&raw)?;
    let sources = raw.sources();
    Ok(LoadedConfig { config, sources })
}
