//! Processes one event: verifies it, lets the ledger decide, and writes the result. Also applies
//! the answers of the directory.

use gapless_atp::syntax::Handle;
use gapless_core::ledger::event::{Event, Origin};
use gapless_core::ledger::identity::Document;
use gapless_core::ledger::{DebtItem, DebtReason, KeyBytes, RepoId, Tick, UpstreamId};
use gapless_core::repo_tx::Arrival;

use super::book::frame_bytes;
use super::tx::{judge, read_frame};
use super::{KnownKey, SimMirror};
use crate::world::{Body, Frame, World, name};

impl SimMirror {
    /// Processes one frame of a queue.
    pub fn process(&mut self, world: &mut World, id: UpstreamId, place: usize) {
        let item = self.feeds[&id].queue[place].clone();
        let repo = self.repo_of(world, item.frame.owner);
        let event = self.judge(world, repo, &item.frame, item.tick);
        self.book.remember_frame(&item.frame);
        let arrival = Arrival {
            origin: Origin {
                upstream: id,
                epoch: item.read.epoch,
            },
            seq: item.at.seq,
            bytes: &frame_bytes(&item.frame, item.at.seq),
        };
        let frame = read_frame(&item.frame, event, item.at.seq);
        let mut tx = self.tx(repo);
        self.decide(world, &mut tx, |tx, env, rules| {
            tx.event(env, rules, &arrival, &frame);
            tx.unpark(env, rules)
        });
        let mut batch = self.batch();
        self.finish(world, tx, &mut batch);
        self.done(id, place, &mut batch);
        self.commit(batch);
    }

    /// Verifies a frame, as far as the key is known.
    fn judge(&mut self, world: &mut World, id: RepoId, frame: &Frame, read: Tick) -> Event {
        let signed = matches!(frame.body, Body::Commit { .. } | Body::Sync { .. });
        if signed && !self.keys.contains_key(&id) && self.may_ask(id) {
            // The directory is asked at once; a failure leaves a debt.
            self.resolve_now(world, id);
        }
        judge(frame, self.keys.get(&id).copied(), read)
    }

    /// Whether the directory may be asked at once. A DID that was tried before waits for its debt.
    fn may_ask(&self, id: RepoId) -> bool {
        let debt = self.book.repo(id).debt;
        let first = |owed: DebtItem| owed.why == DebtReason::FirstSighting && debt.attempts == 0;
        debt.resolve.is_none_or(first)
    }

    /// Asks the directory and applies its answer. Returns the key that is known then.
    pub fn resolve_now(&mut self, world: &mut World, id: RepoId) -> Option<KnownKey> {
        let asked = self.tick(world);
        let owner = self.owner_of(world, id);
        self.counts.resolved += 1;
        let (document, version) = world.resolve(owner)?;
        self.resolved(world, id, asked.tick, document, version);
        self.keys.get(&id).copied()
    }

    /// Applies the directory's answer to a request that was made at `asked`.
    pub fn resolved(
        &mut self,
        world: &World,
        id: RepoId,
        asked: Tick,
        document: crate::world::directory::Document,
        version: u64,
    ) {
        let host = document.host.map(|pds| self.host_id(pds));
        let (key, owner) = (document.key, self.owner_of(world, id));
        let document = Document {
            host,
            key: Some(key_bytes(key)),
            handle: Handle::parse(&format!("{}.test", name(owner))).ok(),
            version,
            tombstoned: false,
        };
        let mut tx = self.tx(id);
        if version >= tx.repo.document {
            self.keys.insert(id, KnownKey { key, asked });
        }
        self.decide(world, &mut tx, |tx, env, rules| {
            tx.resolved(env, rules, asked, &document)
        });
        self.submit(world, tx);
    }
}

/// The bytes that stand for a numbered key in a row.
fn key_bytes(number: u32) -> KeyBytes {
    let mut point = [0; 33];
    point[..4].copy_from_slice(&number.to_be_bytes());
    KeyBytes { curve: 0, point }
}
