//! Sends requests to a running mirror. An error names the server, what went wrong and what
//! the operator can do. [`gapless_net::operator`] sends the requests.

use std::future::Future;

use gapless_net::NetError;
use gapless_net::operator::{Method, OperatorClient, OperatorError, OperatorResponse};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::fs::File;
use url::Url;

use super::{CommandError, Server};
use crate::config::{self, HTTP_URL, Token, parse_http_url};
use gapless_mirror::api::ErrorBody;

/// The address of a mirror whose configuration sets none.
const DEFAULT_URL: &str = "http://127.0.0.1:7070";

/// A connection to a running mirror.
pub(crate) struct Client(OperatorClient);

/// The text of a response.
pub(crate) struct Reply {
    pub(crate) text: String,
    from: String,
}

impl Reply {
    /// Parses the text as JSON of this type.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, CommandError> {
        serde_json::from_str(&self.text)
            .map_err(|error| not_gapless(&self.from, &format!("cannot parse the answer: {error}")))
    }
}

/// The failure for a server whose answers are not those of Gapless.
fn not_gapless(from: &str, why: &str) -> CommandError {
    CommandError::Unreachable(format!(
        "{from} does not answer as a Gapless mirror of this version does: {why}.\n\
         Name the running mirror with --url URL or GAPLESS_URL."
    ))
}

/// Runs the requests of a command to their end.
pub(crate) fn run_requests<T>(
    work: impl Future<Output = Result<T, CommandError>>,
) -> Result<T, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => Err(CommandError::Failed(format!(
            "cannot start the async runtime: {error}"
        ))),
    }
}

impl Client {
    pub(crate) fn new(server: &Server) -> Result<Client, CommandError> {
        let environment =
            config::environment().map_err(|error| CommandError::Usage(error.to_string()))?;
        let variable = |name: &str| {
            let mut found = environment.iter().filter(|(key, _)| key == name);
            found.next().map(|(_, value)| value.clone())
        };
        let url = server.url.clone().or_else(|| variable("GAPLESS_URL"));
        let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
        let base = parse_http_url(&url).and_then(|url| Url::parse(&url).ok());
        let base = base
            .ok_or_else(|| CommandError::Usage(format!("--url is {url:?}; expected {HTTP_URL}")))?;
        let token = match server.token.clone().or_else(|| variable("GAPLESS_TOKEN")) {
            Some(text) => Some(Token::parse(&text).ok_or_else(|| {
                CommandError::Usage(
                    "the token in --token or GAPLESS_TOKEN is not valid: expected 8 to 512 visible \
                     ASCII characters"
                        .to_owned(),
                )
            })?),
            None => None,
        };
        let token = token.map(|token| token.reveal().to_owned());
        let client = OperatorClient::new(base, token);
        client.map(Client).map_err(|error| {
            CommandError::Failed(match error {
                NetError::Client(why) => format!("cannot create the HTTP client: {why}"),
                other => other.to_string(),
            })
        })
    }

    /// Builds the URL of a path.
    pub(crate) fn url(&self, segments: &[&str], query: &[(&str, String)]) -> Url {
        self.0.url(segments, query)
    }

    pub(crate) async fn get(&self, url: Url) -> Result<Reply, CommandError> {
        self.ask(Method::GET, url, None).await
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn ask(
        &self,
        method: Method,
        url: Url,
        body: Option<Value>,
    ) -> Result<Reply, CommandError> {
        let text = async {
            let response = self.0.send(method, url, body.as_ref()).await?;
            response.text().await
        };
        self.reply(text.await)
    }

    /// Sends a POST request and passes each line of the response to `take` as it arrives.
    pub(crate) async fn lines(
        &self,
        url: Url,
        mut take: impl FnMut(&[u8]) -> Result<(), CommandError>,
    ) -> Result<(), CommandError> {
        let response = self.0.send(Method::POST, url, None).await;
        let mut response = self.checked(response)?;
        while let Some(line) = self.checked(response.next_line().await)? {
            take(&line)?;
        }
        Ok(())
    }

    /// Sends a GET request and returns the response once its head is there.
    /// [`OperatorResponse::next_piece`] reads the body; [`Client::checked`] words its errors.
    pub(crate) async fn open(&self, url: Url) -> Result<OperatorResponse<'_>, CommandError> {
        self.checked(self.0.send(Method::GET, url, None).await)
    }

