//! What a request says: query, path and body, each within bounds, each with words
//! for whoever got it wrong.

use std::time::Duration;

use axum::body::Body;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{StatusCode, Uri};
use bytes::Bytes;
use gapless_atp::syntax::Did;
use serde::de::DeserializeOwned;
use url::form_urlencoded;

use super::answer::Refusal;

/// Bytes of a request's body.
const MAX_BODY_BYTES: usize = 1 << 20;
/// A body has come by then.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// Entries of a page, unless asked for otherwise.
const PAGE: usize = 100;
/// Entries of the longest page.
const LONGEST_PAGE: usize = 1000;

/// A question that makes no sense.
pub fn wrong(message: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "InvalidRequest", message)
}

/// The value of a parameter; the first, if there are several.
pub fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let query = uri.query().unwrap_or("");
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    pairs
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
        .filter(|value| !value.is_empty())
}

pub fn limit(uri: &Uri) -> Result<usize, Refusal> {
    let Some(text) = parameter(uri, "limit") else {
        return Ok(PAGE);
    };
    let number = text.parse().ok();
    number
        .filter(|number| (1..=LONGEST_PAGE).contains(number))
        .ok_or_else(|| wrong(format!("`limit` must be a number from 1 to {LONGEST_PAGE}")))
}

pub fn cursor(uri: &Uri) -> Result<Option<u64>, Refusal> {
    match parameter(uri, "cursor") {
        None => Ok(None),
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| wrong("`cursor` must be the `cursor` of the page before, or left out")),
    }
}

pub fn flag(uri: &Uri, name: &str) -> Result<bool, Refusal> {
    match parameter(uri, name).as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(wrong(format!("`{name}` must be true or false"))),
    }
}

pub fn did(text: &str) -> Result<Did, Refusal> {
    Did::parse(text).map_err(|error| wrong(error.to_string()))
}

pub fn path_did(path: Result<Path<String>, PathRejection>) -> Result<Did, Refusal> {
    match path {
        Ok(Path(text)) => did(&text),
        Err(error) => Err(wrong(format!("the path could not be read: {error}"))),
    }
}

pub fn path_number(path: Result<Path<String>, PathRejection>) -> Result<u64, Refusal> {
    let number = path.ok().and_then(|Path(text)| text.parse().ok());
    number.ok_or_else(|| wrong("the path must have a number, as `GET /v1/dead` gives it"))
}

/// The body as JSON of the expected shape.
pub async fn body<T: DeserializeOwned>(body: Body) -> Result<T, Refusal> {
    parsed(&bytes(body).await?)
}

/// The same, when no body means that nothing special is asked for.
pub async fn body_or_default<T: DeserializeOwned + Default>(body: Body) -> Result<T, Refusal> {
    let bytes = bytes(body).await?;
    match bytes.is_empty() {
        true => Ok(T::default()),
        false => parsed(&bytes),
    }
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes)
        .map_err(|error| wrong(format!("the body is not the expected JSON: {error}")))
}

async fn bytes(body: Body) -> Result<Bytes, Refusal> {
    let read = axum::body::to_bytes(body, MAX_BODY_BYTES);
    match tokio::time::timeout(BODY_WITHIN, read).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => {
            let words = format!(
                "the body did not arrive whole, or has more than {MAX_BODY_BYTES} bytes: {error}"
            );
            Err(Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "PayloadTooLarge",
                words,
            ))
        }
        Err(_) => {
            let words = "the body did not come in time";
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "Timeout", words))
        }
    }
}
