//! The blocks of a repository, and the faults that change them before they are sent.

use std::collections::HashSet;

use bytes::Bytes;
use gapless_atp::car::{write_block, write_header};
use gapless_atp::cbor::Writer;
use gapless_atp::cid::Cid;
use gapless_atp::crypto::Curve;
use gapless_atp::mst::{self, TreeError, Visit};
use gapless_atp::syntax::{Did, Rev};

use crate::faults::{Fault, Place};
use crate::world::{Repo, World, sign};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Commit,
    Node,
    Record,
}

#[derive(Debug, Clone)]
pub(crate) struct Block {
    pub cid: Cid,
    pub bytes: Bytes,
    pub kind: Kind,
}

/// The blocks of a repository: the commit, then the tree in key order. Each block occurs
/// once, and blocks in `known` are left out.
pub(crate) fn repo_blocks(
    world: &World,
    commit: Cid,
    data: Cid,
    known: &HashSet<Cid>,
) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut seen = known.clone();
    let mut add = |cid: Cid, kind| {
        if let Some(bytes) = world.blocks.get(&cid).filter(|_| seen.insert(cid)) {
            let bytes = bytes.clone();
            blocks.push(Block { cid, bytes, kind });
        }
    };
    add(commit, Kind::Commit);
    let walked = mst::walk::<TreeError>(data, &world.blocks, |met| {
        match met {
            Visit::Node { cid, .. } => add(cid, Kind::Node),
            Visit::Key { value, .. } => add(value, Kind::Record),
        }
        Ok(())
    });
    assert!(walked.is_ok(), "the network's own tree is broken");
    blocks
}

/// The blocks that a client which has the repository at `since` already has.
pub(crate) fn known_since(world: &World, did: &Did, since: Rev) -> HashSet<Cid> {
    let truth = world.history.as_ref().and_then(|all| all.repo(did));
    let Some(truth) = truth else {
        // Without history everything is sent, as servers may do.
        return HashSet::new();
    };
    let Some(at) = truth.at_or_before(since) else {
        return HashSet::new();
    };
    let old = &truth.commits[at];
    let blocks = repo_blocks(world, old.commit, old.data, &HashSet::new());
    let tree = blocks.iter().filter(|block| block.kind != Kind::Commit);
    tree.map(|block| block.cid).collect()
}

/// Writes blocks as a CAR whose root is the first block.
pub(crate) fn write_car(blocks: &[Block]) -> Vec<u8> {
    let mut car = Vec::new();
    let root = blocks.first().map(|block| block.cid);
    write_header(&mut car, root.as_slice());
    for block in blocks {
        write_block(&mut car, &block.cid, &block.bytes);
    }
    car
}

/// The response of getRepo: the truth, or what a fault makes of it.
pub(crate) fn get_repo(
    world: &mut World,
    host: usize,
    did: &Did,
    since: Option<Rev>,
) -> Option<Vec<u8>> {
    let mut repo = world.hosts[host].accounts.get(did)?.repo.clone();
    if let Some(old) = take_old(world, host, did) {
        repo = old;
    }
    if since.is_some() && take_empty(world, host, did) {
        let mut car = Vec::new();
        write_header(&mut car, &[repo.commit]);
        return Some(car);
    }
    let known = since.map(|since| known_since(world, did, since));
    let mut blocks = repo_blocks(world, repo.commit, repo.data, &known.unwrap_or_default());
    spoil(world, host, did, &repo, &mut blocks);
    Some(write_car(&blocks))
}

fn take_empty(world: &World, host: usize, did: &Did) -> bool {
    let wanted = |fault: &Fault| matches!(fault, Fault::SinceEmpty {}).then_some(());
    let taken = world.faults.take(Place::Pds(host), Some(did), wanted);
    taken.is_some()
}

fn take_old(world: &World, host: usize, did: &Did) -> Option<Repo> {
    let truth = world.history.as_ref()?.repo(did)?;
    let at = world
        .faults
        .take(Place::Pds(host), Some(did), |fault| match fault {
            Fault::CarOld { commits } => truth.back(*commits),
            _ => None,
        })?;
    let old = &truth.commits[at];
    Some(Repo {
        commit: old.commit,
        rev: old.rev,
        data: old.data,
        records: truth.records(at),
    })
}

/// Removes or replaces blocks as the first applicable fault wants. A fault that finds
/// nothing to change does not fire.
fn spoil(world: &mut World, host: usize, did: &Did, repo: &Repo, blocks: &mut Vec<Block>) {
    let last = |kind| blocks.iter().rposition(|block| block.kind == kind);
    let (last_node, last_record) = (last(Kind::Node), last(Kind::Record));
    let taken = world
        .faults
        .take(Place::Pds(host), Some(did), |fault| match fault {
            Fault::CarCut {} => (blocks.len() > 1).then(|| fault.clone()),
            Fault::CarMinusNode {} => last_node.map(|_| fault.clone()),
            Fault::CarMinusLeaf {} => last_record.map(|_| fault.clone()),
            Fault::CarNonCanonical {} | Fault::CarOtherKey {} => Some(fault.clone()),
            _ => None,
        });
    match taken {
        Some(Fault::CarCut {}) => blocks.truncate(blocks.len().div_ceil(2)),
        Some(Fault::CarMinusNode {}) => remove(blocks, last_node),
        Some(Fault::CarMinusLeaf {}) => remove(blocks, last_record),
        Some(Fault::CarOtherKey {}) => {
            let key = world.rng.key(Curve::K256);
            put_commit(blocks, sign(did, &key, repo.rev, &repo.data));
        }
        Some(Fault::CarNonCanonical {}) => {
            let Some(account) = world.accounts.get(did) else {
                return;
            };
            // A top node without keys: every block is present and hashes, and the owner's
            // key signs the tree, but no honest tree looks like this.
            let mut writer = Writer::new();
            writer.map(2).text("e").array(0).text("l").cid(&repo.data);
            let bytes = Bytes::from(writer.into_bytes());
            let top = Block {
                cid: Cid::dag_cbor(&bytes),
                bytes,
                kind: Kind::Node,
            };
            put_commit(blocks, sign(did, &account.signing, repo.rev, &top.cid));
            blocks.insert(1, top);
        }
        _ => (),
    }
}

fn remove(blocks: &mut Vec<Block>, at: Option<usize>) {
    if let Some(at) = at {
        blocks.remove(at);
    }
}

fn put_commit(blocks: &mut [Block], block: Vec<u8>) {
    if let Some(first) = blocks.first_mut() {
        *first = Block {
            cid: Cid::dag_cbor(&block),
            bytes: Bytes::from(block),
            kind: Kind::Commit,
        };
    }
}
