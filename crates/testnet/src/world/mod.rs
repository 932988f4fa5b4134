//! The state of the whole network, behind one lock, changed by plain function calls.
//!
//! No function here waits or opens a socket. Servers read the state, and every change
//! that the protocol announces is emitted into the feeds before the call returns. With
//! one seed, the same calls give the same bytes.

mod account;
mod actions;
mod blocks;
mod clock;
mod create;
mod emit;
mod history;
mod lifecycle;
mod records;
mod repo;

pub use account::Status;
pub(crate) use account::{Account, Host, Hosted};
pub use actions::ActionError;
pub(crate) use blocks::BlockStore;
pub(crate) use clock::{Clock, timestamp};
pub use create::NewAccount;
pub use history::CommitTruth;
pub(crate) use history::History;
pub use records::encode as encode_record;
pub(crate) use records::{Drawer, POST};
pub use repo::{Change, NewCommit, Write, WriteError};
pub(crate) use repo::{Repo, WRITES_PER_COMMIT, sign};

use std::collections::BTreeMap;
use std::sync::Arc;

use gapless_atp::syntax::Did;

use crate::config::Config;
use crate::faults::Faults;
use crate::jetstream::Jetstream;
use crate::plc::{Plc, Statement};
use crate::relay::Relay;
use crate::rng::Rng;

/// The state of the network.
pub(crate) struct World {
    pub config: Arc<Config>,
    pub rng: Rng,
    pub clock: Clock,
    pub blocks: BlockStore,
    pub accounts: BTreeMap<Did, Account>,
    /// All accounts in the order of their creation, including deleted ones.
    pub dids: Vec<Did>,
    pub hosts: Vec<Host>,
    pub plc: Plc,
    pub relay: Option<Relay>,
    pub jetstream: Option<Jetstream>,
    /// `None` with more than [`Config::history_repos`] repositories.
    pub history: Option<History>,
    pub faults: Arc<Faults>,
    /// The number of commits made since the start.
    pub commits: u64,
    /// The number of events that PDSs have sequenced since the start.
    pub events: u64,
}

impl World {
    /// A world without accounts, with one host per port.
    pub(crate) fn new(config: Arc<Config>, ports: &[u16], faults: Arc<Faults>) -> World {
        let hosts = ports.iter().enumerate().map(|(index, port)| {
            let mut host = Host::new(*port, config.window_events, config.buffer_events);
            if config.public_hosts {
                host.url = format!("https://pds{index}.example");
            }
            host
        });
        World {
            rng: Rng::new(config.seed),
            clock: if config.wall_clock {
                Clock::wall()
            } else {
                Clock::logical()
            },
            blocks: BlockStore::default(),
            accounts: BTreeMap::new(),
            dids: Vec::new(),
            hosts: hosts.collect(),
            plc: Plc::default(),
            relay: config
                .relay
                .then(|| Relay::new(config.relay_window_events, config.buffer_events)),
            jetstream: config
                .jetstream
                .then(|| Jetstream::new(config.relay_window_events)),
            history: config.keeps_history().then(History::default),
            config,
            faults,
            commits: 0,
            events: 0,
        }
    }

    pub(crate) fn account(&self, did: &Did) -> Result<&Account, WriteError> {
        self.accounts
            .get(did)
            .ok_or_else(|| WriteError::NoAccount(did.to_string()))
    }

    /// The copy of an account on the host that its document names.
    pub(crate) fn hosted(&self, did: &Did) -> Option<&Hosted> {
        let host = self.accounts.get(did)?.host;
        self.hosts[host].accounts.get(did)
    }

    /// The state of an account on the host that its document names; `None` if the account
    /// is unknown.
    pub(crate) fn status(&self, did: &Did) -> Option<Status> {
        self.accounts.get(did)?;
        Some(self.hosted(did).map_or(Status::Deleted, |copy| copy.status))
    }

    /// What the account's document should say now.
    pub(crate) fn statement(&self, account: &Account) -> Statement {
        Statement {
            rotation_key: account.rotation.public().to_did_key(),
            signing_key: account.signing.public().to_did_key(),
            handle: account.handle.clone(),
            endpoint: self.hosts[account.host].url.clone(),
        }
    }

    /// Finds an account by DID or handle.
    pub(crate) fn find(&self, identifier: &str) -> Option<&Account> {
        if identifier.starts_with("did:") {
            self.accounts.get(identifier)
        } else {
            self.accounts
                .values()
                .find(|account| account.handle == identifier)
        }
    }

    /// Applies writes as the account's host would, and announces the commit.
    pub(crate) fn write(&mut self, did: &Did, writes: &[Write]) -> Result<NewCommit, WriteError> {
        let account = self.account(did)?;
        let (host, key) = (account.host, account.signing.clone());
        let copy = self.hosts[host].accounts.get_mut(did);
        let copy = copy.ok_or_else(|| WriteError::Inactive(did.clone()))?;
        if !copy.status.is_active() {
            return Err(WriteError::Inactive(did.clone()));
        }
        let rev = self.clock.rev();
        let made = copy.repo.commit(did, &key, rev, writes, &mut self.blocks)?;
        self.record(did, &made, host);
        self.emit_commit(host, did, &made);
        Ok(made)
    }

    /// Adds a commit to the history.
    fn record(&mut self, did: &Did, made: &NewCommit, host: usize) {
        self.commits += 1;
        if let (Some(history), Some(account)) = (&mut self.history, self.accounts.get(did)) {
            let key = account.signing.public().to_did_key();
            history.append(did, made, key, host);
        }
    }

    /// Lets one random active account write something.
    pub(crate) fn stir(&mut self) -> Option<NewCommit> {
        // Most accounts are active, so a few tries find one.
        for _ in 0..20 {
            if self.dids.is_empty() {
                return None;
            }
            let did = self.rng.pick(&self.dids).clone();
            let writes = self.accounts.get(&did).and_then(|account| {
                let copy = self.hosts[account.host].accounts.get(&did)?;
                let mut drawer = Drawer {
                    rng: &mut self.rng,
                    clock: &mut self.clock,
                    others: &self.dids,
                };
                let active = copy.status.is_active();
                active.then(|| drawer.next_writes(&copy.repo))
            });
            if let Some(writes) = writes {
                return self.write(&did, &writes).ok();
            }
        }
        None
    }
}
