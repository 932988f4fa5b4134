//! Hears claims of a source without proofs, and keeps them as the program does: a claim makes room
//! for itself by dropping older ones, but none that a reader of the log has not read.

use std::collections::BTreeMap;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::claim::{self, ClaimDecision};
use gapless_core::ledger::event::Origin;
use gapless_core::ledger::{RepoId, UpstreamId};
use gapless_core::repo_tx::{Arrival, RepoTx};
use gapless_core::retain::{self, Policies};
use gapless_store::change::ClaimEntry;
use gapless_store::table::claimed::Claim;

use super::SimMirror;
use super::log_event::LogEvent;
use crate::world::life::PATHS;
use crate::world::{OwnerId, World};

/// The upstream of claims, which covers no repository.
const TELLER: UpstreamId = UpstreamId(u32::MAX);

/// The most claims that are kept of one repository.
const CLAIMS: usize = 2;

impl SimMirror {
    /// Hears a commit that a source without proofs claims.
    pub fn claimed(&mut self, world: &World, owner: OwnerId, rev: Rev) {
        let id = self.repo_of(world, owner);
        let now = self.tick(world);
        let mut tx = self.row_tx(id);
        let origin = Origin {
            upstream: TELLER,
            epoch: None,
        };
        let heard = claim::claim_event(self.context(now), &mut tx.repo, origin, rev);
        if heard == ClaimDecision::Keep {
            self.counts.claimed += 1;
            self.keep_claims(world, id, rev, &mut tx);
        }
        self.submit(world, tx);
    }

    /// Keeps what a commit is claimed to contain.
    fn keep_claims(&mut self, world: &World, id: RepoId, rev: Rev, tx: &mut RepoTx) {
        // The row of a claim names an upstream that exists.
        let Some(upstream) = self.book.upstreams().into_keys().next() else {
            return;
        };
        let rows = self.book.view().claims(id);
        let rows = rows.map(|row| row.expect("the double does not fail"));
        let rows = rows.map(|(path, row)| (path, (row.seq, row.claim.rev)));
        let mut held: BTreeMap<Vec<u8>, (u64, Rev)> = rows.collect();
        for _ in 0..self.book.rng.between(1, 3) {
            let path = PATHS[self.book.rng.below(PATHS.len())].as_bytes().to_vec();
            let bytes = vec![self.book.rng.below(8) as u8];
            let record = self.book.rng.per_mille(700);
            let record = record.then(|| (Cid::dag_cbor(&bytes), bytes));
            if held.get(&path).is_some_and(|(_, old)| *old >= rev) {
                // One commit does one thing to a path, so the same rev is old, too.
                continue;
            }
            let Some(give_way) = self.make_room(&held, &path) else {
                self.book.events.count(LogEvent::ClaimHeldBack);
                continue;
            };
            for path in &give_way {
                held.remove(path);
                self.book.events.count(LogEvent::ClaimGaveWay);
            }
            held.insert(path.clone(), (u64::MAX, rev));
            let origin = Origin {
                upstream,
                epoch: None,
            };
            let arrival = Arrival {
                origin,
                seq: 0,
                bytes: &[],
            };
            let claim = Claim {
                upstream,
                rev,
                record,
            };
            let entry = ClaimEntry {
                path,
                claim,
                give_way,
            };
            tx.claim(world.now, &arrival, entry);
            self.book.events.count(LogEvent::ClaimKept);
        }
    }

    /// The claims that give way to one about this path, the oldest first; `None` if there is no room.
    fn make_room(&self, held: &BTreeMap<Vec<u8>, (u64, Rev)>, path: &[u8]) -> Option<Vec<Vec<u8>>> {
        let others = held.iter().filter(|(other, _)| *other != path);
        let others = others.map(|(other, (seq, _))| (*seq, other));
        let mut others: Vec<(u64, &Vec<u8>)> = others.collect();
        others.sort_unstable();
        let excess = (others.len() + 1).saturating_sub(CLAIMS);
        let read_by_all = self.read_by_all();
        let read = others.into_iter().filter(|(seq, _)| *seq < read_by_all);
        let give_way: Vec<Vec<u8>> = read.take(excess).map(|(_, other)| other.clone()).collect();
        (give_way.len() == excess).then_some(give_way)
    }

    /// Every reader of the log that holds anything has read the numbers below this one.
    pub(super) fn read_by_all(&self) -> u64 {
        let consumers = self.book.view().consumers();
        let consumers = consumers.expect("the double does not fail");
        let head = self.book.counters().next_seq;
        retain::floor(consumers.values(), Policies::NOTHING, head).log
    }
}