    /// Sends a file.
    pub(crate) async fn upload(&self, url: Url, file: File) -> Result<Reply, CommandError> {
        let text = async { self.0.upload(url, file).await?.text().await };
        self.reply(text.await)
    }

    fn reply(&self, text: Result<String, OperatorError>) -> Result<Reply, CommandError> {
        Ok(Reply {
            text: self.checked(text)?,
            from: self.0.base().to_string(),
        })
    }

    /// Words the error of a result.
    pub(crate) fn checked<T>(&self, result: Result<T, OperatorError>) -> Result<T, CommandError> {
        result.map_err(|error| describe(self.0.base(), error))
    }

    /// The failure for a part of a response that cannot be parsed.
    pub(crate) fn not_understood(&self, error: &serde_json::Error) -> CommandError {
        let why = format!("cannot parse the answer: {error}");
        not_gapless(self.0.base().as_str(), &why)
    }
}

fn describe(base: &Url, error: OperatorError) -> CommandError {
    match error {
        OperatorError::NotConnected(reason) => CommandError::Unreachable(format!(
            "no Gapless mirror answers at {base} ({reason}).\nStart one: gapless run --upstream \
             pds=https://pds.example.com\nOr name the running mirror with --url URL or GAPLESS_URL."
        )),
        OperatorError::Lost(reason) => CommandError::Unreachable(format!(
            "the answer of {base} did not arrive: {reason}.\nCheck the log of the mirror there, or \
             name another mirror with --url URL or GAPLESS_URL."
        )),
        OperatorError::Silent => CommandError::Unreachable(format!(
            "{base} accepts connections but sends no answer. If a Gapless mirror runs there, the \
             mirror hangs: check its log.\nOr name another mirror with --url URL or GAPLESS_URL."
        )),
        OperatorError::Unhealthy(status) => {
            not_gapless(base.as_str(), &format!("the status of /health is {status}"))
        }
        OperatorError::TooLarge => CommandError::Failed(format!(
            "{}, so the command reads no more of the answer of {base}.\nIf no Gapless mirror runs \
             there, name another mirror with --url URL or GAPLESS_URL.",
            OperatorError::TooLarge
        )),
        OperatorError::Status { status, text } => describe_status(base, status, &text),
    }
}

fn describe_status(base: &Url, status: u16, text: &str) -> CommandError {
    let Ok(body) = serde_json::from_str::<ErrorBody>(text) else {
        return not_gapless(
            base.as_str(),
            &format!("the status is {status}, without the error text of Gapless"),
        );
    };
    let words = body.message;
    match status {
        401 => CommandError::Usage(format!(
            "{words}. Give the token with --token or GAPLESS_TOKEN."
        )),
        // The state of a repository is not a mistake in the command.
        400 if body.error != "InvalidRequest" => CommandError::Failed(words),
        400 | 403 => CommandError::Usage(words),
        _ => CommandError::Failed(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(error: OperatorError) -> (u8, String) {
        let base = Url::parse("http://127.0.0.1:7070").expect("an address");
        let error = describe(&base, error);
        (error.code(), error.text().to_owned())
    }

    #[test]
    fn an_error_says_what_the_operator_can_do() {
        let refused = |status, error: &str| OperatorError::Status {
            status,
            text: format!(r#"{{"error":"{error}","message":"why"}}"#),
        };
        let not_json = OperatorError::Status {
            status: 502,
            text: "<html>".to_owned(),
        };
        for (error, code, words) in [
            (OperatorError::Silent, 3, "sends no answer"),
            (
                OperatorError::NotConnected("refused".to_owned()),
                3,
                "no Gapless mirror answers at http://127.0.0.1:7070/ (refused)",
            ),
            (OperatorError::Lost("reset".to_owned()), 3, "reset"),
            (OperatorError::Unhealthy(500), 3, "/health is 500"),
            (OperatorError::TooLarge, 1, "exceeds the limit of 64 MiB"),
            (not_json, 3, "the status is 502"),
            (refused(401, "AuthMissing"), 2, "GAPLESS_TOKEN"),
            (refused(400, "InvalidRequest"), 2, "why"),
            (refused(400, "RepoNotFound"), 1, "why"),
            (refused(503, "Starting"), 1, "why"),
        ] {
            let (found, text) = described(error.clone());
            assert_eq!(found, code, "{error:?}");
            assert!(text.contains(words), "{text}");
        }
    }
}
