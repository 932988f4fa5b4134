//! `POST /v1/import`: a repository as a CAR, from whoever has one. Its bytes are hashed
//! as they come, within the bounds of a fetched one; one at a time. Whoever is refused
//! while the file is still coming can read why.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::State;
use futures_util::StreamExt;

use super::answer::{Answer, Json, Refusal};
use super::{App, ask, linger};
use crate::api::{ApiError, ImportAnswer};
use crate::fetch::import::unfit;

/// So long nothing may come.
const SILENCE: Duration = Duration::from_secs(30);

pub async fn import(State(app): State<App>, body: Body) -> Answer<ImportAnswer> {
    let mut pieces = body.into_data_stream();
    let taken = take(&app, &mut pieces).await;
    if taken.is_err() {
        linger::pass_over_rest(pieces);
    }
    taken
}

async fn take(app: &App, pieces: &mut BodyDataStream) -> Answer<ImportAnswer> {
    let Ok(_turn) = Arc::clone(&app.importing).try_acquire_owned() else {
        let words = "another file is being imported; wait for that to end";
        return Err(ApiError::Conflict(words.to_owned()).into());
    };
    let fetcher = app.mirror.serving()?.fetcher.clone();
    let mut spill = Some(fetcher.import_spill());
    let mut flaw: Option<ApiError> = None;
    let mut came: u64 = 0;
    loop {
        let piece = tokio::time::timeout(SILENCE, pieces.next()).await;
        let piece = match piece {
            Ok(None) => break,
            Ok(Some(Ok(piece))) => piece,
            Ok(Some(Err(error))) => {
                return Err(ask::wrong(format!("the file did not come whole: {error}")));
            }
            Err(_) => return Err(ask::wrong(format!("nothing came for {SILENCE:?}"))),
        };
        came = came.saturating_add(piece.len() as u64);
        if came > fetcher.settings.repo_bytes {
            let most = fetcher.settings.repo_bytes;
            let words = format!("the file has more than {most} bytes (fetch.max_repo_bytes)");
            return Err(Refusal::from(ApiError::Invalid(words)));
        }
        // The rest is read all the same: who is still sending would not hear why it
        // is refused.
        if let Some(Err(error)) = spill.as_mut().map(|spill| spill.feed(&piece)) {
            flaw = Some(unfit(&error));
            spill = None;
        }
    }
    if let Some(flaw) = flaw {
        return Err(flaw.into());
    }
    let Some(spill) = spill else {
        return Err(ApiError::Internal("the file was lost".to_owned()).into());
    };
    let fetched = spill.finish().map_err(|error| unfit(&error))?;
    Ok(Json(fetcher.import(fetched).await?))
}
