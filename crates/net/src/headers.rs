//! Reads how long a host wants Gapless to wait: `Retry-After` and the `RateLimit` headers.
//!
//! The headers are untrusted: a value that cannot be parsed is ignored, and no host can
//! ask for a longer wait than [`LONGEST_WAIT`].

use std::time::{Duration, UNIX_EPOCH};

use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The longest wait that a host can ask for.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Numbers in `RateLimit-Reset` from this one on are times, not durations: the reference
/// servers send seconds since 1970, the draft standard specifies seconds from now.
const SPAN_SECONDS: u64 = 1_000_000_000;

/// How long to wait before the next request to a host, if its response says so. `now` is in
/// seconds since 1970.
pub(crate) fn retry_after(headers: &HeaderMap, now: u64) -> Option<Duration> {
    let told = text(headers, RETRY_AFTER.as_str()).and_then(|value| read_retry(value, now));
    let limited = exhausted(headers, now);
    let seconds = told.max(limited)?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn read_retry(value: &str, now: u64) -> Option<u64> {
    match value.parse::<u64>() {
        Ok(seconds) => Some(seconds),
        Err(_) => Some(http_date(value)?.saturating_sub(now)),
    }
}

/// The wait until new requests are allowed, if none is left.
fn exhausted(headers: &HeaderMap, now: u64) -> Option<u64> {
    let left = text(headers, "ratelimit-remaining")?.parse::<u64>().ok()?;
    if left > 0 {
        return None;
    }
    match text(headers, "ratelimit-reset")?.parse::<u64>().ok()? {
        span @ ..SPAN_SECONDS => Some(span),
        moment => Some(moment.saturating_sub(now)),
    }
}

/// Converts an HTTP date, in any of the three forms of RFC 9110, to seconds since 1970.
fn http_date(value: &str) -> Option<u64> {
    let date = httpdate::parse_http_date(value).ok()?;
    let since_1970 = date.duration_since(UNIX_EPOCH).ok()?;
    Some(since_1970.as_secs())
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn wait(pairs: &[(&str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
        retry_after(&headers, NOW).map(|wait| wait.as_secs())
    }

    #[test]
    fn seconds_dates_and_limits() {
        let moment = (NOW + 42).to_string();
        for (pairs, expected) in [
            (&[][..], None),
            (&[("retry-after", "7")], Some(7)),
            (&[("retry-after", "0")], Some(0)),
            (&[("retry-after", " 7 ")], Some(7)),
            (&[("retry-after", "-7")], None),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "99999999999999999999")], None),
            (&[("retry-after", "86400")], Some(3600)),
            // NOW is 2027-01-15T08:00:00Z.
            (
                &[("retry-after", "Fri, 15 Jan 2027 08:01:00 GMT")],
                Some(60),
            ),
            (&[("retry-after", "Fri, 15 Jan 2027 07:59:00 GMT")], Some(0)),
            (
                &[("retry-after", "Tue, 15 Jan 2999 07:59:00 GMT")],
                Some(3600),
            ),
            (
                &[("retry-after", "Friday, 15-Jan-27 08:01:00 GMT")],
                Some(60),
            ),
            (&[("retry-after", "Fri Jan 15 08:01:00 2027")], Some(60)),
            (&[("retry-after", "Sat, 15 Jan 2027 08:01:00 GMT")], None),
            (&[("retry-after", "Fri, 15 Jan 2027 08:01:00 CET")], None),
            (&[("retry-after", "Fri, 35 Jan 2027 08:01:00 GMT")], None),
            (
                &[("ratelimit-remaining", "0"), ("ratelimit-reset", "9")],
                Some(9),
            ),
            (
                &[("ratelimit-remaining", "0"), ("ratelimit-reset", &moment)],
                Some(42),
            ),
            (
                &[("ratelimit-remaining", "3"), ("ratelimit-reset", "9")],
                None,
            ),
            (&[("ratelimit-remaining", "0")], None),
            (
                &[
                    ("retry-after", "5"),
                    ("ratelimit-remaining", "0"),
                    ("ratelimit-reset", "9"),
                ],
                Some(9),
            ),
        ] {
            assert_eq!(wait(pairs), expected, "{pairs:?}");
        }
    }
}
