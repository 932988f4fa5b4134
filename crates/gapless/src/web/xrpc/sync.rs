//! `com.atproto.sync.*`: repositories, proofs, blocks, heads and listings.

use axum::body::Body;
use axum::response::Response;
use futures_util::stream;
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use super::{Question, reply};
use crate::serve::Refusal;
use crate::serve::getrepo::Piece;
use crate::serve::limits::{BY_COLLECTION_LONGEST, BY_COLLECTION_PAGE, REPOS_LONGEST, REPOS_PAGE};

pub async fn get_repo(question: Question) -> Result<Response, Refusal> {
    let did = question.parameters.did()?;
    // The whole is a legal answer to every `since`.
    question.parameters.since()?;
    if question.head_only {
        question.serving.needs_everything()?;
        let exact = question.ask(move |serving| serving.exact(&did)).await?;
        return Ok(reply::car(&exact.head, &exact.evidence, Body::empty()));
    }
    let sent = question.serving.repo_car(&did, question.peer).await?;
    let body = Body::from_stream(body(sent.pieces));
    Ok(reply::car(&sent.head, &sent.evidence, body))
}

/// The pieces as a body. One that ends without the last piece breaks off, so that no
/// reader takes it for whole.
fn body(
    pieces: Receiver<Piece>,
) -> impl stream::Stream<Item = Result<bytes::Bytes, std::io::Error>> {
    stream::unfold(Some(pieces), |pieces| async {
        let mut pieces = pieces?;
        match pieces.recv().await {
            Some(Piece::Bytes(bytes)) => Some((Ok(bytes), Some(pieces))),
            Some(Piece::Whole) => None,
            None => Some((Err(std::io::Error::other("cut short")), None)),
        }
    })
}

pub async fn get_record(question: Question) -> Result<Response, Refusal> {
    let parameters = &question.parameters;
    let did = parameters.did()?;
    let path = format!("{}/{}", parameters.collection()?, parameters.record_key()?);
    let proved = question.serving.record_proof(&did, path, question.peer);
    let (exact, car) = proved.await?;
    Ok(reply::car(&exact.head, &exact.evidence, Body::from(car)))
}

pub async fn get_blocks(question: Question) -> Result<Response, Refusal> {
    let did = question.parameters.did()?;
    let cids = question.parameters.cids()?;
    let found = question.serving.blocks(&did, cids, question.peer);
    let (exact, car) = found.await?;
    Ok(reply::car(&exact.head, &exact.evidence, Body::from(car)))
}

pub async fn get_latest_commit(question: Question) -> Result<Response, Refusal> {
    let did = question.parameters.did()?;
    let exact = question.ask(move |serving| serving.head(&did)).await?;
    let head = &exact.head;
    let told = json!({ "cid": head.commit.to_string(), "rev": head.rev.to_string() });
    Ok(reply::json_of(&exact, &told))
}

pub async fn get_repo_status(question: Question) -> Result<Response, Refusal> {
    let did = question.parameters.did()?;
    let status = question
        .ask(move |serving| serving.repo_status(&did))
        .await?;
    Ok(reply::json(&status))
}

pub async fn list_repos(question: Question) -> Result<Response, Refusal> {
    let limit = question.parameters.limit(REPOS_PAGE, REPOS_LONGEST)?;
    let after = question.parameters.cursor()?;
    let page = question.ask(move |serving| serving.list_repos(after, limit));
    Ok(reply::json(&page.await?))
}

pub async fn list_by_collection(question: Question) -> Result<Response, Refusal> {
    let parameters = &question.parameters;
    let collection = parameters.collection()?;
    let limit = parameters.limit(BY_COLLECTION_PAGE, BY_COLLECTION_LONGEST)?;
    let after = parameters.cursor()?;
    let page =
        question.ask(move |serving| serving.list_by_collection(collection.as_str(), after, limit));
    Ok(reply::json(&page.await?))
}
