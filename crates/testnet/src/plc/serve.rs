//! The HTTP interface of the directory.

use axum::body::Body;
use axum::http::Request;
use gapless_atp::syntax::Did;
use serde_json::{Value as Json, json};

use super::{Logged, document};
use crate::faults::{Fault, Place};
use crate::http::{Answer, Query, did_in_path, json_answer, ok, with_type};
use crate::net::Net;

const EXPORT_MOST: usize = 1000;
const EXPORT_DEFAULT: usize = 10;

/// The route and the DID of a path: `/{did}`, `/{did}/log/audit`, `/export`.
pub(crate) fn route(path: &str) -> (&str, Option<Did>) {
    let path = path.trim_start_matches('/');
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let route = match (first, rest) {
        ("export", "") => return ("export", None),
        ("_health" | "", "") => return ("health", None),
        (_, "") => "document",
        (_, "data") => "data",
        (_, "log") => "log",
        (_, "log/audit") => "audit",
        (_, "log/last") => "last",
        _ => "unknown",
    };
    (route, did_in_path(first))
}

pub(crate) fn answer(net: &Net, request: &Request<Body>) -> Answer {
    let (route, did) = route(request.uri().path());
    match (route, did) {
        ("health", _) => ok(&json!({ "version": "testnet" })),
        ("export", _) => export(net, &Query::of(request)),
        ("unknown", _) => json_answer(404, &json!({ "message": "Not Found" })),
        (_, None) => {
            let said = request.uri().path().trim_start_matches('/');
            let message = format!("Invalid DID: {said}");
            json_answer(400, &json!({ "message": message }))
        }
        (route, Some(did)) => about(net, route, &did),
    }
}

fn about(net: &Net, route: &str, did: &Did) -> Answer {
    let world = net.world();
    let all = world.plc.operations(did, u64::MAX);
    // A stale answer counts as fired only if the directory has newer operations.
    let newest = all.last().map_or(0, |logged| logged.seq);
    let stale = net.faults.take(Place::Plc, Some(did), |fault| match fault {
        Fault::PlcStale { seq } => seq.filter(|seq| *seq < newest),
        _ => None,
    });
    let known = match stale {
        Some(seq) => world.plc.operations(did, seq),
        None => all,
    };
    let Some(last) = known.last() else {
        let message = format!("DID not registered: {did}");
        return json_answer(404, &json!({ "message": message }));
    };
    let operations = || known.iter().map(|logged| logged.operation.json.clone());
    match route {
        "log" => return ok(&operations().collect()),
        "audit" => return ok(&known.iter().map(|logged| logged.to_json()).collect()),
        "last" => return ok(&last.operation.json),
        _ => (),
    }
    let Some(statement) = &last.operation.statement else {
        let message = format!("DID not available: {did}");
        return json_answer(410, &json!({ "message": message }));
    };
    match route {
        "data" => ok(&json!({
            "did": did.as_str(),
            "rotationKeys": [statement.rotation_key],
            "verificationMethods": { "atproto": statement.signing_key },
            "alsoKnownAs": [format!("at://{}", statement.handle)],
            "services": {
                "atproto_pds": {
                    "type": "AtprotoPersonalDataServer",
                    "endpoint": statement.endpoint,
                },
            },
        })),
        _ => {
            let legacy = net.config.legacy_documents;
            let document = document(did.as_str(), statement, legacy);
            with_type(200, "application/did+ld+json", document.to_string())
        }
    }
}

/// The export, with one line of JSON per operation. If `after` is a number, the lines are
/// numbered; if it is a time or absent, they have the older form.
fn export(net: &Net, query: &Query) -> Answer {
    let count = match query.get("count").map(str::parse::<usize>) {
        None => EXPORT_DEFAULT,
        Some(Ok(count)) if (1..=EXPORT_MOST).contains(&count) => count,
        Some(_) => return json_answer(400, &json!({ "message": "Invalid count parameter" })),
    };
    let world = net.world();
    let after = query.get("after").unwrap_or_default();
    let by_number = after.parse::<u64>().ok();
    let mut page: Vec<&Logged> = match by_number {
        Some(seq) => world.plc.export(seq, count).iter().collect(),
        None => world.plc.export_after_time(after, count),
    };
    hide_unknown(net, &mut page);
    let lines = page.into_iter().map(|logged| match by_number {
        Some(_) => numbered(logged).to_string(),
        None => logged.to_json().to_string(),
    });
    let lines: Vec<String> = lines.collect();
    with_type(200, "application/jsonlines", lines.join("\n"))
}

/// Removes from a page the operations that a stale directory does not know yet. A fault
/// for all accounts fires once per page, a fault for one account once per operation.
fn hide_unknown(net: &Net, page: &mut Vec<&Logged>) {
    let stale = |did: Option<&Did>, newest: u64| {
        net.faults.take(Place::Plc, did, |fault| match fault {
            Fault::PlcStale { seq } => seq.filter(|seq| *seq < newest),
            _ => None,
        })
    };
    let newest = page.last().map_or(0, |logged| logged.seq);
    if let Some(seq) = stale(None, newest) {
        page.retain(|logged| logged.seq <= seq);
    }
    page.retain(|logged| stale(Some(&logged.did), logged.seq).is_none());
}

fn numbered(logged: &Logged) -> Json {
    let mut json = logged.to_json();
    json["seq"] = logged.seq.into();
    json["type"] = "sequenced_op".into();
    json
}
