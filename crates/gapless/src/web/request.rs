//! Reads the query, the path and the body of a request, each within bounds. A value
//! that is wrong is refused with 400 and a message that names it.

use std::str::FromStr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{StatusCode, Uri};
use bytes::Bytes;
use gapless_atp::syntax::Did;
use serde::de::DeserializeOwned;
use url::form_urlencoded;

use super::response::HttpError;

/// Bytes of a request's body.
const MAX_BODY_BYTES: usize = 1 << 20;
/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// Entries of a page if the request names no `limit`.
const DEFAULT_LIMIT: usize = 100;
/// The largest `limit` of a page.
const MAX_LIMIT: usize = 1000;

/// The error response to a request with a wrong value.
pub(crate) fn invalid(message: impl Into<String>) -> HttpError {
    HttpError::new(StatusCode::BAD_REQUEST, "InvalidRequest", message)
}

/// The value of a parameter; the first, if there are several.
pub(crate) fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let query = uri.query().unwrap_or("");
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
        .filter(|value| !value.is_empty())
}

pub(crate) fn limit(uri: &Uri) -> Result<usize, HttpError> {
    let Some(text) = parameter(uri, "limit") else {
        return Ok(DEFAULT_LIMIT);
    };
    let number = text.parse().ok();
    number
        .filter(|number| (1..=MAX_LIMIT).contains(number))
        .ok_or_else(|| invalid(format!("`limit` must be a number from 1 to {MAX_LIMIT}")))
}

pub(crate) fn cursor(uri: &Uri) -> Result<Option<u64>, HttpError> {
    match parameter(uri, "cursor") {
        None => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| invalid("`cursor` must be the `cursor` of the page before, or left out")),
    }
}

/// The number in a parameter, within the range of its type.
pub(crate) fn number<T: FromStr>(uri: &Uri, name: &str) -> Result<Option<T>, HttpError> {
    match parameter(uri, name) {
        None => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| invalid(format!("`{name}` must be a number"))),
    }
}

pub(crate) fn flag(uri: &Uri, name: &str) -> Result<bool, HttpError> {
    match parameter(uri, name).as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(invalid(format!("`{name}` must be true or false"))),
    }
}

pub(crate) fn did(text: &str) -> Result<Did, HttpError> {
    Did::parse(text).map_err(|error| invalid(error.to_string()))
}

pub(crate) fn path_did(path: Result<Path<String>, PathRejection>) -> Result<Did, HttpError> {
    match path {
        Ok(Path(text)) => did(&text),
        Err(error) => Err(invalid(format!("the path could not be read: {error}"))),
    }
}

pub(crate) fn path_number(path: Result<Path<String>, PathRejection>) -> Result<u64, HttpError> {
    let number = path.ok().and_then(|Path(text)| text.parse().ok());
    number.ok_or_else(|| invalid("the path must have a number, as `GET /v1/dead` gives it"))
}

/// The body as JSON of the expected shape.
pub(crate) async fn body<T: DeserializeOwned>(body: Body) -> Result<T, HttpError> {
    parse_json(&read_bytes(body).await?)
}

/// The body as JSON of the expected shape; the default where the body is empty.
pub(crate) async fn body_or_default<T: DeserializeOwned + Default>(
    body: Body,
) -> Result<T, HttpError> {
    let bytes = read_bytes(body).await?;
    if bytes.is_empty() {
        Ok(T::default())
    } else {
        parse_json(&bytes)
    }
}

fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, HttpError> {
    serde_json::from_slice(bytes)
        .map_err(|error| invalid(format!("the body is not the expected JSON: {error}")))
}

async fn read_bytes(body: Body) -> Result<Bytes, HttpError> {
    let read = axum::body::to_bytes(body, MAX_BODY_BYTES);
    match tokio::time::timeout(BODY_WITHIN, read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => {
            let words = format!(
                "the body did not arrive whole, or has more than {MAX_BODY_BYTES} bytes: {error}"
            );
            Err(HttpError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "PayloadTooLarge",
                words,
            ))
        }
        Err(_) => {
            let words = "the body did not arrive in time";
            Err(HttpError::new(
                StatusCode::REQUEST_TIMEOUT,
                "Timeout",
                words,
            ))
        }
    }
}
