//! The configuration of a network: checked once, then passed by value.

use crate::faults::Spec;
use crate::world::ActionError;

/// With more repositories than this no history is kept, and the truth knows only heads.
pub(crate) const HISTORY_REPOS: usize = 100_000;
/// Entries of one page of `listRepos`, as on a reference PDS.
const LIST_PAGE: usize = 1000;
/// The most PDSs in one process. Each needs a port.
const MOST_PDS: usize = 200;
const MOST_REPOS: usize = 2_000_000;
/// The highest rate of background commits. No machine signs more per second.
pub(crate) const MOST_COMMITS_PER_SECOND: f64 = 100_000.0;

/// The configuration of a network.
#[derive(Debug, Clone)]
pub struct Config {
    pub repos: usize,
    pub pds: usize,
    /// Records of every repository at the start.
    pub records: usize,
    pub seed: u64,
    /// The first port; 0 takes free ports.
    pub port: u16,
    pub relay: bool,
    pub jetstream: bool,
    /// Commits per second in the background.
    pub rate: f64,
    /// Whether revs and times come from the wall clock instead of the logical one.
    pub wall_clock: bool,
    /// Whether one account of every PDS has a did:web.
    pub did_web: bool,
    /// Whether the directory writes documents in the legacy form.
    pub legacy_documents: bool,
    /// Events that a PDS keeps for replay.
    pub window_events: usize,
    /// Events that the relay keeps for replay.
    pub relay_window_events: usize,
    /// Events that a live subscriber may be behind before the server disconnects it.
    pub buffer_events: u64,
    /// With more repositories than this no history is kept.
    pub history_repos: usize,
    /// The most entries of one page of `listRepos`, whatever limit a request names.
    pub list_page: usize,
    /// Whether documents name hosts by public names (`https://pds0.example`, …). No
    /// server answers there: only a client that was given the addresses can reach the
    /// hosts.
    pub public_hosts: bool,
    pub faults: Vec<Spec>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            repos: 10,
            pds: 2,
            records: 20,
            seed: 1,
            port: 0,
            relay: false,
            jetstream: false,
            rate: 0.0,
            wall_clock: false,
            did_web: true,
            legacy_documents: false,
            window_events: 50_000,
            relay_window_events: 100_000,
            buffer_events: 10_000,
            history_repos: HISTORY_REPOS,
            list_page: LIST_PAGE,
            public_hosts: false,
            faults: Vec::new(),
        }
    }
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("a network needs 1 to {MOST_PDS} PDSs, not {0}")]
    Pds(usize),
    #[error("a network has at most {MOST_REPOS} repositories, not {0}")]
    Repos(usize),
    #[error(
        "the rate must be a number of commits per second, \
         zero or more and at most {MOST_COMMITS_PER_SECOND}"
    )]
    Rate,
    #[error("a page of listRepos has at least one entry")]
    ListPage,
    #[error("the ports from {0} on end above 65535")]
    Ports(u16),
    #[error("fault {0}: there is no such host")]
    FaultHost(String),
    #[error(transparent)]
    Fault(#[from] ActionError),
    #[error("a Jetstream server needs a relay: enable both")]
    JetstreamAlone,
}

/// Checks a rate of background traffic. NaN is refused.
pub(crate) fn check_rate(commits_per_second: f64) -> Result<(), ConfigError> {
    if (0.0..=MOST_COMMITS_PER_SECOND).contains(&commits_per_second) {
        Ok(())
    } else {
        Err(ConfigError::Rate)
    }
}

impl Config {
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(1..=MOST_PDS).contains(&self.pds) {
            return Err(ConfigError::Pds(self.pds));
        }
        if self.repos > MOST_REPOS {
            return Err(ConfigError::Repos(self.repos));
        }
        check_rate(self.rate)?;
        if self.list_page == 0 {
            return Err(ConfigError::ListPage);
        }
        if self.port != 0 && usize::from(self.port) + self.pds + 4 > usize::from(u16::MAX) {
            return Err(ConfigError::Ports(self.port));
        }
        if self.jetstream && !self.relay {
            return Err(ConfigError::JetstreamAlone);
        }
        for spec in &self.faults {
            if let Some(crate::faults::Place::Pds(index)) = spec.host
                && index >= self.pds
            {
                return Err(ConfigError::FaultHost(spec.to_json().to_string()));
            }
            spec.check(self.relay, self.jetstream)?;
        }
        Ok(())
    }

    pub fn keeps_history(&self) -> bool {
        self.repos <= self.history_repos
    }
}
