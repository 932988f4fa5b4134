//! Immediate faults, which change the world when they are set.

use bytes::Bytes;
use gapless_atp::crypto::Curve;
use gapless_atp::frame::encode_info;
use gapless_atp::mst::key_height;
use gapless_atp::syntax::{Did, Tid};

use super::clock::FAR_FUTURE_MICROS;
use super::emit::car_of;
use super::repo::{Repo, WRITES_PER_COMMIT, Write, WriteError, sign};
use super::{Drawer, POST, World};
use crate::faults::{Fault, Place, Spec};
use crate::stream::{Body, CommitBody};

/// The number of hashes spent on one mined key: enough for height 12, not for 16.
const MINING_TRIES: u64 = 200_000_000;

/// Why an action was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("there is no PDS {0}")]
    NoHost(usize),
    #[error("there is no relay in this network")]
    NoRelay,
    #[error("there is no Jetstream in this network")]
    NoJetstream,
    #[error("{0} is already on host {1}")]
    SameHost(Did, usize),
    #[error("{0} is not in the directory")]
    NotInDirectory(Did),
    #[error("the DID already exists: each host has one did:web, its own name")]
    DidTaken,
    #[error("no account is in the fault's scope")]
    NoAccount,
    #[error("no history is kept for this network")]
    NoHistory,
    #[error("{0} cannot go back {1} commits")]
    TooShort(Did, usize),
    #[error("no key of height {0} was found")]
    NotMined(u32),
    #[error("{0} cannot fire on {1}")]
    WrongPlace(String, Place),
    #[error("{fault}: {argument} must be {least} to {most}, not {value}")]
    OutOfRange {
        fault: String,
        argument: &'static str,
        value: u64,
        least: u64,
        most: u64,
    },
}

impl World {
    /// Performs an immediate fault, once for every account or stream in its scope (at
    /// most `count` accounts; one if `count` is absent). Returns how often it was
    /// performed.
    pub(crate) fn act(&mut self, spec: &Spec) -> Result<u64, ActionError> {
        match &spec.fault {
            Fault::Window { .. }
            | Fault::SeqRestart { .. }
            | Fault::Disconnect {}
            | Fault::Info { .. } => self.act_on_streams(spec),
            Fault::RelayRollback { events } => {
                let relay = self.relay.as_mut().ok_or(ActionError::NoRelay)?;
                relay.rollback(*events);
                Ok(1)
            }
            _ => {
                let dids = self.scope(spec)?;
                for did in &dids {
                    self.act_on_account(&spec.fault, did)?;
                }
                Ok(dids.len() as u64)
            }
        }
    }

    fn act_on_streams(&mut self, spec: &Spec) -> Result<u64, ActionError> {
        let feeds = match spec.host {
            None => self.hosts.iter().map(|host| host.feed.clone()).collect(),
            Some(Place::Pds(index)) => {
                let host = self.hosts.get(index).ok_or(ActionError::NoHost(index))?;
                vec![host.feed.clone()]
            }
            Some(Place::Relay) => {
                let relay = self.relay.as_ref().ok_or(ActionError::NoRelay)?;
                vec![relay.feed.clone()]
            }
            Some(place) => return Err(ActionError::WrongPlace(spec.fault.name(), place)),
        };
        for feed in &feeds {
            match &spec.fault {
                Fault::Window { events } => feed.set_window(*events),
                Fault::SeqRestart { next } => feed.restart(*next),
                Fault::Info { name, message } => {
                    feed.push_info(Bytes::from(encode_info(name, message.as_deref())));
                }
                _ => feed.disconnect(),
            }
        }
        Ok(feeds.len() as u64)
    }

    /// The accounts in the scope of a fault, in the order of their creation.
    fn scope(&self, spec: &Spec) -> Result<Vec<Did>, ActionError> {
        if let Some(did) = &spec.did {
            self.account(did)?;
            return Ok(vec![did.clone()]);
        }
        let wanted = spec.count.unwrap_or(1) as usize;
        let here = self.dids.iter().filter(|did| {
            let host = self.accounts.get(*did).map(|account| account.host);
            let in_place = match spec.host {
                None => true,
                Some(Place::Pds(index)) => host == Some(index),
                Some(_) => false,
            };
            in_place && self.hosted(did).is_some()
        });
        let dids: Vec<Did> = here.take(wanted).cloned().collect();
        if dids.is_empty() {
            Err(ActionError::NoAccount)
        } else {
            Ok(dids)
        }
    }

