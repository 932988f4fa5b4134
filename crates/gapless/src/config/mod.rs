//! The configuration: read from file, environment and flags, validated once here,
//! then passed on by value. No other module reads the environment, except for tests: in debug
//! builds `gapless_mirror::failpoints` reads `STOP_POINT` and `HOLD_POINT`, and
//! `gapless_store::space` reads `FREE_BYTES_FILE`.
//!
//! Built-in defaults < `gapless.toml` < `GAPLESS_*` < flags. A layer replaces a list
//! as a whole and never merges it. Every invalid value is an error that names its
//! source, the key, the value and what is expected; nothing is guessed or ignored.

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

use gapless_mirror::settings::MirrorSettings;
use gapless_net::NameServer;

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
    /// How the mirror runs.
    pub mirror: MirrorSettings,
    /// Where the HTTP interface listens.
    pub bind: SocketAddr,
    /// The file of the certificate authorities in [`MirrorSettings::authorities`].
    pub ca_file: Option<PathBuf>,
    /// The file of the repositories in [`MirrorSettings::dids`].
    pub dids_file: Option<PathBuf>,
    pub token: Option<Token>,
    pub log: LogFormat,
    pub serve: ServeConfig,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Json,
    Text,
}

/// How the mirror serves other programs, and who may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeConfig {
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
