//! The routes. Each handler reads its parameters, calls the mirror and encodes the answer.

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
use gapless_core::ledger::UpstreamKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::response::{self, HttpError, Json, JsonResult};
use super::{App, call, firehose, guard, import, request, verify, xrpc};
use crate::config::{HOST, URL, parse_host, parse_url};
use gapless_mirror::api::{
    ApiError, ConsumerRemoved, ConsumerSelector, ConsumersAnswer, DeadPage, DeadResolved, Dids,
    GapsPage, HostsPage, NewUpstream, PurgesPage, Readiness, RepoAnswer, ReposPage, Status,
    TrackedChange, TrackedPage, UpstreamAnswer, UpstreamRemoved, VerifyAnswer,
};

type TextPath = Result<Path<String>, PathRejection>;

/// The text format of Prometheus.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) fn router(app: Arc<App>) -> Router {
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
        .route("/v1/consumers", get(consumers).delete(remove_consumer))
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

async fn no_such_route(uri: Uri) -> HttpError {
    let words = format!("the mirror has no route {}", uri.path());
    HttpError::new(StatusCode::NOT_FOUND, "NotFound", words)
}

async fn no_such_method() -> HttpError {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    HttpError::new(
        status,
        "MethodNotAllowed",
        "this route does not support the method",
    )
}

async fn health() -> Response {
    response::json(StatusCode::OK, &json!({ "alive": true }))
}

pub(crate) async fn ready(State(app): State<Arc<App>>) -> Response {
    let readiness = call(&app, |running| Ok(running.inspector.ready())).await;
    let readiness = readiness.unwrap_or_else(|error| Readiness {
        ready: false,
        reasons: vec![error.to_string()],
    });
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    response::json(status, &readiness)
}

async fn metrics(State(app): State<Arc<App>>) -> Result<Response, HttpError> {
    let text = call(&app, |running| running.metrics()).await?;
    Ok(response::plain(StatusCode::OK, METRICS, text.into_bytes()))
}

async fn status(State(app): State<Arc<App>>) -> JsonResult<Status> {
    Ok(Json(
        call(&app, |running| running.inspector.status()).await?,
    ))
}

async fn repos(State(app): State<Arc<App>>, uri: Uri) -> JsonResult<ReposPage> {
    let (after, limit) = (request::cursor(&uri)?, request::limit(&uri)?);
    Ok(Json(
        call(&app, move |running| running.inspector.repos(after, limit)).await?,
    ))
}

async fn gaps(State(app): State<Arc<App>>, uri: Uri) -> JsonResult<GapsPage> {
    let (after, limit) = (request::cursor(&uri)?, request::limit(&uri)?);
    Ok(Json(
        call(&app, move |running| running.inspector.gaps(after, limit)).await?,
    ))
}

async fn hosts(State(app): State<Arc<App>>, uri: Uri) -> JsonResult<HostsPage> {
    let (after, limit) = (request::cursor(&uri)?, request::limit(&uri)?);
    let failing = request::flag(&uri, "failing")?;
    Ok(Json(
        call(&app, move |running| {
            running.inspector.hosts(after, limit, failing)
        })
        .await?,
    ))
}

async fn repo(State(app): State<Arc<App>>, path: TextPath) -> JsonResult<RepoAnswer> {
    let did = request::path_did(path)?;
    let name = did.to_string();
    let answer = call(&app, move |running| running.inspector.repo(&did)).await?;
    match answer {
        Some(answer) => Ok(Json(answer)),
        None => Err(HttpError::from(ApiError::NotFound(format!(
            "this mirror does not know {name}; `gapless track add {name}` adds the repository"
        )))),
    }
}

async fn dead(State(app): State<Arc<App>>, uri: Uri) -> JsonResult<DeadPage> {
    let (after, limit) = (request::cursor(&uri)?, request::limit(&uri)?);
    Ok(Json(
        call(&app, move |running| running.inspector.dead(after, limit)).await?,
    ))
}

async fn purges(State(app): State<Arc<App>>, uri: Uri) -> JsonResult<PurgesPage> {
    let (after, limit) = (request::cursor(&uri)?, request::limit(&uri)?);
    Ok(Json(
        call(&app, move |running| running.inspector.purges(after, limit)).await?,
    ))
}

async fn resolve_dead(State(app): State<Arc<App>>, path: TextPath) -> JsonResult<DeadResolved> {
    let number = request::path_number(path)?;
    Ok(Json(
        call(&app, move |running| {
            running.control.resolve_dead(Some(number))
        })
        .await?,
    ))
}

