//! The methods `com.atproto.sync.*` of a PDS.

use std::collections::HashSet;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use gapless_atp::car::{write_block, write_header};
use gapless_atp::cid::Cid;
use gapless_atp::mst::Tree;
use gapless_atp::syntax::{Did, Tid, nsid, record_key};
use serde_json::{Value as Json, json};

use super::car;
use crate::faults::{Fault, Place};
use crate::http::{Answer, Query, Refusal, ok, with_type};
use crate::net::Net;
use crate::world::{Hosted, World};

const LIST_DEFAULT: usize = 500;
const LIST_MOST: usize = 1000;
const CAR_TYPE: &str = "application/vnd.ipld.car";
/// Long responses are sent in pieces of this size, without a length, as the reference PDS
/// does.
const PIECE_BYTES: usize = 64 * 1024;

type Given = Result<Answer, Refusal>;

/// The account that the parameter `did` names.
fn did_of(query: &Query) -> Result<Did, Refusal> {
    let missing = || Refusal::invalid("Error: Params must have the property \"did\"");
    let did = query.get("did").ok_or_else(missing)?;
    Did::parse(did).map_err(|_| Refusal::invalid("Error: did must be a valid did"))
}

/// The host's copy of an account, whatever its state.
fn held<'w>(world: &'w World, host: usize, did: &Did) -> Result<&'w Hosted, Refusal> {
    world.hosts[host].accounts.get(did).ok_or_else(|| {
        let message = format!("Could not find repo for DID: {did}");
        Refusal::new(400, "RepoNotFound", message)
    })
}

/// The host's copy of an account, if its state allows serving it.
pub(super) fn served<'w>(world: &'w World, host: usize, did: &Did) -> Result<&'w Hosted, Refusal> {
    let copy = held(world, host, did)?;
    match copy.status.refusal() {
        None => Ok(copy),
        Some(error) => {
            let word = copy.status.word().unwrap_or_default();
            let message = format!("Repo has been {word}: {did}");
            Err(Refusal::new(400, error, message))
        }
    }
}

fn car_answer(car: Vec<u8>) -> Answer {
    let mut rest = Bytes::from(car);
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let piece = rest.split_to(rest.len().min(PIECE_BYTES));
        pieces.push(Ok::<_, std::io::Error>(piece));
    }
    with_type(200, CAR_TYPE, Body::from_stream(stream::iter(pieces)))
}

pub(super) fn get_repo(net: &Net, host: usize, query: &Query) -> Given {
    let did = did_of(query)?;
    let since = query.get("since").map(Tid::parse).transpose();
    let since = since.map_err(|_| Refusal::invalid("Error: since must be a valid TID"))?;
    let mut world = net.world();
    served(&world, host, &did)?;
    let car = car::get_repo(&mut world, host, &did, since);
    Ok(car_answer(car.unwrap_or_default()))
}

pub(super) fn get_record(net: &Net, host: usize, query: &Query) -> Given {
    let did = did_of(query)?;
    let (Some(collection), Some(rkey)) = (query.get("collection"), query.get("rkey")) else {
        let message = "Error: Params must have the properties \"collection\" and \"rkey\"";
        return Err(Refusal::invalid(message));
    };
    if nsid::validate(collection).is_err() || record_key::validate(rkey).is_err() {
        let message = "Error: collection must be an NSID and rkey a record key";
        return Err(Refusal::invalid(message));
    }
    let world = net.world();
    let repo = &served(&world, host, &did)?.repo;
    // The nodes that are read on the way prove presence as well as absence.
    let mut tree = Tree::open(repo.data, &world.blocks);
    let found = tree.get(format!("{collection}/{rkey}").as_bytes());
    let found = found.map_err(|error| Refusal::new(500, "InternalServerError", error))?;
    let mut cids = vec![repo.commit];
    cids.extend(tree.untouched());
    if cids.len() == 1 {
        // An empty tree is not read, but its node is the proof.
        cids.push(repo.data);
    }
    cids.extend(found);
    let mut out = Vec::new();
    write_header(&mut out, &[repo.commit]);
    for cid in &cids {
        if let Some(block) = world.blocks.get(cid) {
            write_block(&mut out, cid, block);
        }
    }
    Ok(car_answer(out))
}

