//! The configuration: raw, from file, environment and flags; validated once here,
//! then passed on by value. Nothing else reads the environment.
//!
//! Built-in defaults < `gapless.toml` < `GAPLESS_*` < flags. A list is replaced as
//! a whole, never merged. Whatever is wrong is an error that names where it was
//! said, the key, the value and what is expected; nothing is guessed or ignored.

mod authorities;
mod discover;
mod error;
mod flags;
mod keys;
mod raw;
mod show;
mod validate;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::settings::OnRollback;
use gapless_core::ledger::{FilterGen, Kind, Settings};

use crate::net::NameServer;
use crate::serve::ServeLimits;

use crate::serve::firehose::FirehoseSettings;
pub use authorities::Authorities;
pub use error::{ConfigError, Source};
pub use flags::Flags;
pub use raw::environment;
pub use values::{
    HOST, HTTP_URL, Pattern, Token, URL, duration_text, parse_duration, parse_host, parse_http_url,
    parse_size, parse_url, size_text,
};

/// What somebody is told who starts a mirror of nothing.
pub const WAYS_TO_START: &str = "there is nothing to follow. Name a host \
(--upstream pds=https://pds.example.com), a relay (--upstream relay=https://relay.example.com), \
or a file of DIDs (--dids FILE); a configuration file can name them too (docs/configuration.md)";

/// Everything that can be configured, valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The data folder.
    pub data: PathBuf,
    /// Where the HTTP interface listens.
    pub bind: SocketAddr,
    /// The PLC directory, as `http(s)://host[:port]`.
    pub plc: String,
    /// Questions to it in a second.
    pub plc_requests_per_second: f64,
    /// Goes into the User-Agent, so that hosts know whom to ask.
    pub contact: Option<String>,
    /// Certificate authorities beside the world's.
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
    /// With less room on the disk than this, nothing is written.
    pub min_free_disk: u64,
    pub fetch: FetchConfig,
    pub limits: LimitsConfig,
    pub ready: ReadyConfig,
    pub serve: ServeConfig,
    pub discover: DiscoverConfig,
}

/// A source of events, as an operator names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    pub kind: Kind,
    /// `http(s)://host[:port]`, nothing after it.
    pub url: String,
    /// The public host that it stands for, when the URL is that of a proxy.
    /// A name means https; else it is the whole origin.
    pub host: Option<String>,
}

/// Of which records the keys are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepKeys {
    /// Of all: the root can be recomputed at any time.
    All,
    /// Of the wanted collections only.
    Wanted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Json,
    Text,
}

/// How repositories are fetched.
#[derive(Debug, Clone, PartialEq)]
pub struct FetchConfig {
    /// Fetches at a time, in all.
    pub concurrency: usize,
    /// Fetches at a time from one host.
    pub per_host: usize,
    /// Requests to one host.
    pub requests_per_second: f64,
    /// A larger repository is not fetched.
    pub max_repo_bytes: u64,
    /// Where snapshots are spilled.
    pub temp: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Threads that verify.
    pub workers: usize,
    /// Names that one upstream may tell of before their documents are read. Not
    /// configured; tests set it lower.
    pub newcomers: usize,
}

/// When `/ready` says no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadyConfig {
    /// An upstream was not heard for so long.
    pub max_upstream_age: Duration,
    /// The oldest debt has been owed for so long.
    pub max_debt_age: Duration,
    /// A host that is followed whole was not swept for so long, and for twice as
    /// long as it should have been.
    pub max_sweep_age: Duration,
}

/// What is served to others: how long verified frames are kept, and who may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeConfig {
    pub window: Duration,
    pub window_bytes: u64,
    /// Whether anybody may read what is mirrored, without a token.
    pub open: bool,
    /// Who is asked whose a handle is; none: the handle's own domain.
    pub handle_resolver: Option<String>,
    /// Which name servers are asked for it before its domain is.
    pub dns: NameServer,
    /// Not configured; tests set them lower.
    pub limits: ServeLimits,
    pub firehose: FirehoseSettings,
}

/// What is found by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoverConfig {
    /// Every repository of every host that relays or DID documents name.
    pub network: bool,
    /// Whose streams bring the events of what is found.
    pub follow: FollowWhat,
    /// How often relays are asked which hosts there are, and who has records in the
    /// collections.
    pub every: Duration,
    /// Hosts that are followed by a stream each, at most.
    pub max_streams: usize,
    /// Repositories that have a record in one of these are tracked.
    pub collections: Vec<Pattern>,
    /// Who is asked for them beside the upstreams.
    pub collection_source: Option<String>,
}

/// Whose streams bring what is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FollowWhat {
    #[default]
    Relays,
    /// A stream for each host; relays only tell which hosts there are.
    Hosts,
}

impl Config {
    /// Whether there is anything to follow. What is stored is not known here.
    pub fn has_sources(&self) -> bool {
        !self.upstreams.is_empty()
            || !self.dids.is_empty()
            || self.discover.collection_source.is_some()
    }

    /// Whether a collection's records are kept.
    pub fn wants(&self, collection: &str) -> bool {
        let mut patterns = self.collections.iter();
        self.collections.is_empty() || patterns.any(|pattern| pattern.matches(collection))
    }

    /// The numbers of the ledger's rules.
    pub fn ledger(&self, filter: FilterGen) -> Settings {
        Settings {
            live_grace: self.live_grace,
            sweep_every: self.sweep_every,
            confirm_every: self.confirm_every,
            on_rollback: self.on_rollback,
            filter,
            wanted_keys_only: self.keep_keys == KeepKeys::Wanted,
        }
    }
}

/// A configuration, and where each value was said.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    sources: BTreeMap<&'static str, Source>,
}

impl Loaded {
    /// Where a key was said.
    pub fn source(&self, key: &str) -> Source {
        self.sources.get(key).cloned().unwrap_or(Source::Default)
    }

    /// As a file that could be read again, the token apart, with the source of
    /// each value as a comment.
    pub fn to_toml(&self) -> String {
        show::toml(self)
    }

    /// Each key with its value and source.
    pub fn to_json(&self) -> serde_json::Value {
        show::json(self)
    }
}

/// Reads and validates. `environment` is what [`environment`] returns; `here` is
/// the folder in which `gapless.toml` is looked for.
pub fn load(
    flags: &Flags,
    environment: &[(String, String)],
    here: &Path,
) -> Result<Loaded, ConfigError> {
    let raw = raw::gather(flags, environment, here)?;
    let config = validate::validate(&raw)?;
    let sources = raw.sources();
    Ok(Loaded { config, sources })
}
