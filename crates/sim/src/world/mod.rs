//! The world: owners, their hosts, relays and a directory. The world knows the truth; its
//! hosts, relays and directory may lie to the mirror.
//!
//! The truth about a repository is what its true host holds. The true host is the one that
//! the newest DID document names, whatever the directory answers.

pub mod commit;
pub mod directory;
pub mod faults;
pub mod life;
pub mod pds;
pub mod relay;
pub mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev, Tid};
use gapless_core::ledger::{Account, Time};

pub use commit::{Body, Commit, Frame, Op, Records};
pub use faults::{Fault, Faults};
pub use pds::{Hosted, Pds};
pub use relay::Relay;
pub use stream::{Log, Place, Received, Socket};

use crate::rng::Rng;
use directory::Document;

pub type OwnerId = usize;
pub type PdsId = usize;

/// An account and its DID documents.
#[derive(Debug, Clone)]
pub struct Owner {
    pub did: Did,
    /// All documents, the newest last.
    pub documents: Vec<Document>,
    /// Whether the directory still answers with the previous document.
    pub lags: bool,
}

/// A change that no stream reveals, so that a mirror can find it only by a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lie {
    pub owner: OwnerId,
    pub what: &'static str,
    /// The relay that lied, if one did: only mirrors that rely on it are affected.
    pub relay: Option<usize>,
}

/// The simulated network, with the truth about it.
pub struct World {
    pub rng: Rng,
    pub now: Time,
    pub faults: Faults,
    pub owners: Vec<Owner>,
    pub pds: Vec<Pds>,
    pub relays: Vec<Relay>,
    /// Every commit that an owner ever signed.
    pub signed: BTreeMap<Cid, Arc<Commit>>,
    /// Owners that have ever deleted their account.
    pub deleted: BTreeSet<OwnerId>,
    /// Owners that a relay has falsely called deleted.
    pub slandered: BTreeSet<OwnerId>,
    /// Owners that were ever denied by a host that has other accounts.
    pub denied: BTreeSet<OwnerId>,
    /// The lies since the checker last looked.
    pub lies: Vec<Lie>,
    frames: u64,
}

/// The time at which every world begins: 2024-01-01.
const BEGINNING: u64 = 1_704_067_200_000_000;

impl World {
    pub fn new(seed: u64, faults: Faults) -> World {
        World {
            rng: Rng::new(seed),
            now: Time(BEGINNING),
            faults,
            owners: Vec::new(),
            pds: Vec::new(),
            relays: Vec::new(),
            signed: BTreeMap::new(),
            deleted: BTreeSet::new(),
            slandered: BTreeSet::new(),
            denied: BTreeSet::new(),
            lies: Vec::new(),
            frames: 0,
        }
    }

    pub fn add_pds(&mut self) -> PdsId {
        self.pds.push(Pds::default());
        for relay in &mut self.relays {
            relay.read.push(0);
        }
        self.pds.len() - 1
    }

    pub fn add_relay(&mut self) -> usize {
        let read = self.pds.iter().map(|pds| pds.log.entries.len()).collect();
        self.relays.push(Relay {
            log: Log::default(),
            read,
        });
        self.relays.len() - 1
    }

    /// Adds an account to a host, with a first commit that is not sent.
    pub fn add_owner(&mut self, host: PdsId) -> OwnerId {
        let owner = self.owners.len();
        self.owners.push(Owner {
            did: did(owner),
            documents: vec![Document {
                host: Some(host),
                key: 0,
            }],
            lags: false,
        });
        self.pds[host].repos.insert(owner, Hosted::new(0));
        let first = self.next_commit(owner, host, Records::new());
        self.keep(host, first);
        owner
    }

    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        self.faults.strikes(fault, &mut self.rng)
    }

    /// Lets time pass.
    pub fn pass(&mut self, micros: u64) {
        self.now = Time(self.now.0 + micros);
    }

    /// A new rev. Advances the clock, so that every rev is unique.
    pub(crate) fn next_rev(&mut self) -> Rev {
        self.pass(1);
        Tid::from_micros(self.now.0, 0)
    }

    pub fn lie(&mut self, owner: OwnerId, what: &'static str) {
        self.lies.push(Lie {
            owner,
            what,
            relay: None,
        });
    }

    /// The host that an account truly lives on.
    pub(crate) fn true_host(&self, owner: OwnerId) -> Option<PdsId> {
        self.owners[owner].document().host
    }

    /// The newest commit, and the account's state, at the true host.
    pub fn truth(&self, owner: OwnerId) -> Option<(&Arc<Commit>, Account)> {
        let host = self.true_host(owner)?;
        let hosted = self.pds[host].repos.get(&owner)?;
        Some((hosted.line.last()?, hosted.account))
    }

    pub fn frame(&mut self, owner: OwnerId, body: Body) -> Arc<Frame> {
        self.frames += 1;
        Arc::new(Frame {
            owner,
            body,
            number: self.frames,
        })
    }

    /// The number of frames that were ever sent.
    pub(crate) fn frames_sent(&self) -> u64 {
        self.frames
    }

    pub(crate) fn owner_of(&self, did: &Did) -> Option<OwnerId> {
        self.owners.iter().position(|owner| owner.did == *did)
    }
}

/// The DID of the n-th account.
pub fn did(owner: OwnerId) -> Did {
    let letter = char::from(b'a' + (owner % 26) as u8);
    let second = char::from(b'a' + (owner / 26 % 26) as u8);
    let text = format!("did:plc:{second}{letter}{}", "a".repeat(22));
    Did::parse(&text).expect("letters of base32 make a DID")
}

/// An account's short name, for the trace.
pub fn name(owner: OwnerId) -> char {
    char::from(b'a' + (owner % 26) as u8)
}

/// A short form of a rev, for the trace.
pub fn short(rev: Rev) -> String {
    let since = rev.micros().saturating_sub(BEGINNING);
    format!("r{}.{:06}", since / 1_000_000, since % 1_000_000)
}
