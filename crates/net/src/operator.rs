//! The HTTP client with which the commands of an operator reach a running mirror.
//!
//! A request waits as long as the mirror is alive. After 15 seconds without a byte the client asks
//! `/health`, which needs neither the disk nor a lock. If `/health` is not answered within 15
//! seconds, the request fails. The client therefore waits for long work, but not for a port at
//! which no mirror answers. Whole responses and single lines are bounded in bytes. Proxies and
//! redirects are not used: the token goes to the given address only.
//!
//! The errors are typed and without advice; the command line phrases the messages.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
pub use reqwest::Method;
use reqwest::RequestBuilder;
use serde_json::Value;
use tokio::fs::File;
use url::Url;

use super::authorities::tls_config;
use super::client::NetError;

/// The time in which a server accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time without a byte, even if the mirror is alive. Recomputing a large root
/// takes a while.
const READ_TIMEOUT: Duration = Duration::from_secs(600);
/// The time without a byte after which the client asks `/health`, and the time in which
/// `/health` must be answered.
const SILENCE: Duration = Duration::from_secs(15);
/// The most bytes of a response that is read as a whole.
const MAX_TEXT_BYTES: usize = 64 << 20;
/// The most bytes in one line of a streamed response.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Sends requests to one running mirror.
pub struct OperatorClient {
    http: reqwest::Client,
    base: Url,
    token: Option<String>,
    silence: Duration,
}

/// Why a request to a mirror failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperatorError {
    #[error("cannot connect: {0}")]
    NotConnected(String),
    #[error("the response did not arrive: {0}")]
    Lost(String),
    #[error("the server accepts connections but does not answer /health")]
    Silent,
    #[error("the server answers /health with status {0}")]
    Unhealthy(u16),
    #[error(
        "the response exceeds the limit of {} MiB, or of {} MiB in one line",
        MAX_TEXT_BYTES >> 20,
        MAX_LINE_BYTES >> 20
    )]
    TooLarge,
    /// The mirror answered with a status that is not a success.
    #[error("status {status}")]
    Status { status: u16, text: String },
}

impl OperatorClient {
    /// Creates a client for the mirror at `base`, which sends `token` with each request.
    pub fn new(base: Url, token: Option<String>) -> Result<OperatorClient, NetError> {
        // The authorities are those of the mirror itself, not those of this machine.
        let tls = tls_config(&[])?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .build()
            .map_err(|error| NetError::Client(with_causes(&error)))?;
        Ok(OperatorClient {
            http,
            base,
            token,
            silence: SILENCE,
        })
    }

    /// The address of the mirror.
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// Builds the URL of a path. The segments are escaped where they need it.
    pub fn url(&self, segments: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend(segments);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    /// Sends a request, with a JSON body if there is one, and returns the response once
    /// its head is there. A status that is not a success is an error.
    pub async fn send(
        &self,
        method: Method,
        url: Url,
        body: Option<&Value>,
    ) -> Result<OperatorResponse<'_>, OperatorError> {
        let request = self.request(method, url);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        self.send_request(request).await
    }

    /// Sends a file with POST. The file is read while it is sent, never as a whole.
    pub async fn upload(
        &self,
        url: Url,
        file: File,
    ) -> Result<OperatorResponse<'_>, OperatorError> {
        self.send_request(self.request(Method::POST, url).body(file))
            .await
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn send_request(
        &self,
        request: RequestBuilder,
    ) -> Result<OperatorResponse<'_>, OperatorError> {
        let response = self.wait_while_alive(request.send()).await?;
        let status = response.status();
        let response = OperatorResponse {
            client: self,
            response,
            unread: Vec::new(),
        };
        if status.is_success() {
            return Ok(response);
        }
        Err(OperatorError::Status {
            status: status.as_u16(),
            text: response.text().await?,
        })
    }

    /// Waits for a part of a response as long as the mirror answers `/health`.
    async fn wait_while_alive<T>(
        &self,
        part: impl Future<Output = Result<T, reqwest::Error>>,
    ) -> Result<T, OperatorError> {
        let mut part = std::pin::pin!(part);
        loop {
            match tokio::time::timeout(self.silence, &mut part).await {
                Ok(part) => return part.map_err(|error| from_transport(&error)),
                Err(_) => self.check_health().await?,
            }
        }
    }

    async fn check_health(&self) -> Result<(), OperatorError> {
        let request = self.http.get(self.url(&["health"], &[]));
        match request.timeout(self.silence).send().await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(OperatorError::Unhealthy(response.status().as_u16())),
            Err(_) => Err(OperatorError::Silent),
        }
    }
}

/// A response of a mirror whose body is still to be read.
pub struct OperatorResponse<'a> {
    client: &'a OperatorClient,
    response: reqwest::Response,
    /// Bytes that were received and belong to no returned line yet.
    unread: Vec<u8>,
}

impl OperatorResponse<'_> {
    /// The value of a header, if it is there and readable.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// Reads the next piece of the body; `None` at its end.
    pub async fn next_piece(&mut self) -> Result<Option<Bytes>, OperatorError> {
        self.client.wait_while_alive(self.response.chunk()).await
    }

    /// Reads the next line of the body, without its end; `None` at the end of the body.
    /// A last line without an end is dropped, because the mirror broke off in it.
    pub async fn next_line(&mut self) -> Result<Option<Vec<u8>>, OperatorError> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.unread.drain(..=end).collect();
                line.pop();
                return Ok(Some(line));
            }
            if self.unread.len() > MAX_LINE_BYTES {
                return Err(OperatorError::TooLarge);
            }
            match self.next_piece().await? {
                Some(piece) => self.unread.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }

    /// Reads the whole body as text.
    pub async fn text(mut self) -> Result<String, OperatorError> {
        let mut bytes: Vec<u8> = Vec::new();
        while let Some(piece) = self.next_piece().await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_TEXT_BYTES {
                return Err(OperatorError::TooLarge);
            }
        }
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }
}

fn from_transport(error: &reqwest::Error) -> OperatorError {
    let reason = with_causes(error);
    if error.is_connect() {
        OperatorError::NotConnected(reason)
    } else {
        OperatorError::Lost(reason)
    }
}

/// An error with all its causes in one line.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
