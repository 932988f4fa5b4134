//! Asking a running mirror. Whatever goes wrong ends in words: what was asked,
//! of whom, and what can be done. Whoever says nothing for a while is asked whether
//! it lives: long work is waited for, a port at which nobody answers is not.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::{Failure, Server};
use crate::api::ErrorBody;
use crate::config::{self, HTTP_URL, Token, parse_http_url};
use crate::net::tls_config;

/// Where a mirror listens unless told otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:7070";
/// A server that is there takes the connection by then.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// An answer has begun by then; recomputing a large root takes a while.
const ANSWER_WITHIN: Duration = Duration::from_secs(600);
/// After so long without a word it is asked whether anybody is there, and that is
/// answered within the same time: it needs neither the disk nor anybody else.
const SILENCE: Duration = Duration::from_secs(15);
/// Bytes of an answer.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Bytes of a line of a stream.
const MAX_LINE_BYTES: usize = 16 << 20;

/// A connection to a running mirror.
pub struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<Token>,
    silence: Duration,
}

/// An answer as it came.
pub struct Reply {
    pub text: String,
    from: String,
}

impl Reply {
    /// As the type that it must be.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.text)
            .map_err(|error| not_gapless(&self.from, &format!("it is not understood: {error}")))
    }
}

/// Somebody answers, but not as this program does.
fn not_gapless(from: &str, why: &str) -> Failure {
    Failure::Unreachable(format!(
        "the answer of {from} is not that of a gapless of this version: {why}.\n\
         Name the one that runs: --url URL, or GAPLESS_URL."
    ))
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
        let base = parse_http_url(&url).and_then(|url| Url::parse(&url).ok());
        let base =
            base.ok_or_else(|| Failure::Usage(format!("--url is {url:?}; expected {HTTP_URL}")))?;
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
        Ok(Client {
            http,
            base,
            token,
            silence: SILENCE,
        })
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
        while let Some(piece) = self.patiently(response.chunk()).await? {
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

    /// Asks, and hands back the head of the answer; [`Client::piece`] has the rest.
    pub async fn open(&self, url: Url) -> Result<Response, Failure> {
        self.send(Method::GET, url, None).await
    }

    /// The next piece of an answer.
    pub async fn piece(&self, response: &mut Response) -> Result<Option<Bytes>, Failure> {
        self.patiently(response.chunk()).await
    }

    /// Sends a body that is larger than memory should be.
    pub async fn hand_over(&self, url: Url, body: reqwest::Body) -> Result<Reply, Failure> {
        let request = self.request(Method::POST, url).body(body);
        let mut response = self.answered(request).await?;
        let text = self.whole(&mut response).await?;
        let from = self.base.to_string();
        Ok(Reply { text, from })
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token.reveal()),
            None => request,
        }
    }

    async fn send(
        &self,
        method: Method,
        url: Url,
        body: Option<Value>,
    ) -> Result<Response, Failure> {
        let request = self.request(method, url);
        let request = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        self.answered(request).await
    }

    async fn answered(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let mut response = self.patiently(request.send()).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let text = self.whole(&mut response).await?;
        Err(self.refused(status, &text))
    }

    /// Waits for a part of an answer for as long as somebody is there.
    async fn patiently<T>(
        &self,
        part: impl Future<Output = Result<T, reqwest::Error>>,
    ) -> Result<T, Failure> {
        let mut part = std::pin::pin!(part);
        loop {
            match tokio::time::timeout(self.silence, &mut part).await {
                Ok(part) => return part.map_err(|error| self.lost(&error)),
                Err(_) => self.lives().await?,
            }
        }
    }

    /// Whether a mirror is there at all.
    async fn lives(&self) -> Result<(), Failure> {
        let asked = self.http.get(self.url(&["health"], &[]));
        match asked.timeout(self.silence).send().await {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(answer) => {
                let status = answer.status().as_u16();
                Err(not_gapless(
                    self.base.as_str(),
                    &format!("asked whether it lives, it says {status}"),
                ))
            }
            Err(_) => Err(Failure::Unreachable(format!(
                "{} takes connections, and nobody answers there. If it is a gapless, it hangs: \
                 its log may tell why.\nOr name another one: --url URL, or GAPLESS_URL.",
                self.base
            ))),
        }
    }

    async fn whole(&self, response: &mut Response) -> Result<String, Failure> {
        let mut bytes: Vec<u8> = Vec::new();
        while let Some(piece) = self.patiently(response.chunk()).await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > MAX_ANSWER_BYTES {
                return Err(self.too_long());
            }
        }
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
    }

    /// A part of an answer that is none of ours.
    pub fn not_understood(&self, error: &serde_json::Error) -> Failure {
        let why = format!("it is not understood: {error}");
        not_gapless(self.base.as_str(), &why)
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
            false => format!("no answer of a gapless came from {}: {reason}", self.base),
        })
    }

    fn refused(&self, status: u16, text: &str) -> Failure {
        let Ok(body) = serde_json::from_str::<ErrorBody>(text) else {
            return not_gapless(self.base.as_str(), &format!("its status is {status}"));
        };
        let words = body.message;
        match status {
            401 => Failure::Usage(format!("{words}. Give it with --token or GAPLESS_TOKEN.")),
            // What a repository is, is no mistake of whoever asks.
            400 if body.error != "InvalidRequest" => Failure::Failed(words),
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

    /// A port that answers each path in its way: late, or not at all.
    fn port(answer: fn(&str) -> Option<Duration>) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                std::thread::spawn(move || {
                    let mut head = [0; 4096];
                    let read = stream.read(&mut head).unwrap_or(0);
                    let head = String::from_utf8_lossy(&head[..read]).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or("").to_owned();
                    match answer(&path) {
                        Some(after) => {
                            std::thread::sleep(after);
                            let _ = stream.write_all(FINE.as_bytes());
                        }
                        // Until the other side has gone.
                        None => while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {},
                    }
                });
            }
        });
        let server = Server {
            url: Some(format!("http://{address}")),
            token: None,
            json: false,
        };
        let client = Client::new(&server).expect("it is made");
        Client {
            silence: Duration::from_millis(300),
            ..client
        }
    }

    fn asked(client: &Client) -> Result<Reply, Failure> {
        talk(client.get(client.url(&["v1", "status"], &[])))
    }

    #[test]
    fn a_port_that_says_nothing_is_given_up() {
        let client = port(|_| None);
        let began = std::time::Instant::now();
        let Err(Failure::Unreachable(words)) = asked(&client) else {
            panic!("nobody answered");
        };
        assert!(words.contains("nobody answers there"), "{words}");
        assert!(
            began.elapsed() < CONNECT_WITHIN * 2,
            "{:?}",
            began.elapsed()
        );
    }

    #[test]
    fn long_work_is_waited_for_while_somebody_is_there() {
        let client = port(|path| {
            let long = Duration::from_secs(1);
            Some(long)
                .filter(|_| path != "/health")
                .or(Some(Duration::ZERO))
        });
        let reply = asked(&client).expect("it comes, late");
        assert_eq!(reply.text, "{}");
    }
}
