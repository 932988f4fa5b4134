//! `com.atproto.repo.*`: records as JSON, and who a repository is.

use axum::response::Response;

use super::{Question, reply};
use crate::serve::Refusal;
use crate::serve::limits::{RECORDS_LONGEST, RECORDS_PAGE};
use crate::serve::records::Asked;

pub async fn get_record(question: Question) -> Result<Response, Refusal> {
    let parameters = &question.parameters;
    let who = parameters.who()?;
    let path = format!("{}/{}", parameters.collection()?, parameters.record_key()?);
    let version = parameters.cid()?;
    let did = question.serving.did_of(&who).await?;
    let found = question.ask(move |serving| serving.record(&did, &path, version.as_ref()));
    let (exact, record) = found.await?;
    Ok(reply::json_of(&exact, &record))
}

pub async fn list_records(question: Question) -> Result<Response, Refusal> {
    let parameters = &question.parameters;
    let who = parameters.who()?;
    let asked = Asked {
        collection: parameters.collection()?.to_string(),
        limit: parameters.limit(RECORDS_PAGE, RECORDS_LONGEST)?,
        cursor: parameters.cursor_key()?.map(|key| key.to_string()),
        reverse: parameters.reverse()?,
    };
    let did = question.serving.did_of(&who).await?;
    let found = question.ask(move |serving| serving.records(&did, &asked));
    let (exact, page) = found.await?;
    Ok(reply::json_of(&exact, &page))
}

pub async fn describe_repo(question: Question) -> Result<Response, Refusal> {
    let who = question.parameters.who()?;
    let did = question.serving.did_of(&who).await?;
    let (exact, described) = question.serving.describe(&did).await?;
    Ok(reply::json_of(&exact, &described))
}
