//! A relay: merges the streams of all hosts under sequence numbers of its own. A relay may
//! leave events out, skip events silently, and be restored from a backup.

use gapless_core::ledger::Account;

use super::{Body, Fault, Lie, Log, OwnerId, Pds, Place, World};

#[derive(Debug, Clone, Default)]
pub struct Relay {
    pub log: Log,
    /// The number of events read from each host's stream.
    pub read: Vec<usize>,
}

impl Relay {
    pub(crate) fn has_all(&self, pds: &[Pds]) -> bool {
        let read = self.read.iter().zip(pds);
        let mut all =
            read.map(|(read, pds)| *read >= pds.log.entries.len() && pds.log.held_back.is_none());
        all.all(|all| all)
    }
}

impl World {
    /// Lets the relay read one event from a host. Returns whether there was one.
    pub(crate) fn relay_step(&mut self, relay: usize) -> bool {
        let waiting: Vec<usize> = (0..self.pds.len())
            .filter(|id| self.relays[relay].read[*id] < self.pds[*id].log.entries.len())
            .collect();
        let Some(host) = self.rng.pick(&waiting) else {
            return false;
        };
        self.relay_read(relay, host);
        true
    }

    fn relay_read(&mut self, relay: usize, host: usize) {
        let read = self.relays[relay].read[host];
        let floor = self.pds[host].log.floor;
        if read < floor {
            // The window has passed the relay, which does not announce the gap.
            self.faults.count(Fault::RelayMissed);
            for owner in self.owners_in(Place::Pds(host), read, floor) {
                self.relay_lie(relay, owner, "a relay missed a window");
            }
            self.relays[relay].read[host] = floor;
            return;
        }
        let frame = self.pds[host].log.entries[read].frame.clone();
        self.relays[relay].read[host] += 1;
        let forged = match &frame.body {
            Body::Commit { commit, .. } | Body::Sync { commit } => commit.key.is_none(),
            _ => false,
        };
        if self.true_host(frame.owner) != Some(host) || forged {
            return;
        }
        if frame.body == Body::Unreadable || self.strikes(Fault::RelayOmits) {
            self.relay_lie(relay, frame.owner, "a relay left an event out");
            return;
        }
        let frame = self.frame(frame.owner, frame.body.clone());
        self.relays[relay].log.push(frame);
    }

    /// Makes the relay call an account deleted without an event of its host.
    pub(crate) fn slander(&mut self, relay: usize, owner: OwnerId) {
        self.slandered.insert(owner);
        let frame = self.frame(owner, Body::Account(Account::Deleted));
        self.relays[relay].log.push(frame);
    }

    pub(crate) fn relay_lie(&mut self, relay: usize, owner: OwnerId, what: &'static str) {
        self.lies.push(Lie {
            owner,
            what,
            relay: Some(relay),
        });
    }

    /// Restores the relay from a backup: its last events are lost, and their numbers are
    /// used again.
    pub fn relay_rollback(&mut self, relay: usize, lost: usize) {
        let log = &mut self.relays[relay].log;
        let keep = log.entries.len().saturating_sub(lost).max(log.floor);
        let gone: Vec<OwnerId> = log.entries[keep..]
            .iter()
            .map(|entry| entry.frame.owner)
            .collect();
        log.entries.truncate(keep);
        log.seq = log.entries.last().map_or(0, |entry| entry.seq);
        log.life += 1;
        for owner in gone {
            self.relay_lie(relay, owner, "a relay was rolled back");
        }
    }
}