    fn act_on_account(&mut self, fault: &Fault, did: &Did) -> Result<(), ActionError> {
        match fault {
            Fault::Sync {} => {
                let host = self.account(did)?.host;
                self.emit_sync(host, did);
                Ok(())
            }
            Fault::ForgedRev { signed } => self.forge(did, *signed),
            Fault::RevRollback { commits } => self.roll_back(did, *commits),
            Fault::RotateKey { quiet } => self.rotate_key(did, *quiet),
            Fault::Migrate { to, import } => {
                let next = (self.account(did)?.host + 1) % self.hosts.len();
                self.migrate(did, to.unwrap_or(next), *import)
            }
            Fault::Ghost {} => self.haunt(did),
            Fault::LateWrite {} => self.write_late(did),
            Fault::DeadWrite { text } => self.write_dead(did, text),
            Fault::Account { state } => self.set_status(did, *state),
            Fault::HugeRepo { records } => self.grow(did, *records),
            Fault::DeepKeys { height, keys } => self.deepen(did, *height, *keys),
            waiting => Err(ActionError::WrongPlace(waiting.name(), Place::Pds(0))),
        }
    }

    /// Emits a commit with a rev from the far future. The repository itself does not
    /// change.
    fn forge(&mut self, did: &Did, signed: bool) -> Result<(), ActionError> {
        let account = self.account(did)?;
        let (host, mut key) = (account.host, account.signing.clone());
        let copy = self.hosted(did).ok_or(ActionError::NoAccount)?;
        let (since, data) = (copy.repo.rev, copy.repo.data);
        if !signed {
            key = self.rng.key(Curve::K256);
        }
        let rev = Tid::from_micros(FAR_FUTURE_MICROS, 0);
        let commit = self.blocks.put(&sign(did, &key, rev, &data));
        let body = CommitBody {
            rev: rev.to_string(),
            since: Some(since.to_string()),
            commit,
            blocks: car_of(&self.blocks, commit, &[commit, data]),
            ops: Vec::new(),
            prev_data: Some(data),
            too_big: false,
            legacy: false,
        };
        self.emit(host, did, Body::Commit(body));
        Ok(())
    }

    /// Restores a repository from a backup: it goes back by `commits` commits, and no
    /// event is sent.
    fn roll_back(&mut self, did: &Did, commits: usize) -> Result<(), ActionError> {
        let host = self.account(did)?.host;
        let history = self.history.as_mut().ok_or(ActionError::NoHistory)?;
        let truth = history.repo(did).ok_or(ActionError::NoHistory)?;
        let at = truth
            .back(commits)
            .ok_or_else(|| ActionError::TooShort(did.clone(), commits))?;
        let old = &truth.commits[at];
        let repo = Repo {
            commit: old.commit,
            rev: old.rev,
            data: old.data,
            records: truth.records(at),
        };
        history.set_head(did, at);
        if let Some(copy) = self.hosts[host].accounts.get_mut(did) {
            copy.repo = repo;
        }
        Ok(())
    }

    /// Adds records, in commits of the largest allowed size.
    pub(crate) fn grow(&mut self, did: &Did, records: usize) -> Result<(), ActionError> {
        let mut left = records;
        while left > 0 {
            let count = left.min(WRITES_PER_COMMIT);
            let mut drawer = Drawer {
                rng: &mut self.rng,
                clock: &mut self.clock,
                others: &self.dids,
            };
            let writes: Vec<Write> = (0..count).map(|_| drawer.create()).collect();
            self.write(did, &writes)?;
            left -= count;
        }
        Ok(())
    }

    /// Writes keys of a great height, each between keys of height 0, so that the tree has
    /// nodes without keys on every level between them.
    fn deepen(&mut self, did: &Did, height: u32, keys: usize) -> Result<(), ActionError> {
        let mut writes = Vec::new();
        for index in 0..keys {
            for (wanted, mark) in [(height, 'h'), (0, 'l')] {
                let stamp = self.clock.tick();
                let stem = format!("{POST}/deep{stamp}-{index:03}{mark}");
                let path = mine(&stem, wanted).ok_or(ActionError::NotMined(wanted))?;
                let record = format!("mined for height {wanted}: {path}");
                let record = serde_json::json!({ "$type": POST, "text": record });
                let record = super::encode_record(&record).unwrap_or_default();
                writes.push(Write::Create { path, record });
            }
        }
        for batch in writes.chunks(WRITES_PER_COMMIT) {
            self.write(did, batch)?;
        }
        Ok(())
    }
}

/// Finds a key that begins with `stem` and has exactly this height.
fn mine(stem: &str, height: u32) -> Option<String> {
    let keys = (0..MINING_TRIES).map(|number| format!("{stem}{number}"));
    let mut right = keys.filter(|key| key_height(key.as_bytes()) == height);
    right.next()
}