pub(super) fn get_blocks(net: &Net, host: usize, query: &Query) -> Given {
    let did = did_of(query)?;
    let wanted: Result<Vec<Cid>, _> = query.all("cids").map(str::parse).collect();
    let wanted = wanted.map_err(|_| Refusal::invalid("Error: cids must be valid CIDs"))?;
    let world = net.world();
    let repo = &served(&world, host, &did)?.repo;
    let blocks = car::repo_blocks(&world, repo.commit, repo.data, &HashSet::new());
    let mut out = Vec::new();
    write_header(&mut out, &[]);
    let mut missing = Vec::new();
    for cid in &wanted {
        match blocks.iter().find(|block| block.cid == *cid) {
            Some(block) => write_block(&mut out, cid, &block.bytes),
            None => missing.push(cid.to_string()),
        }
    }
    if missing.is_empty() {
        Ok(car_answer(out))
    } else {
        let message = format!("Could not find cids: {}", missing.join(", "));
        Err(Refusal::new(400, "BlockNotFound", message))
    }
}

pub(super) fn get_latest_commit(net: &Net, host: usize, query: &Query) -> Given {
    let did = did_of(query)?;
    let world = net.world();
    let repo = &served(&world, host, &did)?.repo;
    Ok(ok(&json!({
        "cid": repo.commit.to_string(),
        "rev": repo.rev.to_string(),
    })))
}

pub(super) fn get_repo_status(net: &Net, host: usize, query: &Query) -> Given {
    let did = did_of(query)?;
    let world = net.world();
    let copy = held(&world, host, &did)?;
    let mut json = json!({ "did": did.as_str(), "active": copy.status.is_active() });
    match copy.status.word() {
        Some(word) => json["status"] = word.into(),
        None => json["rev"] = copy.repo.rev.to_string().into(),
    }
    Ok(ok(&json))
}

/// The number of items that a page may have, according to the parameter `limit`.
pub(crate) fn limit_of(query: &Query, default: usize, most: usize) -> Result<usize, Refusal> {
    match query.get("limit").map(str::parse::<usize>) {
        None => Ok(default),
        Some(Ok(limit)) if (1..=most).contains(&limit) => Ok(limit),
        Some(_) => {
            let message = format!("Error: limit must be a number from 1 to {most}");
            Err(Refusal::invalid(message))
        }
    }
}

pub(super) fn list_repos(net: &Net, host: usize, query: &Query) -> Given {
    let limit = limit_of(query, LIST_DEFAULT, LIST_MOST)?.min(net.config.list_page);
    let after = query.get("cursor").map(str::parse::<u64>).transpose();
    let after = after.map_err(|_| Refusal::invalid("Malformed cursor"))?;
    let world = net.world();
    let here = &world.hosts[host];
    let keep = net
        .faults
        .take(Place::Pds(host), None, |fault| match fault {
            Fault::ListEmpty {} => Some(0),
            Fault::ListShort { keep } => Some(*keep),
            _ => None,
        });
    // The cursor is a number, so an account that leaves in between shifts nothing.
    let shown = here.order.iter().take(keep.unwrap_or(usize::MAX));
    let mut rest = shown.skip_while(|(number, _)| **number <= after.unwrap_or(0));
    let page: Vec<(&u64, &Did)> = rest.by_ref().take(limit).collect();
    let repos: Vec<Json> = page
        .iter()
        .filter_map(|(_, did)| Some(listed(&world, host, did, here.accounts.get(*did)?)))
        .collect();
    let mut json = json!({ "repos": repos });
    if let (Some((last, _)), Some(_)) = (page.last(), rest.next()) {
        json["cursor"] = last.to_string().into();
    }
    Ok(ok(&json))
}

fn listed(world: &World, host: usize, did: &Did, copy: &Hosted) -> Json {
    let truth = world.history.as_ref().and_then(|all| all.repo(did));
    let stale = truth.and_then(|truth| {
        let taken = world
            .faults
            .take(Place::Pds(host), Some(did), |fault| match fault {
                Fault::ListStale { commits } => truth.back(*commits),
                _ => None,
            });
        taken.map(|at| &truth.commits[at])
    });
    let (head, rev) = match stale {
        Some(old) => (old.commit, old.rev),
        None => (copy.repo.commit, copy.repo.rev),
    };
    let mut json = json!({
        "did": did.as_str(),
        "head": head.to_string(),
        "rev": rev.to_string(),
        "active": copy.status.is_active(),
    });
    if let Some(word) = copy.status.word() {
        json["status"] = word.into();
    }
    json
}
