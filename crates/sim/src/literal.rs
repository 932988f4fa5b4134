//! A literal implementation of the data consistency model's operations in the simulator's world: a
//! mirror that reports "complete" while records are missing, which the checks must catch.
//!
//! The document is read favourably: events and files are verified, and operations are
//! applied correctly. `#info` carries no cursor, so the first event after it supplies the
//! value.

use std::collections::BTreeMap;

use gapless_atp::syntax::Rev;

use crate::rng::Rng;
use crate::world::commit::Records;
use crate::world::pds::{Line, Served};
use crate::world::stream::Dialed;
use crate::world::{Body, Fault, Faults, OwnerId, PdsId, Place, Received, Socket, World};

#[derive(Debug, Default)]
struct PdsStream {
    socket: Option<Socket>,
    cursor: Option<u64>,
    first_cursor_since_reset: Option<u64>,
    /// Whether the next event supplies the first cursor.
    reset: bool,
}

/// What the mirror knows of a repository.
#[derive(Debug, Clone, Default)]
pub struct Repo {
    pds: Option<PdsId>,
    pub last_indexed_rev: Option<Rev>,
    pub last_firehose_rev: Option<Rev>,
    pub first_rev_since_reset: Option<Rev>,
    pub first_cursor_since_reset: Option<u64>,
    pub records: Records,
}

/// A repository that is being indexed.
#[derive(Debug, Clone)]
pub struct Indexing {
    owner: OwnerId,
    noted: Option<u64>,
    served: Served,
}

#[derive(Debug, Default)]
pub struct Literal {
    pds: BTreeMap<PdsId, PdsStream>,
    repos: BTreeMap<OwnerId, Repo>,
}

impl Literal {
    pub fn repo(&self, owner: OwnerId) -> Repo {
        self.repos.get(&owner).cloned().unwrap_or_default()
    }

    /// "Connecting to firehose".
    pub fn connect(&mut self, world: &mut World, id: PdsId) {
        let pds = self.pds.entry(id).or_default();
        if pds.socket.is_some() {
            return;
        }
        if let Dialed::Connected(socket) = world.dial(Place::Pds(id), pds.cursor) {
            pds.socket = Some(socket);
            pds.reset |= pds.cursor.is_none();
        }
    }

    pub fn disconnect(&mut self, id: PdsId) {
        self.pds.entry(id).or_default().socket = None;
    }

    /// "Receiving event on firehose". Returns whether something came.
    pub fn receive(&mut self, world: &mut World, id: PdsId) -> bool {
        let pds = self.pds.entry(id).or_default();
        let Some(socket) = &mut pds.socket else {
            return false;
        };
        match world.receive(socket) {
            Received::Nothing => return false,
            Received::Closed => pds.socket = None,
            Received::Info => pds.reset = true,
            Received::Frame { seq, frame } => {
                if pds.reset {
                    pds.first_cursor_since_reset = Some(seq);
                    pds.reset = false;
                }
                pds.cursor = Some(seq);
                self.event(world, id, frame.owner, &frame.body);
            }
        }
        true
    }

    fn event(&mut self, world: &World, id: PdsId, owner: OwnerId, body: &Body) {
        let Body::Commit {
            commit,
            ops,
            too_big,
            ..
        } = body
        else {
            return;
        };
        if world.true_host(owner) != Some(id) || commit.key.is_none() {
            return;
        }
        let of_pds = self.pds[&id].first_cursor_since_reset;
        let repo = self.repos.entry(owner).or_default();
        if repo.pds != Some(id) {
            repo.pds = Some(id);
            repo.first_rev_since_reset = None;
        }
        for op in ops.iter() {
            match op.after {
                Some(cid) => repo.records.insert(op.path.clone(), cid),
                None => repo.records.remove(&op.path),
            };
        }
        let rev = Some(commit.head.rev);
        if repo.first_cursor_since_reset >= of_pds {
            repo.last_firehose_rev = rev;
        } else {
            repo.first_rev_since_reset = rev;
            repo.first_cursor_since_reset = of_pds;
        }
        if *too_big {
            repo.first_rev_since_reset = rev;
            repo.first_cursor_since_reset = of_pds;
        }
    }

