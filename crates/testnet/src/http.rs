//! What all servers share: listening, query parameters, responses.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use gapless_atp::syntax::Did;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The longest request body; only control requests have one.
const REQUEST_BYTES: usize = 64 << 20;

pub(crate) type Answer = Response<Body>;

/// The query parameters of a request, in order, with repeats.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of<T>(request: &Request<T>) -> Query {
        let text = request.uri().query().unwrap_or_default();
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Query(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(key, true), decode(value, true))
                })
                .collect(),
        )
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let found = self.0.iter().filter(move |(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }
}

/// Decodes percent-encoding. In queries a plus is a space.
pub(crate) fn decode(text: &str, plus_is_space: bool) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let escaped = match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                let number = std::str::from_utf8(&digits).ok();
                let byte = number.and_then(|digits| u8::from_str_radix(digits, 16).ok());
                byte.map(|byte| (byte, after))
            }
            _ => None,
        };
        match (escaped, first) {
            (Some((byte, after)), _) => {
                bytes.push(byte);
                rest = after;
            }
            (None, b'+') if plus_is_space => bytes.push(b' '),
            (None, byte) => bytes.push(*byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The DID in a segment of a path, percent-encoded or not. (A did:web with a port
/// contains a percent sign itself.)
pub(crate) fn did_in_path(part: &str) -> Option<Did> {
    let plain = Did::parse(part);
    plain.or_else(|_| Did::parse(&decode(part, false))).ok()
}

pub(crate) fn json_answer(status: u16, json: &Json) -> Answer {
    with_type(status, "application/json", json.to_string())
}

pub(crate) fn ok(json: &Json) -> Answer {
    json_answer(200, json)
}

pub(crate) fn text_answer(status: u16, text: impl Into<Body>) -> Answer {
    with_type(status, "text/plain; charset=utf-8", text)
}

pub(crate) fn with_type(status: u16, kind: &'static str, body: impl Into<Body>) -> Answer {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// An error response in the form of XRPC.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: u16,
    error: &'static str,
    message: String,
}

impl Refusal {
    pub(crate) fn new(status: u16, error: &'static str, message: impl ToString) -> Refusal {
        Refusal {
            status,
            error,
            message: message.to_string(),
        }
    }

    pub(crate) fn invalid(message: impl ToString) -> Refusal {
        Refusal::new(400, "InvalidRequest", message)
    }

    pub(crate) fn answer(&self) -> Answer {
        let json = json!({ "error": self.error, "message": self.message });
        json_answer(self.status, &json)
    }
}

/// The answer, or the refusal as an answer.
pub(crate) fn settle(given: Result<Answer, Refusal>) -> Answer {
    given.unwrap_or_else(|refusal| refusal.answer())
}

/// Reads the JSON body of a request.
pub(crate) async fn read_json(request: Request<Body>) -> Result<Json, Refusal> {
    let bytes = axum::body::to_bytes(request.into_body(), REQUEST_BYTES).await;
    let bytes = bytes.map_err(Refusal::invalid)?;
    if bytes.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(&bytes).map_err(Refusal::invalid)
}

/// Listens on a port of loopback; 0 takes a free one.
pub(crate) async fn bind(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await
}

/// Serves every request on a listener with one function, until the task is aborted.
pub(crate) fn serve<C, F, A>(listener: TcpListener, context: Arc<C>, answer: F) -> JoinHandle<()>
where
    C: Send + Sync + 'static,
    F: Fn(Arc<C>, Request<Body>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let router = Router::new().fallback(move |request: Request<Body>| {
        let (answer, context) = (answer.clone(), context.clone());
        async move { answer(context, request).await }
    });
    tokio::spawn(async move {
        // The server ends only if the listener fails; then there is nothing left to do.
        let _ = axum::serve(listener, router).await;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded_and_keep_repeats() {
        let request = Request::get("/x?did=did%3Aplc%3Aabc&cids=a&cids=b&note=a+b%2")
            .body(())
            .unwrap();
        let query = Query::of(&request);
        assert_eq!(query.get("did"), Some("did:plc:abc"));
        assert_eq!(query.all("cids").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(query.get("note"), Some("a b%2"));
        assert_eq!(query.get("none"), None);
    }
}
