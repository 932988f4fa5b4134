//! Why a question got no answer.
//!
//! The class is what somebody branches on or counts; the message is for people
//! and names the host. What a stranger wrote is cut and cleaned before it gets
//! into a message.

use std::error::Error;
use std::time::Duration;

use super::guard::Refusal;

/// Characters of a stranger's text that a message quotes.
const QUOTED_CHARS: usize = 200;
/// Causes of an error that a message names.
const CAUSES: usize = 8;

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AskClass {
    /// Our own rules forbid to go there.
    Refused,
    /// No address, no connection, no TLS, or a connection that broke.
    Unreachable,
    Timeout,
    /// The host answered with this status.
    Http(u16),
    TooLarge,
    /// The answer makes no sense.
    Malformed,
    /// The answer began, and then hardly went on.
    Slow,
}

impl AskClass {
    /// For metrics: few values, never a stranger's.
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

/// A question that got no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AskError {
    pub class: AskClass,
    /// When the host wants to be asked again, if it said so.
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

    pub(super) fn refused(host: &str, refusal: &Refusal) -> AskError {
        AskError::new(AskClass::Refused, host, refusal)
    }

    pub(super) fn after(mut self, retry_after: Option<Duration>) -> AskError {
        self.retry_after = retry_after;
        self
    }
}

/// An HTTP client's error, sorted.
pub(super) fn sort(host: &str, error: reqwest::Error) -> AskError {
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

/// The resolver's refusal comes back wrapped by everything above it.
fn find_refusal(error: &reqwest::Error) -> Option<&Refusal> {
    causes(error).find_map(|cause| cause.downcast_ref::<Refusal>())
}

type Cause<'a> = &'a (dyn Error + 'static);

fn causes<'a>(error: Cause<'a>) -> impl Iterator<Item = Cause<'a>> {
    fn next<'a>(error: &Cause<'a>) -> Option<Cause<'a>> {
        Error::source(*error)
    }
    std::iter::successors(Some(error), next).take(CAUSES)
}

/// An error with its causes, each once.
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

/// A stranger's text as one short line.
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
