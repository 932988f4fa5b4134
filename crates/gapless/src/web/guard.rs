//! Decides which requests are allowed.
//!
//! The configured token allows everything. Without the token, an address that other
//! machines can reach answers only `/health` and, unless `serve.open` is false, `/xrpc`. A
//! loopback address also answers GET and, if no token is configured, orders, but only from
//! programs on this machine. Pages in a browser may give no orders: their requests carry an
//! `Origin`, and a foreign name that resolves to this machine shows in `Host`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::response::HttpError;
use super::{App, WebSettings, drain};

/// Always answered, for supervisors of the process.
const OPEN: &str = "/health";

/// Public data: repositories, which their owners publish.
const PUBLIC: &str = "/xrpc/";

/// Checks a request before any handler sees it.
pub(crate) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (method, uri) = (request.method(), request.uri());
    match judge(&app.settings, method, uri, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            drain::drain_body(request.into_body());
            refusal.into_response()
        }
    }
}

fn judge(
    settings: &WebSettings,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), HttpError> {
    let reads = method == Method::GET || method == Method::HEAD;
    let public = settings.open && uri.path().starts_with(PUBLIC);
    if uri.path() == OPEN || (public && (reads || method == Method::OPTIONS)) {
        return Ok(());
    }
    let given = bearer(headers);
    if let Some(token) = &settings.token {
        match given {
            Some(given) if token.matches(given) => return Ok(()),
            Some(_) => {
                return Err(HttpError::token(
                    "the token is not the one that is configured",
                ));
            }
            None => {}
        }
    }
    if !settings.loopback || (settings.token.is_some() && !reads) {
        return Err(HttpError::token(
            "this needs the token, as `Authorization: Bearer TOKEN`",
        ));
    }
    if !from_here(uri, headers) {
        return Err(HttpError::forbidden(
            "without a token, requests must name this machine (localhost, 127.0.0.1 or [::1]) in Host",
        ));
    }
    if !reads && headers.contains_key(header::ORIGIN) {
        return Err(HttpError::forbidden(
            "without a token, a page in a browser may not give orders",
        ));
    }
    Ok(())
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_start())
}

/// Whether the request names this machine, wherever it names one.
fn from_here(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut named = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return false;
    };
    let here = host.to_str().is_ok_and(is_loopback_name);
    here && uri
        .authority()
        .is_none_or(|of| is_loopback_name(of.as_str()))
}

/// `localhost`, 127.0.0.0/8 or `[::1]`, perhaps with a port.
fn is_loopback_name(text: &str) -> bool {
    let (name, rest) = match text.strip_prefix('[') {
        Some(inner) => match inner.split_once(']') {
            Some((name, rest)) => (name, rest),
            None => return false,
        },
        None => match text.find(':') {
            Some(colon) => text.split_at(colon),
            None => (text, ""),
        },
    };
    let port_fits = match rest.strip_prefix(':') {
        Some(port) => port.parse::<u16>().is_ok(),
        None => rest.is_empty(),
    };
    let address = || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    port_fits && (name.eq_ignore_ascii_case("localhost") || address())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for name in [
            "localhost",
            "LOCALHOST:7070",
            "127.0.0.1",
            "127.9.9.9:1",
            "[::1]",
            "[::1]:7070",
        ] {
            assert!(is_loopback_name(name), "{name}");
        }
        for name in [
            "",
            ":",
            "[",
            "[::1",
            "[::1]x",
            "localhost:",
            "localhost:x",
            "localhost.evil.example",
            "evil.example",
            "127.0.0.1.evil.example",
            "127.1",
            "0.0.0.0",
            "10.0.0.1:7070",
            "::1",
            "localhost:99999",
        ] {
            assert!(!is_loopback_name(name), "{name}");
        }
    }
}
