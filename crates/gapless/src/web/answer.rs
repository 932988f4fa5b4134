//! Answers: JSON with the right status, errors too.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::api::{ApiError, ErrorBody};

/// A request that is turned down: a status, a name for programs, words for people.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    name: &'static str,
    message: String,
}

impl Refusal {
    pub fn token(message: &str) -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, "AuthRequired", message)
    }

    pub fn forbidden(message: &str) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    pub fn new(status: StatusCode, name: &'static str, message: impl Into<String>) -> Refusal {
        let message = message.into();
        Refusal {
            status,
            name,
            message,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = ErrorBody {
            error: self.name.to_owned(),
            message: self.message,
        };
        let mut response = json(self.status, &body);
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Refusal {
        let status = match &error {
            ApiError::NotFound(_) => StatusCode::NOT_FOUND,
            ApiError::Invalid(_) => StatusCode::BAD_REQUEST,
            ApiError::Conflict(_) => StatusCode::CONFLICT,
            ApiError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refusal::new(status, error.name(), error.to_string())
    }
}

/// What a handler returns: a value, or why there is none.
pub type Answer<T> = Result<Json<T>, Refusal>;

/// A value as JSON.
pub struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        json(StatusCode::OK, &self.0)
    }
}

pub fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => plain(status, "application/json", bytes),
        // Our own types have no keys that JSON cannot have.
        Err(error) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain; charset=utf-8",
            format!("the answer could not be written: {error}").into_bytes(),
        ),
    }
}

pub fn plain(status: StatusCode, kind: &'static str, bytes: Vec<u8>) -> Response {
    with_body(status, kind, Body::from(bytes))
}

pub fn with_body(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}