    /// "Indexing a repo": the first half.
    pub fn fetch(&mut self, world: &mut World, owner: OwnerId) -> Option<Indexing> {
        let id = world.true_host(owner)?;
        let repo = self.repos.entry(owner).or_default();
        if repo.pds != Some(id) {
            repo.pds = Some(id);
            repo.first_rev_since_reset = None;
        }
        let noted = self
            .pds
            .get(&id)
            .and_then(|pds| pds.first_cursor_since_reset);
        let served = world.repo(id, owner).ok()?.ok()?;
        Some(Indexing {
            owner,
            noted,
            served,
        })
    }

    /// "Indexing a repo": the second half. By the favourable reading, it finds deletions too.
    pub fn index(&mut self, indexing: Indexing) {
        let repo = self.repos.entry(indexing.owner).or_default();
        let rev = Some(indexing.served.commit.head.rev);
        if rev >= repo.last_firehose_rev {
            repo.records = Records::clone(&indexing.served.records);
        }
        repo.last_indexed_rev = rev;
        if repo.first_cursor_since_reset < indexing.noted {
            repo.first_cursor_since_reset = indexing.noted;
        }
    }

    /// "Listing repos".
    pub fn listed(&mut self, id: PdsId, lines: &[Line]) {
        let of_pds = self.pds.entry(id).or_default().first_cursor_since_reset;
        for line in lines {
            let repo = self.repos.entry(line.owner).or_default();
            if repo.first_rev_since_reset.is_none() {
                repo.pds = Some(id);
                repo.first_rev_since_reset = Some(line.entry.named.rev);
                repo.first_cursor_since_reset = of_pds;
            }
        }
    }

    /// The opposite of "finding repos that need indexing". A field that is not set fails no test.
    pub fn complete(&self, owner: OwnerId) -> bool {
        let Some(repo) = self.repos.get(&owner) else {
            return false;
        };
        let newest = repo.last_indexed_rev.max(repo.last_firehose_rev);
        let pds = repo.pds.and_then(|id| self.pds.get(&id));
        let of_pds = pds.and_then(|pds| pds.first_cursor_since_reset);
        let gap = repo
            .first_rev_since_reset
            .is_some_and(|first| newest < Some(first));
        let reset = repo.first_cursor_since_reset.is_some()
            && of_pds.is_some()
            && repo.first_cursor_since_reset < of_pds;
        repo.last_indexed_rev.is_some() && !gap && !reset
    }

    /// Whether a record is missing or old.
    pub fn lacks(&self, world: &World, owner: OwnerId) -> bool {
        let repo = self.repo(owner);
        let truth = world.truth(owner);
        truth.is_some_and(|(commit, _)| *commit.records != repo.records)
    }

    /// Reads all events of all hosts.
    pub fn drain(&mut self, world: &mut World) {
        for id in 0..world.pds.len() {
            self.connect(world, id);
            while self.receive(world, id) {}
            self.connect(world, id);
            while self.receive(world, id) {}
        }
    }

    /// The number of false claims of completeness.
    pub(crate) fn false_claims(&self, world: &World) -> usize {
        let owners = 0..world.owners.len();
        owners
            .filter(|owner| self.complete(*owner) && self.lacks(world, *owner))
            .count()
    }
}

/// Runs one seed of chaos against this mirror: lost connections, events that leave the
/// window, commits with `tooBig`. Returns the number of false claims at the end.
pub fn chaos(seed: u64) -> usize {
    let mut faults = Faults::none();
    faults.switch_on(Fault::TooBig);
    let mut world = World::new(seed, faults);
    let mut rng = Rng::new(seed ^ 0x11);
    let mut literal = Literal::default();
    let mut under_way: Vec<Indexing> = Vec::new();
    for _ in 0..2 {
        world.add_pds();
    }
    for owner in 0..4 {
        world.add_owner(owner % 2);
    }
    for _ in 0..200 {
        world.pass(1_000);
        let (id, owner) = (rng.below(2), rng.below(4));
        match rng.below(20) {
            0..5 => {
                world.write(owner);
            }
            5..7 => literal.connect(&mut world, id),
            7..14 => {
                literal.receive(&mut world, id);
            }
            14 => literal.disconnect(id),
            15 => world.forget(Place::Pds(id), 1),
            16..18 if !literal.complete(owner) => {
                under_way.extend(literal.fetch(&mut world, owner));
            }
            18 => under_way
                .drain(..)
                .for_each(|indexing| literal.index(indexing)),
            19 => {
                let lines = world.list(id, None).unwrap_or_default();
                literal.listed(id, &lines);
            }
            _ => {}
        }
    }
    literal.drain(&mut world);
    literal.false_claims(&world)
}