async fn resolve_all_dead(State(app): State<Arc<App>>) -> JsonResult<DeadResolved> {
    Ok(Json(
        call(&app, |running| running.control.resolve_dead(None)).await?,
    ))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResyncInput {
    #[serde(default)]
    accept_rollback: bool,
}

async fn resync(State(app): State<Arc<App>>, path: TextPath, body: Body) -> JsonResult<RepoAnswer> {
    let did = request::path_did(path)?;
    let ResyncInput { accept_rollback } = request::body_or_default(body).await?;
    Ok(Json(
        call(&app, move |running| {
            running.control.resync(&did, accept_rollback)
        })
        .await?,
    ))
}

async fn verify_one(State(app): State<Arc<App>>, path: TextPath) -> JsonResult<VerifyAnswer> {
    let did = request::path_did(path)?;
    Ok(Json(
        call(&app, move |running| running.inspector.verify(&did)).await?,
    ))
}

#[derive(Serialize)]
struct UpstreamsOutput {
    upstreams: Vec<UpstreamAnswer>,
}

async fn upstreams(State(app): State<Arc<App>>) -> JsonResult<UpstreamsOutput> {
    let upstreams = call(&app, |running| running.inspector.upstreams()).await?;
    Ok(Json(UpstreamsOutput { upstreams }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddUpstreamInput {
    kind: String,
    url: String,
    #[serde(default)]
    host: Option<String>,
}

impl AddUpstreamInput {
    fn checked(self) -> Result<NewUpstream, HttpError> {
        let kind = UpstreamKind::parse(&self.kind).ok_or_else(|| {
            request::invalid("`kind` must be \"pds\", \"relay\" or \"jetstream\"")
        })?;
        let host = match self.host {
            Some(_) if kind != UpstreamKind::Pds => {
                return Err(request::invalid(
                    "`host` is allowed only for a pds: a relay or Jetstream stands for many hosts",
                ));
            }
            Some(host) => Some(
                parse_host(&host)
                    .ok_or_else(|| request::invalid(format!("`host` must be {HOST}")))?,
            ),
            None => None,
        };
        let url = checked_url(&self.url)?;
        Ok(NewUpstream { kind, url, host })
    }
}

fn checked_url(text: &str) -> Result<String, HttpError> {
    parse_url(text).ok_or_else(|| request::invalid(format!("`url` must be {URL}")))
}

async fn add_upstream(State(app): State<Arc<App>>, body: Body) -> JsonResult<UpstreamAnswer> {
    let new = request::body::<AddUpstreamInput>(body).await?.checked()?;
    Ok(Json(
        call(&app, move |running| running.control.add_upstream(new)).await?,
    ))
}

async fn remove_upstream(State(app): State<Arc<App>>, uri: Uri) -> JsonResult<UpstreamRemoved> {
    let url = request::parameter(&uri, "url").unwrap_or_default();
    let url = checked_url(&url)?;
    Ok(Json(
        call(&app, move |running| running.control.remove_upstream(&url)).await?,
    ))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfirmLossInput {
    url: String,
}

async fn confirm_loss(State(app): State<Arc<App>>, body: Body) -> JsonResult<Value> {
    let ConfirmLossInput { url } = request::body(body).await?;
    let url = checked_url(&url)?;
    let answer = json!({ "confirmed": url });
    call(&app, move |running| running.control.confirm_loss(&url)).await?;
    Ok(Json(answer))
}

async fn tracked(State(app): State<Arc<App>>, uri: Uri) -> JsonResult<TrackedPage> {
    let limit = request::limit(&uri)?;
    let after = match request::parameter(&uri, "cursor") {
        Some(text) => Some(request::did(&text)?),
        None => None,
    };
    Ok(Json(
        call(&app, move |running| {
            running.inspector.tracked(after.as_ref(), limit)
        })
        .await?,
    ))
}

async fn dids(body: Body) -> Result<Vec<Did>, HttpError> {
    let Dids { dids } = request::body(body).await?;
    if dids.is_empty() {
        return Err(request::invalid("`dids` is empty"));
    }
    dids.iter().map(|text| request::did(text)).collect()
}

async fn track(State(app): State<Arc<App>>, body: Body) -> JsonResult<TrackedChange> {
    let dids = dids(body).await?;
    Ok(Json(
        call(&app, move |running| running.control.track(&dids)).await?,
    ))
}

async fn untrack(State(app): State<Arc<App>>, body: Body) -> JsonResult<TrackedChange> {
    let dids = dids(body).await?;
    Ok(Json(
        call(&app, move |running| running.control.untrack(&dids)).await?,
    ))
}

async fn consumers(State(app): State<Arc<App>>) -> JsonResult<ConsumersAnswer> {
    Ok(Json(
        call(&app, |running| running.inspector.consumers()).await?,
    ))
}

async fn remove_consumer(State(app): State<Arc<App>>, uri: Uri) -> JsonResult<ConsumerRemoved> {
    let which = ConsumerSelector {
        name: request::parameter(&uri, "name"),
        class: request::parameter(&uri, "class"),
        id: request::number(&uri, "id")?,
        lane: request::number(&uri, "lane")?,
    };
    if which.name.is_none() && which.class.is_none() {
        return Err(request::invalid(
            "`name` must be the name of a consumer; `class`, `id` and `lane` tell consumers of one name apart",
        ));
    }
    Ok(Json(
        call(&app, move |running| running.control.remove_consumer(&which)).await?,
    ))
}
