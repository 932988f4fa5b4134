//! `/xrpc`: the methods by which other programs read the mirrored repositories. This
//! module reads the parameters and encodes the responses; [`crate::serve`] reads and
//! decides.

mod parameters;
mod reply;
mod repo;
mod sync;

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{Method, Uri};
use axum::response::Response;

use super::listener::Peer;
use super::{App, call};
use crate::serve::{ServeError, Serving};
use gapless_mirror::api::ApiError;
use parameters::Parameters;

/// A request, parsed as far as every method needs it.
struct XrpcRequest {
    app: Arc<App>,
    serving: Arc<Serving>,
    parameters: Parameters,
    /// The address of the client.
    peer: Option<IpAddr>,
    /// The method is HEAD.
    head_only: bool,
}

/// Answers one request. Web pages of any origin may read the response.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    peer: Option<Extension<Peer>>,
    method: Method,
    uri: Uri,
) -> Response {
    // A path that cannot be decoded names no method.
    let name = path.map(|Path(name)| name).unwrap_or_default();
    if method == Method::OPTIONS {
        return reply::options();
    }
    if !METHODS.contains(&name.as_str()) {
        return reply::unknown(&name);
    }
    let peer = peer.map(|Extension(Peer(address))| address.ip());
    let answered = match read(app, &method, &uri, peer) {
        Ok(request) => dispatch(&name, request).await,
        Err(error) => Err(error),
    };
    match answered {
        Ok(response) => reply::allow_any_origin(response),
        Err(error) => reply::error_response(&error),
    }
}

fn read(
    app: Arc<App>,
    method: &Method,
    uri: &Uri,
    peer: Option<IpAddr>,
) -> Result<XrpcRequest, ServeError> {
    if method != Method::GET && method != Method::HEAD {
        return Err(ServeError::invalid(format!(
            "Incorrect HTTP method ({method}) expected GET"
        )));
    }
    Ok(XrpcRequest {
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

/// The methods that are implemented.
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

async fn dispatch(name: &str, request: XrpcRequest) -> Result<Response, ServeError> {
    match name {
        "com.atproto.sync.getRepo" => sync::get_repo(request).await,
        "com.atproto.sync.getRecord" => sync::get_record(request).await,
        "com.atproto.sync.getBlocks" => sync::get_blocks(request).await,
        "com.atproto.sync.getLatestCommit" => sync::get_latest_commit(request).await,
        "com.atproto.sync.getRepoStatus" => sync::get_repo_status(request).await,
        "com.atproto.sync.listRepos" => sync::list_repos(request).await,
        "com.atproto.sync.listReposByCollection" => sync::list_by_collection(request).await,
        "com.atproto.repo.getRecord" => repo::get_record(request).await,
        "com.atproto.repo.listRecords" => repo::list_records(request).await,
        "com.atproto.repo.describeRepo" => repo::describe_repo(request).await,
        _ => Err(ServeError::Internal(format!("{name} is not answered"))),
    }
}

fn unavailable(error: ApiError) -> ServeError {
    match error {
        ApiError::Unavailable(words) => ServeError::Unavailable(words),
        other => ServeError::Internal(other.to_string()),
    }
}

impl XrpcRequest {
    /// Reads the store on a blocking thread; the number of concurrent calls is limited.
    async fn call_serving<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Serving) -> Result<T, ServeError> + Send + 'static,
    ) -> Result<T, ServeError> {
        let serving = self.serving.clone();
        let asked = call(&self.app, move |_| Ok(work(&serving))).await;
        asked.map_err(unavailable)?
    }
}
