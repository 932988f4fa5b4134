//! `POST /v1/import`: a repository as a CAR file. Its bytes are hashed as they arrive,
//! within the limits of a fetched repository; one import runs at a time. A client that
//! is refused while it is still sending can read why.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::State;
use futures_util::StreamExt;

use super::response::{HttpError, Json, JsonResult};
use super::{App, drain, request};
use gapless_mirror::api::{ApiError, ImportAnswer};
use gapless_mirror::repair::import::spill_error;

/// How long a client may send nothing.
const SILENCE: Duration = Duration::from_secs(30);

pub(crate) async fn import(State(app): State<Arc<App>>, body: Body) -> JsonResult<ImportAnswer> {
    let mut pieces = body.into_data_stream();
    let imported = receive(&app, &mut pieces).await;
    if imported.is_err() {
        drain::drain_stream(pieces);
    }
    imported
}

async fn receive(app: &Arc<App>, pieces: &mut BodyDataStream) -> JsonResult<ImportAnswer> {
    let Ok(_permit) = Arc::clone(&app.importing).try_acquire_owned() else {
        let words = "another import is running; wait for it to end";
        return Err(ApiError::Conflict(words.to_owned()).into());
    };
    let importer = app.running()?.importer()?;
    let mut spill = Some(importer.new_spill());
    let mut flaw: Option<ApiError> = None;
    let mut received: u64 = 0;
    loop {
        let piece = tokio::time::timeout(SILENCE, pieces.next()).await;
        let piece = match piece {
            Ok(None) => break,
            Ok(Some(Ok(piece))) => piece,
            Ok(Some(Err(error))) => {
                return Err(request::invalid(format!("the upload ended early: {error}")));
            }
            Err(_) => {
                return Err(request::invalid(format!(
                    "the upload sent nothing for {SILENCE:?}"
                )));
            }
        };
        received = received.saturating_add(piece.len() as u64);
        let most = importer.max_bytes();
        if received > most {
            let words = format!("the file has more than {most} bytes (fetch.max_repo_bytes)");
            return Err(HttpError::from(ApiError::Invalid(words)));
        }
        // After an error the rest is still read, because a client that is sending does not
        // read the response.
        if let Some(Err(error)) = spill.as_mut().map(|spill| spill.feed(&piece)) {
            flaw = Some(spill_error(&error));
            spill = None;
        }
    }
    if let Some(flaw) = flaw {
        return Err(flaw.into());
    }
    let Some(spill) = spill else {
        return Err(ApiError::Internal("the uploaded file was lost".to_owned()).into());
    };
    let fetched = spill.finish().map_err(|error| spill_error(&error))?;
    Ok(Json(importer.import(fetched).await?))
}
