//! The methods `com.atproto.repo.*` of a PDS: records as JSON.

use std::collections::BTreeSet;
use std::ops::Bound;

use gapless_atp::cbor::{Value, to_json};
use gapless_atp::cid::Cid;
use gapless_atp::syntax::Did;
use serde_json::{Value as Json, json};

use super::sync::{limit_of, served};
use crate::http::{Answer, Query, Refusal, ok};
use crate::net::Net;
use crate::plc::document;
use crate::world::World;

const LIST_DEFAULT: usize = 50;
const LIST_MOST: usize = 100;

/// The account that the parameter `repo` names, by DID or handle.
fn repo_of(world: &World, query: &Query) -> Result<Did, Refusal> {
    let name = query
        .get("repo")
        .ok_or_else(|| Refusal::invalid("Error: Params must have the property \"repo\""))?;
    world
        .find(name)
        .map(|account| account.did.clone())
        .ok_or_else(|| Refusal::invalid("Could not find repo"))
}

pub(super) fn describe_repo(net: &Net, host: usize, query: &Query) -> Result<Answer, Refusal> {
    let world = net.world();
    let did = repo_of(&world, query)?;
    let copy = served(&world, host, &did)?;
    let account = world.accounts.get(&did);
    let paths = copy.repo.records.keys();
    let collections: BTreeSet<&str> = paths.filter_map(|path| path.split('/').next()).collect();
    let statement = account.map(|account| world.statement(account));
    Ok(ok(&json!({
        "handle": account.map(|account| account.handle.as_str()),
        "did": did.as_str(),
        "didDoc": statement.map(|statement| document(did.as_str(), &statement, false)),
        "collections": collections,
        "handleIsCorrect": true,
    })))
}

fn shown(world: &World, did: &Did, path: &str, cid: &Cid) -> Json {
    let block = world.blocks.get(cid).map_or(&[][..], |block| block);
    let value = Value::decode(block).map_or(Json::Null, |(value, _)| to_json(&value));
    json!({ "uri": format!("at://{did}/{path}"), "cid": cid.to_string(), "value": value })
}

pub(super) fn get_record(net: &Net, host: usize, query: &Query) -> Result<Answer, Refusal> {
    let world = net.world();
    let did = repo_of(&world, query)?;
    let copy = served(&world, host, &did)?;
    let collection = query.get("collection").unwrap_or_default();
    let path = format!("{collection}/{}", query.get("rkey").unwrap_or_default());
    match copy.repo.records.get(&path) {
        Some(cid) => Ok(ok(&shown(&world, &did, &path, cid))),
        None => {
            let message = format!("Could not locate record: at://{did}/{path}");
            Err(Refusal::new(400, "RecordNotFound", message))
        }
    }
}

/// Lists records, newest first unless `reverse` is set. The cursor is the last record
/// key.
pub(super) fn list_records(net: &Net, host: usize, query: &Query) -> Result<Answer, Refusal> {
    let world = net.world();
    let did = repo_of(&world, query)?;
    let copy = served(&world, host, &did)?;
    let limit = limit_of(query, LIST_DEFAULT, LIST_MOST)?;
    let collection = query.get("collection").unwrap_or_default();
    let reverse = query.get("reverse") == Some("true");
    // '0' comes right after '/', so the range contains only this collection.
    let (mut low, mut high) = (format!("{collection}/"), format!("{collection}0"));
    if let Some(cursor) = query.get("cursor") {
        let path = format!("{collection}/{cursor}");
        *if reverse { &mut low } else { &mut high } = path;
    }
    if low >= high {
        return Ok(ok(&json!({ "records": [] })));
    }
    let range = (Bound::Excluded(low), Bound::Excluded(high));
    let in_range = copy.repo.records.range::<String, _>(range);
    let page: Vec<(&String, &Cid)> = if reverse {
        in_range.take(limit).collect()
    } else {
        in_range.rev().take(limit).collect()
    };
    let records = page
        .iter()
        .map(|(path, cid)| shown(&world, &did, path, cid));
    let mut json = json!({ "records": records.collect::<Vec<_>>() });
    if let Some((path, _)) = page.last().filter(|_| page.len() == limit) {
        json["cursor"] = path.split('/').nth(1).into();
    }
    Ok(ok(&json))
}
