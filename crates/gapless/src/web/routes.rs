//! The routes: each reads its question, calls the mirror, and answers.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{any, get, post};
use gapless_atp::syntax::Did;
use gapless_core::ledger::Kind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{self, Answer, Json, Refusal};
use super::{App, ask, call, firehose, guard, import, verify, xrpc};
use crate::api::{
    self, ApiError, DeadPage, DeadResolved, Dids, GapsPage, HostsPage, NewUpstream, PurgesPage,
    Readiness, RepoAnswer, ReposPage, Status, TrackedChange, TrackedPage, UpstreamAnswer,
    UpstreamRemoved, VerifyAnswer,
};
use crate::config::{HOST, URL, parse_host, parse_url};

type TextPath = Result<Path<String>, PathRejection>;

/// The text format of Prometheus.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub fn router(app: App) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/repos", get(repos))
        .route("/v1/repos/{did}", get(repo))
        .route("/v1/repos/{did}/resync", post(resync))
        .route("/v1/repos/{did}/verify", post(verify_one))
        .route("/v1/verify", post(verify::all))
        .route("/v1/gaps", get(gaps))
        .route("/v1/hosts", get(hosts))
        .route(
            "/v1/upstreams",
            get(upstreams).post(add_upstream).delete(remove_upstream),
        )
        .route("/v1/upstreams/confirm-loss", post(confirm_loss))
        .route("/v1/tracked", get(tracked).post(track).delete(untrack))
        .route("/v1/purges", get(purges))
        .route("/v1/dead", get(dead))
        .route("/v1/dead/resolve", post(resolve_all_dead))
        .route("/v1/dead/{number}/resolve", post(resolve_dead))
        .route("/v1/import", post(import::import))
        .route("/xrpc/{method}", any(xrpc::answer))
        .route(
            "/xrpc/com.atproto.sync.subscribeRepos",
            get(firehose::subscribe),
        )
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn_with_state(Arc::clone(&app), guard::guard))
        .with_state(app)
}

async fn no_such_route(uri: Uri) -> Refusal {
    let words = format!("there is nothing at {}", uri.path());
    Refusal::new(StatusCode::NOT_FOUND, "NotFound", words)
}

async fn no_such_method() -> Refusal {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    Refusal::new(status, "MethodNotAllowed", "this path has no such method")
}

async fn health() -> Response {
    answer::json(StatusCode::OK, &json!({ "alive": true }))
}

async fn ready(State(app): State<App>) -> Response {
    let readiness = call(&app, |mirror| Ok(mirror.ready())).await;
    let readiness = readiness.unwrap_or_else(|error| Readiness {
        ready: false,
        reasons: vec![error.to_string()],
    });
    let status = match readiness.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    answer::json(status, &readiness)
}

async fn metrics(State(app): State<App>) -> Result<Response, Refusal> {
    let text = call(&app, |mirror| mirror.metrics()).await?;
    Ok(answer::plain(StatusCode::OK, METRICS, text.into_bytes()))
}

async fn status(State(app): State<App>) -> Answer<Status> {
    Ok(Json(call(&app, |mirror| mirror.status()).await?))
}

async fn repos(State(app): State<App>, uri: Uri) -> Answer<ReposPage> {
    let (after, limit) = (ask::cursor(&uri)?, ask::limit(&uri)?);
    Ok(Json(
        call(&app, move |mirror| mirror.repos(after, limit)).await?,
    ))
}

async fn gaps(State(app): State<App>, uri: Uri) -> Answer<GapsPage> {
    let (after, limit) = (ask::cursor(&uri)?, ask::limit(&uri)?);
    Ok(Json(
        call(&app, move |mirror| mirror.gaps(after, limit)).await?,
    ))
}

async fn hosts(State(app): State<App>, uri: Uri) -> Answer<HostsPage> {
    let (after, limit) = (ask::cursor(&uri)?, ask::limit(&uri)?);
    let failing = ask::flag(&uri, "failing")?;
    Ok(Json(
        call(&app, move |mirror| mirror.hosts(after, limit, failing)).await?,
    ))
}

async fn repo(State(app): State<App>, path: TextPath) -> Answer<RepoAnswer> {
    let did = ask::path_did(path)?;
    let name = did.to_string();
    let answer = call(&app, move |mirror| mirror.repo(&did)).await?;
    match answer {
        Some(answer) => Ok(Json(answer)),
        None => Err(Refusal::from(ApiError::NotFound(format!(
            "{name} is not known here; `gapless track add {name}` makes it be followed"
        )))),
    }
}

async fn dead(State(app): State<App>, uri: Uri) -> Answer<DeadPage> {
    let (after, limit) = (ask::cursor(&uri)?, ask::limit(&uri)?);
    Ok(Json(
        call(&app, move |mirror| mirror.dead(after, limit)).await?,
    ))
}

