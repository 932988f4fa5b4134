//! The HTTP interface of the relay.

use axum::body::Body;
use axum::http::{Request, header};
use gapless_atp::syntax::Did;
use serde_json::{Value as Json, json};

use super::{Known, Relay};
use crate::faults::{Fault, Place};
use crate::http::{Answer, Query, Refusal, ok, settle, text_answer};
use crate::net::{Net, subscribe_repos};
use crate::pds::limit_of;
use crate::stream::Manners;
use crate::world::World;

pub(crate) fn answer(net: &Net, request: Request<Body>) -> Answer {
    let path = request.uri().path();
    let Some(method) = path.strip_prefix("/xrpc/") else {
        return text_answer(200, "This is the relay of a Gapless test network.\n");
    };
    let query = Query::of(&request);
    let world = net.world();
    let Some(relay) = &world.relay else {
        return text_answer(404, "no relay");
    };
    let given = match method {
        "com.atproto.sync.subscribeRepos" => {
            let feed = relay.feed.clone();
            drop(world);
            return subscribe_repos(net, Place::Relay, feed, Manners::Relay, request);
        }
        "com.atproto.sync.getRepo" => redirect(&world, relay, &request, &query),
        "com.atproto.sync.getLatestCommit" => latest_commit(relay, &query),
        "com.atproto.sync.getRepoStatus" => repo_status(relay, &query),
        "com.atproto.sync.listRepos" => list_repos(relay, &query),
        "com.atproto.sync.listReposByCollection" => list_by_collection(net, &world, relay, &query),
        "com.atproto.sync.listHosts" => list_hosts(net, &world, relay, &query),
        "com.atproto.sync.getHostStatus" => host_status(&world, relay, &query),
        "com.atproto.sync.requestCrawl" => Ok(ok(&json!({}))),
        "_health" => Ok(ok(&json!({ "status": "ok" }))),
        _ => Err(Refusal::new(
            404,
            "MethodNotImplemented",
            "Method Not Implemented",
        )),
    };
    settle(given)
}

/// The requested account, and what the relay knows about it.
fn known<'r>(relay: &'r Relay, query: &Query) -> Result<(Did, &'r Known), Refusal> {
    let did = query.get("did").and_then(|did| Did::parse(did).ok());
    let did = did.ok_or_else(|| Refusal::invalid("invalid or missing did"))?;
    match relay.known.get(&did) {
        Some(known) => Ok((did, known)),
        None => Err(Refusal::new(404, "RepoNotFound", "repo not found")),
    }
}

/// Redirects to the account's host, because relays hold no repositories.
fn redirect(
    world: &World,
    relay: &Relay,
    request: &Request<Body>,
    query: &Query,
) -> Result<Answer, Refusal> {
    let (_, known) = known(relay, query)?;
    let path = request.uri().path_and_query();
    let path = path.map_or("", |path| path.as_str());
    let there = format!("{}{path}", world.hosts[known.host].url);
    let mut answer = text_answer(302, "");
    if let Ok(there) = there.parse() {
        answer.headers_mut().insert(header::LOCATION, there);
    }
    Ok(answer)
}

fn latest_commit(relay: &Relay, query: &Query) -> Result<Answer, Refusal> {
    let (_, known) = known(relay, query)?;
    if !known.active {
        return Err(Refusal::new(403, "RepoInactive", "repo is not active"));
    }
    match &known.head {
        Some(head) => Ok(ok(&json!({ "cid": head.to_string(), "rev": known.rev }))),
        None => Err(Refusal::new(
            404,
            "RepoNotSynchronized",
            "nothing heard yet",
        )),
    }
}

fn repo_status(relay: &Relay, query: &Query) -> Result<Answer, Refusal> {
    let (did, known) = known(relay, query)?;
    let mut json = json!({ "did": did.as_str(), "active": known.active });
    if let Some(status) = &known.status {
        json["status"] = status.as_str().into();
    }
    if known.active {
        json["rev"] = known.rev.as_str().into();
    }
    Ok(ok(&json))
}

fn cursor_of(query: &Query) -> Result<usize, Refusal> {
    match query.get("cursor").map(str::parse) {
        None => Ok(0),
        Some(cursor) => cursor.map_err(|_| Refusal::invalid("invalid cursor")),
    }
}

/// One page: the items from the cursor on, and the cursor of the next page.
fn page(items: &[Json], from: usize, limit: usize, name: &str) -> Answer {
    let to = from.saturating_add(limit).min(items.len());
    let mut json = json!({ name: items[from.min(to)..to] });
    if to < items.len() {
        json["cursor"] = to.to_string().into();
    }
    ok(&json)
}

