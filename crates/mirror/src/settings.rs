//! The settings of a mirror, validated by the program that starts it.

use std::path::PathBuf;
use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::filter::{Filter, Pattern};
use gapless_core::ledger::settings::OnRollback;
use gapless_core::ledger::{FilterGen, Settings, UpstreamKind};
use gapless_net::Certificate;

/// How a mirror runs.
#[derive(Debug, Clone, PartialEq)]
pub struct MirrorSettings {
    /// The data folder.
    pub data: PathBuf,
    /// The PLC directory, as `http(s)://host[:port]`.
    pub plc: String,
    /// Requests to the PLC directory per second.
    pub plc_requests_per_second: f64,
    /// Contact details for the User-Agent header.
    pub contact: Option<String>,
    /// Certificate authorities that are trusted in addition to the built-in ones.
    pub authorities: Vec<Certificate>,
    pub upstreams: Vec<UpstreamConfig>,
    /// The collections whose records are kept; empty means all.
    pub collections: Vec<Pattern>,
    pub keep_keys: KeepKeys,
    /// Repositories that are followed by name.
    pub dids: Vec<Did>,
    pub sweep_every: Duration,
    pub confirm_every: Duration,
    pub live_grace: Duration,
    pub purge_grace: Duration,
    /// How long superseded records are kept for readers of the log.
    pub keep_versions: Duration,
    /// How long rows of the log are kept; `None`: for ever.
    pub keep_log: Option<Duration>,
    /// How long a consumer of the log that has stopped holds back what it still needs.
    pub hold: Duration,
    pub on_rollback: OnRollback,
    /// Whether hosts may have private or loopback addresses.
    pub allow_private: bool,
    /// Bytes of free disk space below which nothing is written.
    pub min_free_disk: u64,
    pub fetch: FetchSettings,
    /// Threads that verify events.
    pub workers: usize,
    /// New names that one upstream may bring before their DID documents are read.
    pub newcomers: usize,
    pub ready: ReadySettings,
    pub discover: DiscoverConfig,
    /// How long verified frames are kept for the firehose.
    pub window: Duration,
    /// Bytes of verified frames that are kept for the firehose.
    pub window_bytes: u64,
}

/// An upstream (a source of events) as the operator configures it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamConfig {
    pub kind: UpstreamKind,
    /// `http(s)://host[:port]`, without a path.
    pub url: String,
    /// The public host behind the URL, when the URL is that of a proxy: a host name,
    /// which means https, or a whole origin.
    pub host: Option<String>,
}

/// Which records have their keys held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepKeys {
    /// All records, so that the root can be recomputed at any time.
    All,
    /// Only records of the wanted collections.
    Wanted,
}

/// How repositories are fetched.
#[derive(Debug, Clone, PartialEq)]
pub struct FetchSettings {
    /// Fetches that run at the same time.
    pub concurrency: usize,
    /// Fetches that run at the same time against one host.
    pub per_host: usize,
    /// Requests to one host per second.
    pub requests_per_second: f64,
    /// Repositories above this size are not fetched.
    pub max_repo_bytes: u64,
    /// The folder that snapshots are spilled to.
    pub temp: PathBuf,
}

/// The conditions under which `/ready` fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadySettings {
    /// Time since the last frame of an upstream.
    pub max_upstream_age: Duration,
    /// Age of the oldest debt.
    pub max_debt_age: Duration,
    /// Time since the last sweep of a host that is followed whole. The sweep must also
    /// be late by a whole sweep interval.
    pub max_sweep_age: Duration,
}

/// What the mirror discovers beyond what an operator names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoverConfig {
    /// Discover every repository of every host that relays or DID documents name.
    pub network: bool,
    /// The streams that bring the events of discovered repositories.
    pub follow: FollowWhat,
    /// How often the listings of hosts and of `collections` are read again.
    pub every: Duration,
    /// Hosts that are followed by a stream each at the same time.
    pub max_streams: usize,
    /// Repositories with a record in one of these collections are tracked.
    pub collections: Vec<Pattern>,
    /// A server that is asked for `collections` in addition to the upstreams.
    pub collection_source: Option<String>,
}

/// The streams that bring the events of discovered repositories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FollowWhat {
    #[default]
    Relays,
    /// One stream per host; relays only list the hosts.
    Hosts,
}

impl MirrorSettings {
    /// Whether the settings name anything to follow. The store may know more.
    pub fn has_sources(&self) -> bool {
        !self.upstreams.is_empty()
            || !self.dids.is_empty()
            || self.discover.collection_source.is_some()
    }

    /// The settings of the ledger.
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

    /// The filter of collections.
    pub fn filter(&self) -> Filter {
        Filter {
            wanted: self.collections.clone(),
            wanted_keys_only: self.keep_keys == KeepKeys::Wanted,
        }
    }
}
