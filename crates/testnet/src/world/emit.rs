//! Turns changes of the world into events, and applies the faults that affect them.
//!
//! A PDS numbers an event when the change happens. Faults decide whether, when and in
//! what form the event is sent. The relay receives each sent event at once.

use std::time::{Duration, Instant};

use bytes::Bytes;
use gapless_atp::car::{write_block, write_header};
use gapless_atp::cid::Cid;
use gapless_atp::frame::sync_blocks;
use gapless_atp::syntax::Did;

use super::account::{Held, Status};
use super::clock::timestamp;
use super::repo::NewCommit;
use super::{BlockStore, World};
use crate::faults::{Fault, Place, shape_event};
use crate::stream::{Body, CommitBody, Draft};

impl World {
    pub(super) fn emit_commit(&mut self, host: usize, did: &Did, made: &NewCommit) {
        let body = CommitBody {
            rev: made.rev.to_string(),
            since: made.since.map(|since| since.to_string()),
            commit: made.commit,
            blocks: car_of(&self.blocks, made.commit, &made.blocks),
            ops: made.changes.clone(),
            prev_data: made.prev_data,
            too_big: false,
            legacy: false,
        };
        self.emit(host, did, Body::Commit(body));
    }

    /// Emits a `#sync` with the head that the host holds.
    pub(super) fn emit_sync(&mut self, host: usize, did: &Did) {
        let Some(copy) = self.hosts[host].accounts.get(did) else {
            return;
        };
        let (rev, commit) = (copy.repo.rev.to_string(), copy.repo.commit);
        let block = self.blocks.get(&commit).map_or(&[][..], |block| block);
        let blocks = Bytes::from(sync_blocks(&commit, block));
        self.emit(host, did, Body::Sync { rev, blocks });
    }

    pub(super) fn emit_identity(&mut self, host: usize, did: &Did, handle: Option<String>) {
        self.emit(host, did, Body::Identity { handle });
    }

    pub(super) fn emit_account(&mut self, host: usize, did: &Did, status: Status) {
        let body = Body::Account {
            active: status.is_active(),
            status: status.word().map(str::to_owned),
        };
        self.emit(host, did, body);
    }

    pub(super) fn emit(&mut self, host: usize, did: &Did, body: Body) {
        let draft = Draft {
            did: did.clone(),
            time: timestamp(self.clock.now()),
            body,
        };
        let place = Place::Pds(host);
        let is_account = draft.is_account();
        let unnumbered = self.faults.take(place, Some(did), |fault| match fault {
            Fault::LostAccount {} if is_account => Some(false),
            Fault::Drop { unnumbered } => Some(*unnumbered),
            _ => None,
        });
        if unnumbered == Some(true) {
            return;
        }
        self.events += 1;
        let seq = self.hosts[host].feed.skip_seq();
        if unnumbered.is_some() {
            return;
        }
        let draft = shape_event(self, place, draft);
        let earlier = self.hosts[host].held.remove(did);
        if earlier.is_none() && self.take_reorder(place, did) {
            let held = Held { seq, draft };
            self.hosts[host].held.insert(did.clone(), held);
            return;
        }
        let not_before = self.faults.take(place, Some(did), |fault| match fault {
            Fault::Delay { ms } => Some(Instant::now() + Duration::from_millis(*ms)),
            _ => None,
        });
        self.send(host, seq, &draft, not_before);
        if let Some(held) = earlier {
            self.send(host, held.seq, &held.draft, not_before);
        }
        let twice = |fault: &Fault| matches!(fault, Fault::Duplicate {}).then_some(());
        if self.faults.take(place, Some(did), twice).is_some() {
            self.send(host, seq, &draft, not_before);
        }
    }

    fn take_reorder(&self, place: Place, did: &Did) -> bool {
        let wanted = |fault: &Fault| matches!(fault, Fault::Reorder {}).then_some(());
        self.faults.take(place, Some(did), wanted).is_some()
    }

    /// Sends the events that are held back until their account's next event.
    pub(crate) fn release_held(&mut self) {
        for host in 0..self.hosts.len() {
            for (_, held) in std::mem::take(&mut self.hosts[host].held) {
                self.send(host, held.seq, &held.draft, None);
            }
        }
    }

    fn send(&mut self, host: usize, seq: u64, draft: &Draft, not_before: Option<Instant>) {
        let frame = draft.encode(seq);
        self.hosts[host]
            .feed
            .push(seq, &draft.did, frame, not_before);
        let speaks_for = self.accounts.get(&draft.did).map(|account| account.host);
        let Some(relay) = &mut self.relay else {
            return;
        };
        let passed = relay.hear(&self.faults, host, seq, speaks_for, draft, not_before);
        if let (Some(seq), Some(jetstream)) = (passed, &mut self.jetstream) {
            jetstream.hear(seq, draft, self.clock.now(), &self.blocks);
        }
    }
}

/// A CAR of those of `blocks` that the store has, with the commit as its root.
pub(super) fn car_of(store: &BlockStore, root: Cid, blocks: &[Cid]) -> Bytes {
    let mut car = Vec::new();
    write_header(&mut car, &[root]);
    for cid in blocks {
        if let Some(block) = store.get(cid) {
            write_block(&mut car, cid, block);
        }
    }
    Bytes::from(car)
}
