//! Faults that change the contents of an event, not whether it is sent.

use bytes::Bytes;
use gapless_atp::car::{read_blocks, write_block, write_header};
use gapless_atp::cid::Cid;
use gapless_atp::crypto::Curve;
use gapless_atp::syntax::{Did, Tid};

use super::kinds::{Fault, Part, Place};
use crate::stream::{Body, CommitBody, Draft};
use crate::world::{World, sign};

/// How far ahead a false rev is: later than any true one, but not so late that it is
/// refused for that alone.
const ENVELOPE_AHEAD_MICROS: u64 = 120_000_000;

/// Applies the first fault that is set for an event.
pub(crate) fn shape_event(world: &mut World, place: Place, mut draft: Draft) -> Draft {
    let did = draft.did.clone();
    let is_commit = matches!(draft.body, Body::Commit(_));
    let has_rev = matches!(draft.body, Body::Commit(_) | Body::Sync { .. });
    let has_ops = matches!(&draft.body, Body::Commit(body) if !body.ops.is_empty());
    let taken = world.faults.take(place, Some(&did), |fault| match fault {
        Fault::TooBig {} | Fault::OmitOp {} => has_ops.then(|| fault.clone()),
        Fault::Legacy {} | Fault::WrongSignature {} => is_commit.then(|| fault.clone()),
        Fault::EnvelopeRev {} => has_rev.then(|| fault.clone()),
        Fault::Undecodable { .. } => Some(fault.clone()),
        _ => None,
    });
    match (taken, &mut draft.body) {
        (Some(Fault::Undecodable { part }), body) => {
            *body = match part {
                Part::Header => Body::BrokenHeader,
                Part::Payload => Body::BrokenPayload,
                Part::Rest => Body::BrokenRest,
            };
        }
        (Some(Fault::Legacy {}), Body::Commit(body)) => body.legacy = true,
        (Some(Fault::OmitOp {}), Body::Commit(body)) => {
            body.ops.pop();
        }
        (Some(Fault::TooBig {}), Body::Commit(body)) => {
            body.too_big = true;
            body.ops.clear();
            body.blocks = only_commit(body);
        }
        (
            Some(Fault::EnvelopeRev {}),
            Body::Commit(CommitBody { rev, .. }) | Body::Sync { rev, .. },
        ) => {
            let later = world.clock.now() + ENVELOPE_AHEAD_MICROS;
            *rev = Tid::from_micros(later, 0).to_string();
        }
        (Some(Fault::WrongSignature {}), Body::Commit(body)) => sign_wrongly(world, &did, body),
        _ => (),
    }
    draft
}

/// The CAR with only its first block.
fn only_commit(body: &CommitBody) -> Bytes {
    rewrite(&body.blocks, body.commit, |index, _| index == 0, None)
}

/// Signs the same tree and rev with another key than the owner's.
fn sign_wrongly(world: &mut World, did: &Did, body: &mut CommitBody) {
    let Some((data, rev)) = head_of(body) else {
        return;
    };
    let key = world.rng.key(Curve::K256);
    let block = sign(did, &key, rev, &data);
    let commit = Cid::dag_cbor(&block);
    body.blocks = rewrite(&body.blocks, commit, |index, _| index > 0, Some(&block));
    body.commit = commit;
}

fn head_of(body: &CommitBody) -> Option<(Cid, gapless_atp::syntax::Rev)> {
    let blocks = read_blocks(&body.blocks).ok()?.into_map().ok()?;
    let commit = gapless_atp::repo::Commit::decode(blocks.get(&body.commit)?).ok()?;
    Some((commit.data, commit.rev))
}

/// A CAR with another root, some of the blocks, and optionally another first block.
fn rewrite(
    car: &[u8],
    root: Cid,
    keep: impl Fn(usize, &Cid) -> bool,
    first: Option<&[u8]>,
) -> Bytes {
    let mut out = Vec::with_capacity(car.len());
    write_header(&mut out, &[root]);
    if let Some(block) = first {
        write_block(&mut out, &Cid::dag_cbor(block), block);
    }
    let blocks = read_blocks(car).into_iter().flatten().flatten();
    for (index, (cid, block)) in blocks.enumerate() {
        if keep(index, &cid) {
            write_block(&mut out, &cid, block);
        }
    }
    Bytes::from(out)
}
