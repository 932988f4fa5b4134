//! `com.atproto.sync.*`: repositories, proofs, blocks, heads and listings.

use axum::body::Body;
use axum::response::Response;
use futures_util::stream;
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use super::{XrpcRequest, reply};
use crate::serve::ServeError;
use crate::serve::getrepo::ExportPiece;
use crate::serve::limits::{
    BY_COLLECTION_DEFAULT_LIMIT, BY_COLLECTION_MAX_LIMIT, REPOS_DEFAULT_LIMIT, REPOS_MAX_LIMIT,
};

pub(crate) async fn get_repo(request: XrpcRequest) -> Result<Response, ServeError> {
    let did = request.parameters.did()?;
    // The whole repository is a legal answer to every `since`.
    request.parameters.since()?;
    if request.head_only {
        request.serving.require_whole_repos()?;
        let state = request
            .call_serving(move |serving| serving.served_state(&did))
            .await?;
        return Ok(reply::car(&state.head, &state.evidence, Body::empty()));
    }
    let sent = request.serving.export_repo(&did, request.peer).await?;
    let body = Body::from_stream(body(sent.pieces));
    Ok(reply::car(&sent.head, &sent.evidence, body))
}

/// The pieces of an export as a response body. The body fails if the export was broken off,
/// so that no client takes it for complete.
fn body(
    pieces: Receiver<ExportPiece>,
) -> impl stream::Stream<Item = Result<bytes::Bytes, std::io::Error>> {
    stream::unfold(Some(pieces), |pieces| async {
        let mut pieces = pieces?;
        match pieces.recv().await {
            Some(ExportPiece::Bytes(bytes)) => Some((Ok(bytes), Some(pieces))),
            Some(ExportPiece::End) => None,
            None => Some((Err(std::io::Error::other("cut short")), None)),
        }
    })
}

pub(crate) async fn get_record(request: XrpcRequest) -> Result<Response, ServeError> {
    let parameters = &request.parameters;
    let did = parameters.did()?;
    let path = format!("{}/{}", parameters.collection()?, parameters.record_key()?);
    let proved = request.serving.record_proof(&did, path, request.peer);
    let (state, car) = proved.await?;
    Ok(reply::car(&state.head, &state.evidence, Body::from(car)))
}

pub(crate) async fn get_blocks(request: XrpcRequest) -> Result<Response, ServeError> {
    let did = request.parameters.did()?;
    let cids = request.parameters.cids()?;
    let found = request.serving.blocks(&did, cids, request.peer);
    let (state, car) = found.await?;
    Ok(reply::car(&state.head, &state.evidence, Body::from(car)))
}

pub(crate) async fn get_latest_commit(request: XrpcRequest) -> Result<Response, ServeError> {
    let did = request.parameters.did()?;
    let state = request
        .call_serving(move |serving| serving.held_state(&did))
        .await?;
    let head = &state.head;
    let commit = json!({ "cid": head.commit.to_string(), "rev": head.rev.to_string() });
    Ok(reply::json_of(&state, &commit))
}

pub(crate) async fn get_repo_status(request: XrpcRequest) -> Result<Response, ServeError> {
    let did = request.parameters.did()?;
    let status = request
        .call_serving(move |serving| serving.repo_status(&did))
        .await?;
    Ok(reply::json(&status))
}

pub(crate) async fn list_repos(request: XrpcRequest) -> Result<Response, ServeError> {
    let limit = request
        .parameters
        .limit(REPOS_DEFAULT_LIMIT, REPOS_MAX_LIMIT)?;
    let after = request.parameters.cursor()?;
    let page = request.call_serving(move |serving| serving.list_repos(after, limit));
    Ok(reply::json(&page.await?))
}

pub(crate) async fn list_by_collection(request: XrpcRequest) -> Result<Response, ServeError> {
    let parameters = &request.parameters;
    let collection = parameters.collection()?;
    let limit = parameters.limit(BY_COLLECTION_DEFAULT_LIMIT, BY_COLLECTION_MAX_LIMIT)?;
    let after = parameters.cursor()?;
    let page = request
        .call_serving(move |serving| serving.list_by_collection(collection.as_str(), after, limit));
    Ok(reply::json(&page.await?))
}
