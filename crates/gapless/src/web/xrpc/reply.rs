//! Answers of `/xrpc`: JSON or CAR, readable by pages anywhere, each with the rev that
//! it is about and what it stands on.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, RETRY_AFTER,
};
use axum::http::{HeaderName, HeaderValue, Response as HttpResponse, StatusCode};
use axum::response::Response;
use gapless_core::ledger::Head;
use serde::Serialize;

use super::super::response;
use crate::serve::Refusal;
use crate::serve::lookup::Exact;
use gapless_mirror::api::ErrorBody;

const CAR: &str = "application/vnd.ipld.car";
/// The rev of the repository that an answer is about.
const REV: HeaderName = HeaderName::from_static("atproto-repo-rev");
/// What it stands on.
const EVIDENCE: HeaderName = HeaderName::from_static("gapless-evidence");
const EXPOSED: HeaderValue = HeaderValue::from_static("atproto-repo-rev, gapless-evidence");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");
const ANY: HeaderValue = HeaderValue::from_static("*");

/// Lets pages anywhere read it.
pub fn open(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    response
}

/// What a browser asks before it asks.
pub fn options() -> Response {
    let mut response = HttpResponse::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ALLOW, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, ANY);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    open(response)
}

pub fn json<T: Serialize>(value: &T) -> Response {
    response::json(StatusCode::OK, value)
}

/// JSON about one state of a repository.
pub fn json_of<T: Serialize>(exact: &Exact, value: &T) -> Response {
    stated(json(value), &exact.head, &exact.evidence)
}

/// A CAR about one state of a repository.
pub fn car(head: &Head, evidence: &str, body: Body) -> Response {
    stated(
        response::with_body(StatusCode::OK, CAR, body),
        head,
        evidence,
    )
}

fn stated(mut response: Response, head: &Head, evidence: &str) -> Response {
    let headers = response.headers_mut();
    // Both are letters of ours, which every header takes.
    if let Ok(rev) = HeaderValue::from_str(&head.rev.to_string()) {
        headers.insert(REV, rev);
    }
    if let Ok(evidence) = HeaderValue::from_str(evidence) {
        headers.insert(EVIDENCE, evidence);
    }
    response
}

pub fn refused(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.status());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = error(status, refusal.name(), &refusal.to_string());
    if let Some(after) = refusal.retry_after() {
        let seconds = HeaderValue::from(after.as_secs().max(1));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

/// A method that there is not.
pub fn unknown(name: &str) -> Response {
    let shown: String = name.chars().take(100).collect();
    let words = format!("there is no method {shown} here; docs/api.md names those that there are");
    error(StatusCode::NOT_IMPLEMENTED, "MethodNotImplemented", &words)
}

fn error(status: StatusCode, name: &str, message: &str) -> Response {
    let body = ErrorBody {
        error: name.to_owned(),
        message: message.to_owned(),
    };
    open(response::json(status, &body))
}
