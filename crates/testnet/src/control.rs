//! The HTTP interface that drives the network and reads the truth.
//!
//! `POST /_control/NAME` with a JSON body performs an action; each fault is an action
//! too. `GET /_control/…` reports the state of the network, `GET /_truth/…` the truth.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request};
use gapless_atp::crypto::Curve;
use gapless_atp::syntax::{Did, Tid};
use serde_json::{Value as Json, json};

use crate::faults::{CATALOGUE, MOST_RECORDS, Spec};
use crate::http::{Answer, Query, Refusal, did_in_path, ok, read_json, settle};
use crate::testnet::Handle;
use crate::truth;
use crate::world::{NewAccount, Write, encode_record};

const MOST_STIRS: u64 = 1_000_000;

pub(crate) async fn answer(handle: Arc<Handle>, request: Request<Body>) -> Answer {
    let path = request.uri().path().to_owned();
    if request.method() == Method::GET {
        return tell(&handle, &path, &Query::of(&request));
    }
    let Some(name) = path.strip_prefix("/_control/") else {
        return Refusal::new(404, "NotFound", "send POST requests to /_control/NAME").answer();
    };
    let name = name.to_owned();
    let body = match read_json(request).await {
        Ok(body) => body,
        Err(refused) => return refused.answer(),
    };
    // Mining keys or growing a repository takes long, so it runs on a thread of its own.
    match tokio::task::spawn_blocking(move || act(&handle, &name, &body)).await {
        Ok(given) => settle(given),
        Err(_) => Refusal::new(500, "InternalServerError", "the action panicked").answer(),
    }
}

fn tell(handle: &Handle, path: &str, query: &Query) -> Answer {
    let net = &handle.net;
    let not_found = || Refusal::new(404, "NotFound", "no such page, account or rev").answer();
    if let Some(did) = path.strip_prefix("/_truth/repo/") {
        let json = did_in_path(did).and_then(|did| truth::repo_json(&net.world(), &did));
        return json.map_or_else(not_found, |json| ok(&json));
    }
    if let Some(did) = path.strip_prefix("/_truth/records/") {
        let rev = match query.get("rev").map(Tid::parse) {
            None => None,
            Some(Ok(rev)) => Some(rev),
            Some(Err(error)) => return Refusal::invalid(error).answer(),
        };
        let json = did_in_path(did).and_then(|did| truth::records_json(&net.world(), &did, rev));
        return json.map_or_else(not_found, |json| ok(&json));
    }
    match path {
        "/_truth/dids" => {
            let world = net.world();
            let dids: Vec<&str> = world.dids.iter().map(Did::as_str).collect();
            ok(&json!({ "dids": dids, "history": world.history.is_some() }))
        }
        "/_control/faults" => ok(&net.faults.report()),
        "/_control/catalogue" => {
            let names = CATALOGUE.iter();
            let names = names.map(|(name, effect)| (name.to_string(), Json::from(*effect)));
            ok(&Json::Object(names.collect()))
        }
        "/_control/urls" => ok(&json!(net.urls)),
        "/_control/status" => {
            let world = net.world();
            ok(&json!({
                "repos": world.dids.len(),
                "commits": world.commits,
                "events": world.events,
                "commits_per_second": handle.rate(),
            }))
        }
        _ => not_found(),
    }
}

fn act(handle: &Handle, name: &str, body: &Json) -> Result<Answer, Refusal> {
    let given = match name {
        "fault" => return set_fault(handle, body),
        "clear" => {
            let cleared = match (body["id"].as_u64(), body["fault"].as_str()) {
                (Some(id), _) => handle.clear_fault(id),
                (None, fault) => handle.clear_faults(fault),
            };
            json!({ "cleared": cleared })
        }
        "create-account" => create_account(handle, body)?,
        "write" => write(handle, body)?,
        "stir" => {
            let count = body["count"].as_u64().unwrap_or(1).min(MOST_STIRS);
            json!({ "commits": handle.stir(count) })
        }
        "rate" => {
            let rate = body["commits_per_second"].as_f64();
            let rate =
                rate.ok_or_else(|| Refusal::invalid("commits_per_second must be a number"))?;
            handle.set_rate(rate).map_err(Refusal::invalid)?;
            json!({})
        }
        "tombstone" => {
            let did = did_of(body)?;
            handle
                .net
                .world()
                .tombstone(&did)
                .map_err(Refusal::invalid)?;
            json!({})
        }
        _ if CATALOGUE.iter().any(|(known, _)| *known == name) => {
            let mut body = body.clone();
            if let Json::Object(fields) = &mut body {
                fields.insert("fault".to_owned(), name.into());
            }
            return set_fault(handle, &body);
        }
        _ => return Err(Refusal::new(404, "NotFound", "no such action")),
    };
    Ok(ok(&given))
}

fn set_fault(handle: &Handle, body: &Json) -> Result<Answer, Refusal> {
    let spec = Spec::from_json(body).map_err(Refusal::invalid)?;
    let set = handle.fault(spec).map_err(Refusal::invalid)?;
    Ok(ok(&json!({ "id": set.id, "fired": set.fired })))
}

fn did_of(body: &Json) -> Result<Did, Refusal> {
    let did = body["did"].as_str().unwrap_or_default();
    Did::parse(did).map_err(Refusal::invalid)
}

fn create_account(handle: &Handle, body: &Json) -> Result<Json, Refusal> {
    let curve = match body["curve"].as_str() {
        None | Some("k256") => Curve::K256,
        Some("p256") => Curve::P256,
        Some(_) => return Err(Refusal::invalid("curve must be k256 or p256")),
    };
    let records = body["records"].as_u64().unwrap_or(0);
    if records > MOST_RECORDS {
        let message = format!("records must be 0 to {MOST_RECORDS}, not {records}");
        return Err(Refusal::invalid(message));
    }
    let new = NewAccount {
        host: body["host"].as_u64().unwrap_or(0) as usize,
        curve,
        web: body["web"].as_bool().unwrap_or(false),
        records: records as usize,
    };
    let did = handle
        .net
        .world()
        .create_account(new)
        .map_err(Refusal::invalid)?;
    Ok(json!({ "did": did.as_str() }))
}

fn write(handle: &Handle, body: &Json) -> Result<Json, Refusal> {
    let did = did_of(body)?;
    let writes = body["writes"].as_array().map_or(&[][..], Vec::as_slice);
    let writes: Result<Vec<Write>, Refusal> = writes.iter().map(read_write).collect();
    let made = handle
        .net
        .world()
        .write(&did, &writes?)
        .map_err(Refusal::invalid)?;
    Ok(json!({
        "rev": made.rev.to_string(),
        "commit": made.commit.to_string(),
        "data": made.data.to_string(),
    }))
}

fn read_write(json: &Json) -> Result<Write, Refusal> {
    let path = json["path"].as_str().unwrap_or_default().to_owned();
    let record = || {
        encode_record(&json["record"])
            .ok_or_else(|| Refusal::invalid("record breaks the data model"))
    };
    match json["action"].as_str() {
        Some("create") => Ok(Write::Create {
            path,
            record: record()?,
        }),
        Some("update") => Ok(Write::Update {
            path,
            record: record()?,
        }),
        Some("delete") => Ok(Write::Delete { path }),
        _ => Err(Refusal::invalid("action must be create, update or delete")),
    }
}
