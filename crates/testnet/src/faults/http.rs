//! Faults of HTTP responses: errors, silence, slowness.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use futures_util::stream;
use gapless_atp::syntax::Did;

use super::kinds::{Fault, Place};
use super::registry::Faults;
use crate::http::{Answer, Refusal, text_answer};

/// Pieces per second of a slow response.
const DRIPS_PER_SECOND: u64 = 10;

/// Applies faults before a request is answered: waits if a fault says so, and returns the
/// response that a fault wants instead of the true one.
pub async fn gate(faults: &Faults, place: Place, route: &str, did: Option<&Did>) -> Option<Answer> {
    let on_route = |wanted: &Option<String>| wanted.as_deref().is_none_or(|name| name == route);
    let stalled = faults.take_with_id(place, did, |fault| match fault {
        Fault::Stall { ms, route } if on_route(route) => Some(*ms),
        Fault::DialSilence { after: false } if is_dial(route) => Some(None),
        _ => None,
    });
    if let Some((id, ms)) = stalled {
        let cleared = faults.cleared(id);
        match ms {
            None => cleared.await,
            Some(ms) => {
                let _ = tokio::time::timeout(Duration::from_millis(ms), cleared).await;
            }
        }
    }
    let (status, retry_after) = faults.take(place, did, |fault| match fault {
        Fault::HttpError {
            status,
            retry_after,
            route,
        } if on_route(route) => Some((*status, *retry_after)),
        Fault::DialError { status } if is_dial(route) => Some((*status, None)),
        Fault::PlcDown {} if place == Place::Plc => Some((503, None)),
        Fault::Plc429 { retry_after } if place == Place::Plc => Some((429, *retry_after)),
        _ => None,
    })?;
    let mut answer = match status {
        429 => Refusal::new(429, "RateLimitExceeded", "Rate Limit Exceeded").answer(),
        // Proxies in front of a broken server do not send JSON.
        500.. => text_answer(status, "upstream is not available\n"),
        _ => Refusal::new(status, "InvalidRequest", "refused on demand").answer(),
    };
    if let Some(seconds) = retry_after {
        answer
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    Some(answer)
}

fn is_dial(route: &str) -> bool {
    matches!(route, "subscribeRepos" | "subscribe")
}

/// Slows a response down, if a fault wants that.
pub async fn drip(
    faults: &Faults,
    place: Place,
    route: &str,
    did: Option<&Did>,
    answer: Answer,
) -> Answer {
    if answer.status().is_informational() {
        return answer;
    }
    let pace = faults.take(place, did, |fault| match fault {
        Fault::Drip {
            bytes_per_second,
            route: wanted,
        } if wanted.as_deref().is_none_or(|name| name == route) => Some(*bytes_per_second),
        _ => None,
    });
    let Some(pace) = pace else {
        return answer;
    };
    let drop_bytes = (pace / DRIPS_PER_SECOND).max(1) as usize;
    let (mut head, body) = answer.into_parts();
    head.headers.remove(header::CONTENT_LENGTH);
    let bytes = axum::body::to_bytes(body, usize::MAX).await;
    let bytes = bytes.unwrap_or_default();
    let drops = stream::unfold(bytes, move |mut left: Bytes| async move {
        if left.is_empty() {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(1000 / DRIPS_PER_SECOND)).await;
        let next = left.split_to(drop_bytes.min(left.len()));
        Some((Ok::<_, std::io::Error>(next), left))
    });
    Answer::from_parts(head, Body::from_stream(drops))
}
