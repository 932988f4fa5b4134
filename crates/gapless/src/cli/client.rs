//! Asking a running mirror. Whatever goes wrong ends in words: what was asked,
//! of whom, and what can be done.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use reqwest::{Method, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::{Failure, Server};
use crate::api::ErrorBody;
use crate::config::{self, Token, parse_url};
use crate::net::tls_config;

/// Where a mirror listens unless told otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:7070";
/// A server that is there takes the connection by then.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// An answer has begun by then; recomputing a large root takes a while.
const ANSWER_WITHIN: Duration = Duration::from_secs(600);
/// Bytes of an answer.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Bytes of a line of a stream.
const MAX_LINE_BYTES: usize = 16 << 20;

/// A connection to a running mirror.
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<Token>,
}

/// An answer as it came.
pub struct Reply {
    pub text: String,
    from: String,
}

impl Reply {
    /// As the type that it must be.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.text).map_err(|error| {
            Failure::Failed(format!(
                "{} did not answer as a gapless of this version does: {error}",
                self.from
            ))
        })
    }
}

/// Runs a conversation with the server to its end.
pub fn talk<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(Failure::Failed(format!("could not start: {error}"))),
    }
}

impl Client {
    pub fn new(server: &Server) -> Result<Client, Failure> {
        let environment =
            config::environment().map_err(|error| Failure::Usage(error.to_string()))?;
        let variable = |name: &str| {
            let mut found = environment.iter().filter(|(key, _)| key == name);
            found.next().map(|(_, value)| value.clone())
        };
        let url = server.url.clone().or_else(|| variable("GAPLESS_URL"));
        let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
        let base = parse_url(&url).and_then(|url| Url::parse(&url).ok());
        let base = base.ok_or_else(|| {
            Failure::Usage(format!("--url is {url:?}; expected http(s)://host[:port]"))
        })?;
        let token = match server.token.clone().or_else(|| variable("GAPLESS_TOKEN")) {
            Some(text) => Some(Token::parse(&text).ok_or_else(|| {
                Failure::Usage("the token is none: expected 8 to 512 visible letters".to_owned())
            })?),
            None => None,
        };
        // The roots of the mirror itself, not those of this machine.
        let tls = tls_config(&[]).map_err(|error| Failure::Failed(error.to_string()))?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_WITHIN)
            .read_timeout(ANSWER_WITHIN)
            .build()
            .map_err(|error| Failure::Failed(format!("no HTTP client: {}", chain(&error))))?;
        Ok(Client { http, base, token })
    }

    /// The URL of a path, given in segments that need no escaping.
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

    pub async fn get(&self, url: Url) -> Result<Reply, Failure> {
        self.ask(Method::GET, url, None).await
    }

    pub async fn ask(
        &self,
        method: Method,
        url: Url,
        body: Option<Value>,
    ) -> Result<Reply, Failure> {
        let mut response = self.send(method, url, body).await?;
        let text = self.whole(&mut response).await?;
        let from = self.base.to_string();
        Ok(Reply { text, from })
    }

    /// Asks, and hands each line of the answer on as it comes.
    pub async fn lines(
        &self,
        url: Url,
        mut line: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut response = self.send(Method::POST, url, None).await?;
        let mut held: Vec<u8> = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.lost(&error))? {
            held.extend_from_slice(&piece);
            while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                line(&held[..end])?;
                held.drain(..=end);
            }
            if held.len() > MAX_LINE_BYTES {
                return Err(self.too_long());
            }
        }
        Ok(())
    }

    async fn send(
        &self,
        method: Method,
        url: Url,
        body: Option<Value>,
    ) -> Result<Response, Failure> {
        let mut request = self.http.request(method, url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.reveal());
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let sent = request.send().await;
        let mut response = sent.map_err(|error| self.lost(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let text = self.whole(&mut response).await?;
        Err(self.refused(status, &text))
    }

    async fn whole(&self, response: &mut Response) -> Result<String, Failure> {
        let mut bytes: Vec<u8> = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.lost(&error))? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_ANSWER_BYTES {
                return Err(self.too_long());
            }
        }
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    fn too_long(&self) -> Failure {
        Failure::Failed(format!("{} answers without an end", self.base))
    }

    fn lost(&self, error: &reqwest::Error) -> Failure {
        let reason = chain(error);
        Failure::Unreachable(match error.is_connect() {
            true => format!(
                "no gapless answers at {} ({reason}).\nStart one: gapless run --upstream \
                 pds=https://pds.example.com\nOr name the one that runs: --url URL, or GAPLESS_URL.",
                self.base
            ),
            false => format!("the answer of {} did not arrive: {reason}", self.base),
        })
    }

    fn refused(&self, status: u16, text: &str) -> Failure {
        let body = serde_json::from_str::<ErrorBody>(text);
        let words = match body {
            Ok(body) => body.message,
            Err(_) => format!(
                "{} answered with status {status}; is it a gapless?",
                self.base
            ),
        };
        match status {
            401 => Failure::Usage(format!("{words}. Give it with --token or GAPLESS_TOKEN.")),
            400 | 403 => Failure::Usage(words),
            _ => Failure::Failed(words),
        }
    }
}

/// An error with all that it stands on.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
