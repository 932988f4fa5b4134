//! `POST /v1/verify`: recomputes every root and streams the progress: a line of JSON now
//! and then, the report as the last line. One verification runs at a time. It ends when
//! the client disconnects, and when the server stops.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::sync::mpsc::{self, Sender};

use super::App;
use super::response::{HttpError, with_body};
use gapless_mirror::api::{ApiError, ErrorBody, VerifyLine, VerifyProgress};

/// Lines that wait for a slow client; further progress is left out.
const BUFFERED_LINES: usize = 16;

pub(crate) async fn all(State(app): State<Arc<App>>) -> Response {
    let Ok(permit) = Arc::clone(&app.verifying).try_acquire_owned() else {
        let words = "a verification of all repositories is running; wait for it to end";
        return HttpError::from(ApiError::Conflict(words.to_owned())).into_response();
    };
    let (lines, reader) = mpsc::channel(BUFFERED_LINES);
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        run(&app, &lines);
    });
    let stream = stream::unfold(reader, |mut reader| async move {
        let line: Bytes = reader.recv().await?;
        Some((Ok::<_, std::io::Error>(line), reader))
    });
    let body = Body::from_stream(stream);
    with_body(StatusCode::OK, "application/x-ndjson", body)
}

fn run(app: &App, lines: &Sender<Bytes>) {
    let progress = |now: VerifyProgress| {
        // A slow reader misses some lines and does not delay the verification.
        let _ = lines.try_send(text(&VerifyLine::Progress(now)));
        !lines.is_closed() && !app.stopping.is_ending()
    };
    let verified = app
        .running()
        .and_then(|running| running.inspector.verify_all(&progress));
    let last = match verified {
        Ok(report) => VerifyLine::Report(report),
        Err(error) => VerifyLine::Failed(ErrorBody {
            error: error.name().to_owned(),
            message: error.to_string(),
        }),
    };
    // The client may have disconnected.
    let _ = lines.blocking_send(text(&last));
}

fn text(line: &VerifyLine) -> Bytes {
    // The types of the API always encode as JSON.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    Bytes::from(text)
}
