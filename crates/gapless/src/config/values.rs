//! The text forms of durations, sizes, patterns, URLs and the token. Each form has one
//! parser, and one formatter whose output the parser accepts.

use std::fmt;
use std::hint::black_box;
use std::time::Duration;

use url::{Host, Url};

/// The form of a duration, for error texts.
pub(super) const DURATION: &str = "a duration such as 250ms, 90s, 15m, 24h or 7d";
/// Replaces the token in a configuration that is shown, and is no token.
pub(super) const REDACTED: &str = "(redacted)";
/// The form of a size, for error texts.
pub(super) const SIZE: &str = "a size such as 512MiB or 20GB";
/// The form of a pattern, for error texts.
pub(super) const PATTERN: &str =
    "an NSID such as app.bsky.feed.post, or a prefix such as app.bsky.feed.*";
/// The form of an upstream's URL, for error texts.
pub const URL: &str = "http(s)://host[:port] or ws(s)://host[:port], without path, query or user";

/// The form of the URL of a server without streams, for error texts.
pub(crate) const HTTP_URL: &str = "http(s)://host[:port], without path, query or user";

const DURATION_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];
const SIZE_UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Parses a duration such as `90s`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    parse_scaled(text, &DURATION_UNITS).map(Duration::from_millis)
}

/// The word for a duration that never ends.
const ALL: &str = "all";

/// Parses how long something is kept: a duration, or `all` for ever, which is `None`.
pub(super) fn parse_kept_span(text: &str) -> Option<Option<Duration>> {
    match text.trim() {
        ALL => Some(None),
        text => parse_duration(text).map(Some),
    }
}

/// Formats how long something is kept as [`parse_kept_span`] accepts it.
pub(super) fn format_kept_span(span: Option<Duration>) -> String {
    span.map_or_else(|| ALL.to_owned(), format_duration)
}

/// Parses a size such as `20GB`.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    parse_scaled(text, &SIZE_UNITS)
}

fn parse_scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let (_, factor) = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// Formats a duration as [`parse_duration`] accepts it.
pub(crate) fn format_duration(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    // Days only from a week on: 72h reads better than 3d.
    let days = if millis >= 7 * 86_400_000 { 5 } else { 4 };
    format_scaled(millis, &DURATION_UNITS[..days])
}

/// Formats a size as [`parse_size`] accepts it.
pub(crate) fn format_size(bytes: u64) -> String {
    let decimal = format_scaled(bytes, &SIZE_UNITS[..5]);
    let binary = format_scaled(bytes, &SIZE_UNITS[5..]);
    if bytes.is_multiple_of(1024) && bytes > 0 && binary.len() < decimal.len() {
        binary
    } else {
        decimal
    }
}

fn format_scaled(amount: u64, units: &[(&str, u64)]) -> String {
    let mut fitting = units.iter().rev();
    let unit = fitting.find(|(_, factor)| amount >= *factor && amount.is_multiple_of(*factor));
    match unit.or(units.first()) {
        Some((name, factor)) => format!("{}{name}", amount / factor),
        None => amount.to_string(),
    }
}

/// Parses the URL of an upstream and returns it as `http(s)://host[:port]`.
pub(crate) fn parse_url(text: &str) -> Option<String> {
    let url = Url::parse(text.trim()).ok()?;
    let scheme = match url.scheme() {
        "http" | "ws" => "http",
        "https" | "wss" => "https",
        _ => return None,
    };
    let bare = url.username().is_empty()
        && url.password().is_none()
        && matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none();
    let host = url.host_str().filter(|host| bare && !host.is_empty())?;
    Some(match url.port() {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

/// Parses the URL of a server without streams, which cannot be `ws(s)`.
pub(crate) fn parse_http_url(text: &str) -> Option<String> {
    let url = Url::parse(text.trim()).ok()?;
    parse_url(text).filter(|_| matches!(url.scheme(), "http" | "https"))
}

/// The form of a host, for error texts.
pub const HOST: &str =
    "a host name, perhaps with :port, or http(s)://host[:port] as DID documents have it";

/// Parses a host as DID documents name it: a name or address with an optional port, or
/// an origin, which may use http on private networks.
pub(crate) fn parse_host(text: &str) -> Option<String> {
    if text.starts_with("http://") {
        return parse_url(text);
    }
    let text = text.strip_prefix("https://").unwrap_or(text);
    let text = text.strip_suffix('/').unwrap_or(text);
    let plain = |letter: char| letter.is_ascii_alphanumeric() || ".-:[]".contains(letter);
    if text.is_empty() || !text.chars().all(plain) {
        return None;
    }
    let url = Url::parse(&format!("https://{text}")).ok()?;
    match (url.host()?, url.port()) {
        (Host::Domain(""), _) => None,
        (host, Some(port)) => Some(format!("{host}:{port}")),
        (host, None) => Some(host.to_string()),
    }
}

/// The secret that authenticates the operator's requests. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The shortest and the longest token, in characters.
const TOKEN_LETTERS: std::ops::RangeInclusive<usize> = 8..=512;

/// The form of a token, for error texts.
pub(super) const TOKEN: &str = "8 to 512 visible ASCII letters, without spaces";

impl Token {
    pub fn parse(text: &str) -> Option<Token> {
        let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
        let usable = visible && text != REDACTED && TOKEN_LETTERS.contains(&text.len());
        usable.then(|| Token(text.to_owned()))
    }

    /// Compares in constant time, so that the time leaks no prefix.
    pub fn matches(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let mut differs = u8::from(own.len() != given.len());
        for (at, byte) in own.iter().enumerate() {
            differs |= black_box(byte ^ given.get(at).copied().unwrap_or(!byte));
        }
        black_box(differs) == 0
    }

    /// The text of the token, for the header that carries it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(redacted)")
    }
}
