//! The error of a request: a class and a message.
//!
//! Callers branch on the class and count it; the message is for operators and names the
//! host. Text from a remote host is shortened and stripped of control characters before
//! a message quotes it.

use std::error::Error;
use std::time::Duration;

use super::guard::BlockedAddress;

/// The most characters of remote text that a message quotes.
const QUOTED_CHARS: usize = 200;
/// The most causes of an error that a message names.
const CAUSES: usize = 8;

/// The kind of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AskClass {
    /// The rules of [`super::guard`] forbid the address, or the redirects exceed their limit.
    Refused,
    /// No address, no connection, no TLS, or a connection that broke.
    Unreachable,
    Timeout,
    /// The host answered with this status.
    Http(u16),
    TooLarge,
    /// The response cannot be parsed or contradicts the request.
    Malformed,
    /// The response began, then stalled or fell below the minimum rate.
    Slow,
}

impl AskClass {
    /// The class as a metric label. There are few values, and no host can add one.
    pub fn as_str(self) -> &'static str {
        match self {
            AskClass::Refused => "refused",
            AskClass::Unreachable => "unreachable",
            AskClass::Timeout => "timeout",
            AskClass::Http(429) => "http_429",
            AskClass::Http(400..=499) => "http_4xx",
            AskClass::Http(500..=599) => "http_5xx",
            AskClass::Http(_) => "http_other",
            AskClass::TooLarge => "too_large",
            AskClass::Malformed => "malformed",
            AskClass::Slow => "slow",
        }
    }
}

/// A request that got no usable response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AskError {
    pub class: AskClass,
    /// How long to wait before the next request, if the host said so.
    pub retry_after: Option<Duration>,
    pub message: String,
}

impl AskError {
    pub(super) fn new(class: AskClass, host: &str, what: impl std::fmt::Display) -> AskError {
        AskError {
            class,
            retry_after: None,
            message: format!("{host}: {what}"),
        }
    }

    pub(super) fn malformed(host: &str, what: impl std::fmt::Display) -> AskError {
        AskError::new(AskClass::Malformed, host, what)
    }

    pub(super) fn refused(host: &str, refusal: &BlockedAddress) -> AskError {
        AskError::new(AskClass::Refused, host, refusal)
    }

    pub(super) fn after(mut self, retry_after: Option<Duration>) -> AskError {
        self.retry_after = retry_after;
        self
    }
}

/// Classifies an error of the HTTP client.
pub(super) fn classify_error(host: &str, error: reqwest::Error) -> AskError {
    let error = error.without_url();
    if let Some(refusal) = find_refusal(&error) {
        return AskError::refused(host, refusal);
    }
    let class = if error.is_timeout() {
        AskClass::Timeout
    } else {
        AskClass::Unreachable
    };
    AskError::new(class, host, chain(&error))
}

/// Finds the resolver's refusal, which the HTTP client wraps in errors of its own.
fn find_refusal(error: &reqwest::Error) -> Option<&BlockedAddress> {
    causes(error).find_map(|cause| cause.downcast_ref::<BlockedAddress>())
}

type Cause<'a> = &'a (dyn Error + 'static);

fn causes<'a>(error: Cause<'a>) -> impl Iterator<Item = Cause<'a>> {
    fn next<'a>(error: &Cause<'a>) -> Option<Cause<'a>> {
        Error::source(*error)
    }
    std::iter::successors(Some(error), next).take(CAUSES)
}

/// An error with its causes as one line, without repetitions.
pub(super) fn chain(error: Cause<'_>) -> String {
    let mut text = String::new();
    for cause in causes(error) {
        let cause = cause.to_string();
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    clean(&text)
}

/// Text from a remote host as one short line.
pub(super) fn clean(text: &str) -> String {
    let mut line: String = text
        .chars()
        .take(QUOTED_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    line.truncate(line.trim_end().len());
    if text.chars().nth(QUOTED_CHARS).is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_text_is_one_short_line() {
        assert_eq!(clean("a\nb\x1b[31m\n"), "a b [31m");
        let long = "ä".repeat(10_000);
        assert_eq!(clean(&long).chars().count(), QUOTED_CHARS + 1);
    }
}
