//! `/xrpc`: what is mirrored, read as from any server of repositories. Which method,
//! with which parameters, and the answer with what it stands on; what is read and
//! decided is [`crate::serve`]'s.

mod parameters;
mod reply;
mod repo;
mod sync;

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::rejection::{ExtensionRejection, PathRejection};
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{Method, Uri};
use axum::response::Response;

use super::listener::Peer;
use super::{App, call};
use crate::serve::{Refusal, Serving};
use gapless_mirror::api::ApiError;
use parameters::Parameters;

/// A question, read as far as every method needs it.
struct Question {
    app: Arc<App>,
    serving: Arc<Serving>,
    parameters: Parameters,
    /// Who asks.
    peer: Option<IpAddr>,
    /// Only the head of the answer is wanted.
    head_only: bool,
}

/// Answers one request. Whatever becomes of it, pages anywhere may read the answer.
pub async fn answer(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    peer: Result<ConnectInfo<Peer>, ExtensionRejection>,
    method: Method,
    uri: Uri,
) -> Response {
    // What cannot be read is the name of nothing.
    let name = path.map(|Path(name)| name).unwrap_or_default();
    if method == Method::OPTIONS {
        return reply::options();
    }
    if !METHODS.contains(&name.as_str()) {
        return reply::unknown(&name);
    }
    let peer = peer.ok();
    let peer = peer.map(|ConnectInfo(Peer(address))| address.ip());
    let answered = match read(app, &method, &uri, peer) {
        Ok(question) => dispatch(&name, question).await,
        Err(refusal) => Err(refusal),
    };
    match answered {
        Ok(response) => reply::open(response),
        Err(refusal) => reply::refused(&refusal),
    }
}

fn read(
    app: Arc<App>,
    method: &Method,
    uri: &Uri,
    peer: Option<IpAddr>,
) -> Result<Question, Refusal> {
    if method != Method::GET && method != Method::HEAD {
        return Err(Refusal::invalid(format!(
            "Incorrect HTTP method ({method}) expected GET"
        )));
    }
    Ok(Question {
        parameters: Parameters::of(uri)?,
        peer,
        serving: serving(&app).map_err(unavailable)?,
        head_only: method == Method::HEAD,
        app,
    })
}

fn serving(app: &App) -> Result<Arc<Serving>, ApiError> {
    app.running()?.serving().cloned()
}

/// The methods that there are.
const METHODS: [&str; 10] = [
    "com.atproto.sync.getRepo",
    "com.atproto.sync.getRecord",
    "com.atproto.sync.getBlocks",
    "com.atproto.sync.getLatestCommit",
    "com.atproto.sync.getRepoStatus",
    "com.atproto.sync.listRepos",
    "com.atproto.sync.listReposByCollection",
    "com.atproto.repo.getRecord",
    "com.atproto.repo.listRecords",
    "com.atproto.repo.describeRepo",
];

async fn dispatch(name: &str, question: Question) -> Result<Response, Refusal> {
    match name {
        "com.atproto.sync.getRepo" => sync::get_repo(question).await,
        "com.atproto.sync.getRecord" => sync::get_record(question).await,
        "com.atproto.sync.getBlocks" => sync::get_blocks(question).await,
        "com.atproto.sync.getLatestCommit" => sync::get_latest_commit(question).await,
        "com.atproto.sync.getRepoStatus" => sync::get_repo_status(question).await,
        "com.atproto.sync.listRepos" => sync::list_repos(question).await,
        "com.atproto.sync.listReposByCollection" => sync::list_by_collection(question).await,
        "com.atproto.repo.getRecord" => repo::get_record(question).await,
        "com.atproto.repo.listRecords" => repo::list_records(question).await,
        "com.atproto.repo.describeRepo" => repo::describe_repo(question).await,
        _ => Err(Refusal::Internal(format!("{name} is not answered"))),
    }
}

fn unavailable(error: ApiError) -> Refusal {
    match error {
        ApiError::Unavailable(words) => Refusal::Unavailable(words),
        other => Refusal::Internal(other.to_string()),
    }
}

impl Question {
    /// Reads what is held, on a thread that may wait; few do so at a time.
    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Serving) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let serving = self.serving.clone();
        let asked = call(&self.app, move |_| Ok(work(&serving))).await;
        asked.map_err(unavailable)?
    }
}