async fn purges(State(app): State<App>, uri: Uri) -> Answer<PurgesPage> {
    let (after, limit) = (ask::cursor(&uri)?, ask::limit(&uri)?);
    Ok(Json(
        call(&app, move |mirror| mirror.purges(after, limit)).await?,
    ))
}

async fn resolve_dead(State(app): State<App>, path: TextPath) -> Answer<DeadResolved> {
    let number = ask::path_number(path)?;
    Ok(Json(
        call(&app, move |mirror| mirror.resolve_dead(Some(number))).await?,
    ))
}

async fn resolve_all_dead(State(app): State<App>) -> Answer<DeadResolved> {
    Ok(Json(call(&app, |mirror| mirror.resolve_dead(None)).await?))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Resync {
    #[serde(default)]
    accept_rollback: bool,
}

async fn resync(State(app): State<App>, path: TextPath, body: Body) -> Answer<RepoAnswer> {
    let did = ask::path_did(path)?;
    let Resync { accept_rollback } = ask::body_or_default(body).await?;
    Ok(Json(
        call(&app, move |mirror| mirror.resync(&did, accept_rollback)).await?,
    ))
}

async fn verify_one(State(app): State<App>, path: TextPath) -> Answer<VerifyAnswer> {
    let did = ask::path_did(path)?;
    Ok(Json(call(&app, move |mirror| mirror.verify(&did)).await?))
}

#[derive(Serialize)]
struct Upstreams {
    upstreams: Vec<UpstreamAnswer>,
}

async fn upstreams(State(app): State<App>) -> Answer<Upstreams> {
    let upstreams = call(&app, |mirror| mirror.upstreams()).await?;
    Ok(Json(Upstreams { upstreams }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Addition {
    kind: String,
    url: String,
    #[serde(default)]
    host: Option<String>,
}

impl Addition {
    fn checked(self) -> Result<NewUpstream, Refusal> {
        let kind = api::kind_of(&self.kind)
            .ok_or_else(|| ask::wrong("`kind` must be \"pds\", \"relay\" or \"jetstream\""))?;
        let host = match self.host {
            Some(_) if kind != Kind::Pds => {
                return Err(ask::wrong("`host` must be left out: it stands for many"));
            }
            Some(host) => Some(
                parse_host(&host).ok_or_else(|| ask::wrong(format!("`host` must be {HOST}")))?,
            ),
            None => None,
        };
        let url = checked_url(&self.url)?;
        Ok(NewUpstream { kind, url, host })
    }
}

fn checked_url(text: &str) -> Result<String, Refusal> {
    parse_url(text).ok_or_else(|| ask::wrong(format!("`url` must be {URL}")))
}

async fn add_upstream(State(app): State<App>, body: Body) -> Answer<UpstreamAnswer> {
    let new = ask::body::<Addition>(body).await?.checked()?;
    Ok(Json(
        call(&app, move |mirror| mirror.add_upstream(new)).await?,
    ))
}

async fn remove_upstream(State(app): State<App>, uri: Uri) -> Answer<UpstreamRemoved> {
    let url = ask::parameter(&uri, "url").unwrap_or_default();
    let url = checked_url(&url)?;
    Ok(Json(
        call(&app, move |mirror| mirror.remove_upstream(&url)).await?,
    ))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfUpstream {
    url: String,
}

async fn confirm_loss(State(app): State<App>, body: Body) -> Answer<Value> {
    let OfUpstream { url } = ask::body(body).await?;
    let url = checked_url(&url)?;
    let answer = json!({ "confirmed": url });
    call(&app, move |mirror| mirror.confirm_loss(&url)).await?;
    Ok(Json(answer))
}

async fn tracked(State(app): State<App>, uri: Uri) -> Answer<TrackedPage> {
    let limit = ask::limit(&uri)?;
    let after = match ask::parameter(&uri, "cursor") {
        Some(text) => Some(ask::did(&text)?),
        None => None,
    };
    Ok(Json(
        call(&app, move |mirror| mirror.tracked(after.as_ref(), limit)).await?,
    ))
}

async fn dids(body: Body) -> Result<Vec<Did>, Refusal> {
    let Dids { dids } = ask::body(body).await?;
    if dids.is_empty() {
        return Err(ask::wrong("`dids` is empty"));
    }
    dids.iter().map(|text| ask::did(text)).collect()
}

async fn track(State(app): State<App>, body: Body) -> Answer<TrackedChange> {
    let dids = dids(body).await?;
    Ok(Json(call(&app, move |mirror| mirror.track(&dids)).await?))
}

async fn untrack(State(app): State<App>, body: Body) -> Answer<TrackedChange> {
    let dids = dids(body).await?;
    Ok(Json(call(&app, move |mirror| mirror.untrack(&dids)).await?))
}
