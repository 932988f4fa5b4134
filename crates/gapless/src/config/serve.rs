//! The settings of the parts that serve other programs: exports and proofs, and the
//! firehose. `serve` imports them from here, so the configuration depends on no
//! subsystem that it configures.

use std::time::Duration;

/// The bounds of `/xrpc` that tests set lower. No configuration key sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeLimits {
    /// Repositories that are exported at the same time. One client address may use a
    /// share of these places, for repositories, blocks and proofs together.
    pub exports: usize,
    /// Whether loopback clients are limited to a share of the places as well.
    pub count_loopback: bool,
    /// Trees that are built at the same time. A large one takes two cores.
    pub builds: usize,
    /// How long a request waits for a place before it is answered with 503.
    pub turn: Duration,
    /// How long a client may accept no bytes before its export is cut.
    pub stall: Duration,
    /// Bytes per second that a client must accept, measured over the time that the
    /// export waits for it, once that time reaches `stall`.
    pub min_rate: u64,
    /// Bytes of trees that the cache keeps while no request uses them.
    pub cached_trees_bytes: u64,
    /// Bytes of records that all exports together keep in memory between the build of
    /// the tree and the sending. An export without a share of this budget reads its
    /// records twice.
    pub kept_records_bytes: u64,
}

impl Default for ServeLimits {
    fn default() -> ServeLimits {
        ServeLimits {
            exports: 16,
            count_loopback: false,
            builds: 2,
            turn: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            min_rate: 64 << 10,
            cached_trees_bytes: 128 << 20,
            kept_records_bytes: 256 << 20,
        }
    }
}

/// How the firehose (`com.atproto.sync.subscribeRepos`) is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirehoseSettings {
    /// Consumers that are connected at the same time; further ones are refused.
    pub consumers: usize,
    /// A consumer that accepts no bytes for this long is cut. A consumer that has nothing to
    /// read is pinged after half of this time, and is cut once it is silent for twice this time.
    pub stall: Duration,
}

impl Default for FirehoseSettings {
    fn default() -> FirehoseSettings {
        FirehoseSettings {
            consumers: 64,
            stall: Duration::from_secs(30),
        }
    }
}
