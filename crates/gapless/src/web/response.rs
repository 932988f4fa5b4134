//! Responses: JSON with the right status, also for errors.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use gapless_mirror::api::{ApiError, ErrorBody};

/// An error response: a status, a name for programs, and a message for people.
#[derive(Debug)]
pub(crate) struct HttpError {
    status: StatusCode,
    name: &'static str,
    message: String,
}

impl HttpError {
    pub(crate) fn token(message: &str) -> HttpError {
        HttpError::new(StatusCode::UNAUTHORIZED, "AuthRequired", message)
    }

    pub(crate) fn forbidden(message: &str) -> HttpError {
        HttpError::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    pub(crate) fn new(
        status: StatusCode,
        name: &'static str,
        message: impl Into<String>,
    ) -> HttpError {
        let message = message.into();
        HttpError {
            status,
            name,
            message,
        }
    }
}

impl IntoResponse for HttpError {
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

impl From<ApiError> for HttpError {
    fn from(error: ApiError) -> HttpError {
        let status = match &error {
            ApiError::NotFound(_) => StatusCode::NOT_FOUND,
            ApiError::Invalid(_) => StatusCode::BAD_REQUEST,
            ApiError::Conflict(_) => StatusCode::CONFLICT,
            ApiError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            ApiError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        HttpError::new(status, error.name(), error.to_string())
    }
}

/// What a handler returns: a value as JSON, or an error response.
pub(crate) type JsonResult<T> = Result<Json<T>, HttpError>;

/// A response with status 200 and a value as JSON.
pub(crate) struct Json<T>(pub T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        json(StatusCode::OK, &self.0)
    }
}

pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => plain(status, "application/json", bytes),
        // The types of the API always encode as JSON.
        Err(error) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain; charset=utf-8",
            format!("the answer could not be written: {error}").into_bytes(),
        ),
    }
}

pub(crate) fn plain(status: StatusCode, kind: &'static str, bytes: Vec<u8>) -> Response {
    with_body(status, kind, Body::from(bytes))
}

pub(crate) fn with_body(status: StatusCode, kind: &'static str, body: Body) -> Response {
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
