//! A request that is refused while its body is still coming: the rest is read for a
//! while and thrown away. Otherwise the connection would be reset under whoever sends
//! it, who would never read why.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody};
use futures_util::StreamExt;

/// So long, and so many bytes: enough to read an answer beside sending.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: u64 = 256 << 20;

/// Passes over the rest of a body that nobody has begun to read.
pub fn pass_over(body: Body) {
    if !body.is_end_stream() {
        pass_over_rest(body.into_data_stream());
    }
}

/// The same for one that was begun. Those who may send are bounded by connections.
pub fn pass_over_rest(mut pieces: BodyDataStream) {
    tokio::spawn(async move {
        let rest = async {
            let mut passed: u64 = 0;
            while let Some(Ok(piece)) = pieces.next().await {
                passed = passed.saturating_add(piece.len() as u64);
                if passed > LINGER_BYTES {
                    return;
                }
            }
        };
        // It ends one way or the other.
        let _ = tokio::time::timeout(LINGER, rest).await;
    });
}
