//! A PDS, which serves the repositories of its accounts and announces changes.
//!
//! Responses follow the reference PDS: errors have the names of the lexicon and status
//! 400, inactive accounts are listed with their state, and deleted accounts are unknown.

pub(crate) mod car;
mod repo;
mod sync;

pub(crate) use sync::limit_of;

use axum::body::Body;
use axum::http::{Request, header};
use serde_json::json;

use crate::faults::Place;
use crate::http::{Answer, Query, Refusal, json_answer, ok, settle, text_answer};
use crate::net::{Net, subscribe_repos};
use crate::plc::document;
use crate::stream::Manners;

pub(crate) fn answer(net: &Net, host: usize, request: Request<Body>) -> Answer {
    let path = request.uri().path();
    let Some(method) = path.strip_prefix("/xrpc/") else {
        return plain(net, &request);
    };
    if method == "com.atproto.sync.subscribeRepos" {
        let feed = net.world().hosts[host].feed.clone();
        return subscribe_repos(net, Place::Pds(host), feed, Manners::Pds, request);
    }
    let query = Query::of(&request);
    settle(match method {
        "com.atproto.sync.getRepo" => sync::get_repo(net, host, &query),
        "com.atproto.sync.getRecord" => sync::get_record(net, host, &query),
        "com.atproto.sync.getBlocks" => sync::get_blocks(net, host, &query),
        "com.atproto.sync.getLatestCommit" => sync::get_latest_commit(net, host, &query),
        "com.atproto.sync.getRepoStatus" => sync::get_repo_status(net, host, &query),
        "com.atproto.sync.listRepos" => sync::list_repos(net, host, &query),
        "com.atproto.repo.describeRepo" => repo::describe_repo(net, host, &query),
        "com.atproto.repo.getRecord" => repo::get_record(net, host, &query),
        "com.atproto.repo.listRecords" => repo::list_records(net, host, &query),
        "com.atproto.identity.resolveHandle" => resolve_handle(net, &query),
        "com.atproto.server.describeServer" => Ok(describe_server(net, host)),
        "_health" => Ok(ok(&json!({ "version": "testnet" }))),
        _ => Err(Refusal::new(
            501,
            "MethodNotImplemented",
            "Method Not Implemented",
        )),
    })
}

fn describe_server(net: &Net, host: usize) -> Answer {
    let hostname = net.world().hosts[host].hostname.replace(':', "%3A");
    ok(&json!({
        "did": format!("did:web:{hostname}"),
        "availableUserDomains": [format!(".pds{host}.test")],
        "inviteCodeRequired": false,
    }))
}

fn resolve_handle(net: &Net, query: &Query) -> Result<Answer, Refusal> {
    let world = net.world();
    let handle = query.get("handle").unwrap_or_default();
    match world.find(handle).filter(|_| !handle.starts_with("did:")) {
        Some(account) => Ok(ok(&json!({ "did": account.did.as_str() }))),
        None => Err(Refusal::invalid("Unable to resolve handle")),
    }
}

/// Answers pages outside XRPC, depending on the host name in the request.
fn plain(net: &Net, request: &Request<Body>) -> Answer {
    let asked = request.headers().get(header::HOST);
    let asked = asked
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let world = net.world();
    match request.uri().path() {
        "/" => text_answer(200, "This is a PDS of a Gapless test network.\n"),
        "/.well-known/did.json" => {
            let did = format!("did:web:{}", asked.replace(':', "%3A"));
            match world.find(&did) {
                Some(account) => {
                    let legacy = net.config.legacy_documents;
                    ok(&document(&did, &world.statement(account), legacy))
                }
                None => json_answer(404, &json!({ "message": "no such DID here" })),
            }
        }
        "/.well-known/atproto-did" => match world.find(asked) {
            Some(account) => text_answer(200, account.did.to_string()),
            None => text_answer(404, "User not found"),
        },
        _ => text_answer(404, "Cannot GET"),
    }
}
