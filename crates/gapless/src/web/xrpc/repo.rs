//! `com.atproto.repo.*`: records as JSON, and descriptions of repositories.

use axum::response::Response;

use super::{XrpcRequest, reply};
use crate::serve::ServeError;
use crate::serve::limits::{RECORDS_DEFAULT_LIMIT, RECORDS_MAX_LIMIT};
use crate::serve::records::RecordsQuery;

pub(crate) async fn get_record(request: XrpcRequest) -> Result<Response, ServeError> {
    let parameters = &request.parameters;
    let repo = parameters.repo()?;
    let path = format!("{}/{}", parameters.collection()?, parameters.record_key()?);
    let version = parameters.cid()?;
    let did = request.serving.did_of(&repo).await?;
    let found = request.call_serving(move |serving| serving.record(&did, &path, version.as_ref()));
    let (state, record) = found.await?;
    Ok(reply::json_of(&state, &record))
}

pub(crate) async fn list_records(request: XrpcRequest) -> Result<Response, ServeError> {
    let parameters = &request.parameters;
    let repo = parameters.repo()?;
    let query = RecordsQuery {
        collection: parameters.collection()?.to_string(),
        limit: parameters.limit(RECORDS_DEFAULT_LIMIT, RECORDS_MAX_LIMIT)?,
        cursor: parameters.cursor_key()?.map(|key| key.to_string()),
        reverse: parameters.reverse()?,
    };
    let did = request.serving.did_of(&repo).await?;
    let found = request.call_serving(move |serving| serving.records(&did, &query));
    let (state, page) = found.await?;
    Ok(reply::json_of(&state, &page))
}

pub(crate) async fn describe_repo(request: XrpcRequest) -> Result<Response, ServeError> {
    let repo = request.parameters.repo()?;
    let did = request.serving.did_of(&repo).await?;
    let (state, described) = request.serving.describe(&did).await?;
    Ok(reply::json_of(&state, &described))
}