/// Lists the active accounts of which the relay has seen at least one commit.
fn list_repos(relay: &Relay, query: &Query) -> Result<Answer, Refusal> {
    let (from, limit) = (cursor_of(query)?, limit_of(query, 500, 1000)?);
    // The cursor counts all known accounts, listed or not, so that pages are stable.
    let mut repos = Vec::new();
    let mut next = from;
    for did in relay.order.iter().skip(from) {
        if repos.len() == limit {
            break;
        }
        next += 1;
        let known = relay.known.get(did).filter(|known| known.active);
        if let Some((head, known)) = known.and_then(|known| Some((known.head?, known))) {
            repos.push(json!({
                "did": did.as_str(),
                "head": head.to_string(),
                "rev": known.rev,
                "active": true,
            }));
        }
    }
    let mut json = json!({ "repos": repos });
    if next < relay.order.len() {
        json["cursor"] = next.to_string().into();
    }
    Ok(ok(&json))
}

/// Invalid host names, as a relay that checks nothing would list them.
const JUNK_HOSTS: [&str; 7] = [
    "",
    "no host at all",
    "somebody@evil.example",
    "evil.example/path",
    "evil.example?query",
    "https://evil.example",
    ":99999",
];
/// DIDs without an account, and invalid ones.
const JUNK_ACCOUNTS: [&str; 3] = [
    "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa",
    "did:key:zNobody",
    "not a DID",
];

fn fires(net: &Net, wanted: fn(&Fault) -> bool) -> bool {
    let taken = net
        .faults
        .take(Place::Relay, None, |fault| wanted(fault).then_some(()));
    taken.is_some()
}

fn list_by_collection(
    net: &Net,
    world: &World,
    relay: &Relay,
    query: &Query,
) -> Result<Answer, Refusal> {
    let (from, limit) = (cursor_of(query)?, limit_of(query, 500, 2000)?);
    let collection = query.get("collection");
    let collection = collection.ok_or_else(|| Refusal::invalid("missing collection"))?;
    let prefix = format!("{collection}/");
    let has = |did: &&Did| {
        let records = world.hosted(did).map(|copy| &copy.repo.records);
        let first = records.and_then(|records| records.range(prefix.clone()..).next());
        first.is_some_and(|(path, _)| path.starts_with(&prefix))
    };
    let stale = fires(net, |fault| matches!(fault, Fault::RelayStale {}));
    let junk = fires(net, |fault| matches!(fault, Fault::RelayJunk {}));
    let named = relay.order.iter().filter(|did| stale || has(did));
    let junk = JUNK_ACCOUNTS
        .into_iter()
        .take(if junk { JUNK_ACCOUNTS.len() } else { 0 });
    let repos: Vec<Json> = named
        .map(Did::as_str)
        .chain(junk)
        .map(|did| json!({ "did": did }))
        .collect();
    Ok(page(&repos, from, limit, "repos"))
}

fn host_json(world: &World, relay: &Relay, host: usize, seq: u64) -> Json {
    let accounts = relay.known.values().filter(|known| known.host == host);
    json!({
        "hostname": world.hosts[host].hostname,
        "seq": seq,
        "accountCount": accounts.count(),
        "status": "active",
    })
}

/// Lists the hosts from which the relay has read at least one event.
fn list_hosts(net: &Net, world: &World, relay: &Relay, query: &Query) -> Result<Answer, Refusal> {
    let limit = limit_of(query, 200, 1000)?.min(net.config.list_page);
    let from = cursor_of(query)?;
    let hosts = relay.host_seqs.iter();
    let hosts = hosts.map(|(host, seq)| host_json(world, relay, *host, *seq));
    let mut hosts: Vec<Json> = hosts.collect();
    if fires(net, |fault| matches!(fault, Fault::RelayJunk {})) {
        let junk = JUNK_HOSTS
            .into_iter()
            .map(|name| json!({ "hostname": name }));
        hosts.extend(junk.chain([json!({ "hostname": "x".repeat(300) }), json!(7)]));
    }
    Ok(page(&hosts, from, limit, "hosts"))
}

fn host_status(world: &World, relay: &Relay, query: &Query) -> Result<Answer, Refusal> {
    let wanted = query.get("hostname").unwrap_or_default();
    let found = relay
        .host_seqs
        .iter()
        .find(|(host, _)| world.hosts[**host].hostname == wanted);
    match found {
        Some((host, seq)) => Ok(ok(&host_json(world, relay, *host, *seq))),
        None => Err(Refusal::new(400, "HostNotFound", "host not found")),
    }
}
