//! Responses of `/xrpc`: JSON or CAR, readable by web pages of any origin. A response about
//! one state has the rev of that state and its evidence in headers.

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
use crate::serve::ServeError;
use crate::serve::lookup::ServedState;
use gapless_mirror::api::ErrorBody;

const CAR: &str = "application/vnd.ipld.car";
/// The rev of the state that a response is about.
const REV: HeaderName = HeaderName::from_static("atproto-repo-rev");
/// How well that state is proven.
const EVIDENCE: HeaderName = HeaderName::from_static("gapless-evidence");
const EXPOSED: HeaderValue = HeaderValue::from_static("atproto-repo-rev, gapless-evidence");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");
const ANY: HeaderValue = HeaderValue::from_static("*");

/// Lets web pages of any origin read the response.
pub(crate) fn allow_any_origin(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    response
}

/// The response to a CORS preflight request.
pub(crate) fn options() -> Response {
    let mut response = HttpResponse::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ALLOW, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, ANY);
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
    allow_any_origin(response)
}

pub(crate) fn json<T: Serialize>(value: &T) -> Response {
    response::json(StatusCode::OK, value)
}

/// A JSON response about one state of a repository.
pub(crate) fn json_of<T: Serialize>(state: &ServedState, value: &T) -> Response {
    with_state(json(value), &state.head, &state.evidence)
}

/// A CAR response about one state of a repository.
pub(crate) fn car(head: &Head, evidence: &str, body: Body) -> Response {
    with_state(
        response::with_body(StatusCode::OK, CAR, body),
        head,
        evidence,
    )
}

fn with_state(mut response: Response, head: &Head, evidence: &str) -> Response {
    let headers = response.headers_mut();
    // Both are printable ASCII.
    if let Ok(rev) = HeaderValue::from_str(&head.rev.to_string()) {
        headers.insert(REV, rev);
    }
    if let Ok(evidence) = HeaderValue::from_str(evidence) {
        headers.insert(EVIDENCE, evidence);
    }
    response
}

pub(crate) fn error_response(error: &ServeError) -> Response {
    let status = StatusCode::from_u16(error.status());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = xrpc_error(status, error.name(), &error.to_string());
    if let Some(after) = error.retry_after() {
        let seconds = HeaderValue::from(after.as_secs().max(1));
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

/// The response to an unknown method.
pub(crate) fn unknown(name: &str) -> Response {
    let shown: String = name.chars().take(100).collect();
    let words = format!("the method {shown} is not implemented; docs/api.md lists those that are");
    xrpc_error(StatusCode::NOT_IMPLEMENTED, "MethodNotImplemented", &words)
}

fn xrpc_error(status: StatusCode, name: &str, message: &str) -> Response {
    let body = ErrorBody {
        error: name.to_owned(),
        message: message.to_owned(),
    };
    allow_any_origin(response::json(status, &body))
}
