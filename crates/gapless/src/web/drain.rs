//! Drains the body of a request that was refused before the body had arrived: the rest
//! is read for a while and discarded. Otherwise the connection would be reset while the
//! client is still sending, and the client would never read the error.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, HttpBody};
use futures_util::StreamExt;

/// How long a body is drained: enough for a client to read the response while it sends.
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// Bytes that are drained of one body.
const DRAIN_BYTES: u64 = 256 << 20;

/// Drains a body of which no handler has read anything.
pub(crate) fn drain_body(body: Body) {
    if !body.is_end_stream() {
        drain_stream(body.into_data_stream());
    }
}

/// Drains the rest of a body that a handler has begun to read. The number of clients
/// that send is bounded by the number of connections.
pub(crate) fn drain_stream(mut pieces: BodyDataStream) {
    tokio::spawn(async move {
        let rest = async {
            let mut drained: u64 = 0;
            while let Some(Ok(piece)) = pieces.next().await {
                drained = drained.saturating_add(piece.len() as u64);
                if drained > DRAIN_BYTES {
                    return;
                }
            }
        };
        // Either way the draining ends.
        let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
    });
}
