//! Serves a prepared load over sockets: a directory and one PDS.
//!
//! Nothing is sent until commits are released. Released commits are sent as fast as the
//! socket takes them, in large pieces. Repositories are served in their state after the
//! released commits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use gapless_atp::car::{write_block, write_header};
use gapless_atp::cid::Cid;
use gapless_atp::frame::encode_error;
use gapless_atp::mst::{self, TreeError, Visit};
use gapless_atp::syntax::{Did, Tid};
use serde_json::{Value as Json, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Load, LoadError};
use crate::http::{
    self, Answer, Query, Refusal, did_in_path, json_answer, ok, read_json, settle, with_type,
};
use crate::plc::{Statement, document};
use crate::stream::socket::{self, BINARY, CLOSE_POLICY, Incoming, Socket, write_frame};

/// The number of bytes that are assembled before they are written.
const PIECE_BYTES: usize = 1 << 20;
/// Steps per second of a release at a pace.
const RELEASES_PER_SECOND: u64 = 100;

struct Context {
    load: Arc<Load>,
    pds_url: String,
    released: watch::Sender<u64>,
}

/// A load that is being served. Dropping it stops the servers.
pub struct LoadServer {
    context: Arc<Context>,
    tasks: Vec<JoinHandle<()>>,
    pub plc_url: String,
    pub pds_url: String,
}

impl LoadServer {
    pub async fn start(load: Load) -> Result<LoadServer, LoadError> {
        let bind = async |port| {
            let bound = http::bind(port).await;
            bound.map_err(|error| LoadError::Bind { port, error })
        };
        let port = load.config.port;
        let next = match port {
            0 => 0,
            _ => port.checked_add(1).ok_or(LoadError::Ports(port))?,
        };
        let plc = bind(port).await?;
        let pds = bind(next).await?;
        let url = |listener: &tokio::net::TcpListener| {
            let port = listener.local_addr().map_or(0, |address| address.port());
            format!("http://localhost:{port}")
        };
        let (plc_url, pds_url) = (url(&plc), url(&pds));
        let context = Arc::new(Context {
            load: Arc::new(load),
            pds_url: pds_url.clone(),
            released: watch::Sender::new(0),
        });
        let tasks = vec![
            http::serve(plc, context.clone(), directory),
            http::serve(pds, context.clone(), host),
        ];
        Ok(LoadServer {
            context,
            tasks,
            plc_url,
            pds_url,
        })
    }

    pub fn load(&self) -> &Load {
        &self.context.load
    }

    /// Releases this many more commits.
    pub fn release(&self, commits: u64) {
        self.context.release(commits);
    }

    pub fn released(&self) -> u64 {
        *self.context.released.borrow()
    }
}

impl Drop for LoadServer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Context {
    fn release(&self, commits: u64) {
        let most = self.load.commits();
        self.released
            .send_modify(|released| *released = released.saturating_add(commits).min(most));
    }

    /// The repository that a request names, and the number of commits that it has made.
    fn asked(&self, query: &Query) -> Result<(Did, u32, u64), Refusal> {
        let did = query.get("did").and_then(|did| Did::parse(did).ok());
        let did = did.ok_or_else(|| Refusal::invalid("Error: did must be a valid did"))?;
        let not_found = || Refusal::new(400, "RepoNotFound", format!("no repo {did}"));
        let repo = self.load.repo_of(&did).ok_or_else(not_found)?;
        let nth = self.load.nth_at(repo, *self.released.borrow());
        Ok((did, repo, nth))
    }
}

async fn release_at(context: Arc<Context>, commits: u64, per_second: f64) {
    let start = Instant::now();
    let mut done = 0;
    while done < commits {
        tokio::time::sleep(Duration::from_millis(1000 / RELEASES_PER_SECOND)).await;
        let due = (start.elapsed().as_secs_f64() * per_second) as u64;
        let due = due.min(commits);
        context.release(due.saturating_sub(done));
        done = done.max(due);
    }
}

async fn directory(context: Arc<Context>, request: Request<Body>) -> Answer {
    let path = request.uri().path().trim_start_matches('/');
    let did = did_in_path(path);
    let repo = did.as_ref().and_then(|did| context.load.repo_of(did));
    let (Some(did), Some(repo)) = (did, repo) else {
        let message = format!("DID not registered: {path}");
        return json_answer(404, &json!({ "message": message }));
    };
    let key = context.load.key(repo).public().to_did_key();
    let statement = Statement {
        rotation_key: key.clone(),
        signing_key: key,
        handle: format!("load{repo}.test"),
        endpoint: context.pds_url.clone(),
    };
    let document = document(did.as_str(), &statement, false);
    with_type(200, "application/did+ld+json", document.to_string())
}

async fn host(context: Arc<Context>, request: Request<Body>) -> Answer {
    let path = request.uri().path().to_owned();
    let query = Query::of(&request);
    match path.trim_start_matches("/xrpc/") {
        "com.atproto.sync.subscribeRepos" => subscribe(context, &query, request),
        "com.atproto.sync.getRepo" => settle(get_repo(&context, &query)),
        "com.atproto.sync.getLatestCommit" => {
            settle(context.asked(&query).map(|(_, repo, nth)| {
                let (rev, block) = context.load.commit(repo, nth);
                let cid = Cid::dag_cbor(&block);
                ok(&json!({ "cid": cid.to_string(), "rev": rev.to_string() }))
            }))
        }
        "com.atproto.sync.getRepoStatus" => {
            settle(context.asked(&query).map(|(did, repo, nth)| {
                let (rev, _) = context.load.commit(repo, nth);
                ok(&json!({ "did": did.as_str(), "active": true, "rev": rev.to_string() }))
            }))
        }
        "com.atproto.sync.listRepos" => settle(list_repos(&context, &query)),
        "com.atproto.server.describeServer" => ok(&json!({ "availableUserDomains": [".test"] })),
        "/_load/release" => match read_json(request).await {
            Ok(body) => release(context, &body),
            Err(refused) => refused.answer(),
        },
        _ => Refusal::new(501, "MethodNotImplemented", "Method Not Implemented").answer(),
    }
}

fn release(context: Arc<Context>, body: &Json) -> Answer {
    let commits = body["commits"].as_u64().unwrap_or(u64::MAX);
    match body["per_second"].as_f64() {
        Some(pace) if pace > 0.0 => {
            let commits = commits.min(context.load.commits());
            tokio::spawn(release_at(context.clone(), commits, pace));
        }
        _ => context.release(commits),
    }
    ok(&json!({ "released": *context.released.borrow(), "of": context.load.commits() }))
}

fn get_repo(context: &Context, query: &Query) -> Result<Answer, Refusal> {
    let (_, repo, nth) = context.asked(query)?;
    let load = &context.load;
    let (_, block) = load.commit(repo, nth);
    let commit = Cid::dag_cbor(&block);
    let mut car = Vec::new();
    write_header(&mut car, &[commit]);
    write_block(&mut car, &commit, &block);
    if let Some(known) = since_of(load, repo, nth, query)? {
        // The difference: all blocks of the commits since then.
        for state in &load.states[known as usize + 1..=nth as usize] {
            car.extend(state.step.iter().flat_map(|step| step.tail.iter()));
        }
        return Ok(with_type(200, "application/vnd.ipld.car", car));
    }
    let data = load.states[nth as usize].data;
    let walked = mst::walk::<TreeError>(data, &load.store, |met| {
        match met {
            Visit::Node { cid, block, .. } => write_block(&mut car, &cid, block),
            Visit::Key { value, .. } => {
                if let Some(block) = load.store.get(&value) {
                    write_block(&mut car, &value, block);
                }
            }
        }
        Ok(())
    });
    walked.map_err(|error| Refusal::new(500, "InternalServerError", error))?;
    Ok(with_type(200, "application/vnd.ipld.car", car))
}

/// The state that the client has, according to the rev in `since`; `None` if the request
/// names no rev of this repository.
fn since_of(load: &Load, repo: u32, nth: u64, query: &Query) -> Result<Option<u64>, Refusal> {
    let Some(since) = query.get("since") else {
        return Ok(None);
    };
    let since = Tid::parse(since).map_err(|_| Refusal::invalid("Error: since must be a TID"))?;
    Ok((0..=nth)
        .rev()
        .find(|known| load.rev_at(repo, *known) == since))
}

fn list_repos(context: &Context, query: &Query) -> Result<Answer, Refusal> {
    let limit = crate::pds::limit_of(query, 500, 1000)?;
    let from = query.get("cursor").map_or(Ok(0), str::parse::<u32>);
    let from = from.map_err(|_| Refusal::invalid("Malformed cursor"))?;
    let load = &context.load;
    let to = from.saturating_add(limit as u32).min(load.repos());
    let sent = *context.released.borrow();
    let repos = (from..to).map(|repo| {
        let (rev, block) = load.commit(repo, load.nth_at(repo, sent));
        json!({
            "did": load.did(repo).as_str(),
            "head": Cid::dag_cbor(&block).to_string(),
            "rev": rev.to_string(),
            "active": true,
        })
    });
    let mut json = json!({ "repos": repos.collect::<Vec<_>>() });
    if to < load.repos() {
        json["cursor"] = to.to_string().into();
    }
    Ok(ok(&json))
}

fn subscribe(context: Arc<Context>, query: &Query, request: Request<Body>) -> Answer {
    let released = *context.released.borrow();
    let cursor = match query.get("cursor").map(str::parse::<u64>) {
        None => released,
        Some(Ok(cursor)) => cursor,
        Some(Err(_)) => return Refusal::invalid("Malformed cursor").answer(),
    };
    match socket::accept(request) {
        Ok(handshake) => handshake.run(move |mut socket| async move {
            if cursor > released {
                let error = encode_error("FutureCursor", Some("Cursor in the future."));
                let _ = socket.send(BINARY, &error).await;
                let _ = socket.close(CLOSE_POLICY, "FutureCursor").await;
                return;
            }
            send(context, cursor, socket).await;
        }),
        Err(refusal) => *refusal,
    }
}

/// Sends all released commits from `next` on.
async fn send(context: Arc<Context>, mut next: u64, mut socket: Socket) {
    let mut released = context.released.subscribe();
    let mut piece = Vec::with_capacity(PIECE_BYTES + (1 << 16));
    loop {
        let end = *released.borrow_and_update();
        if next < end {
            piece.clear();
            while next < end && piece.len() < PIECE_BYTES {
                write_frame(&mut piece, BINARY, &context.load.frame(next));
                next += 1;
            }
            if socket.out.write_all(&piece).await.is_err() {
                return;
            }
            while let Ok(message) = socket.incoming.try_recv() {
                if !answer_ping(&mut socket, Some(message)).await {
                    return;
                }
            }
            continue;
        }
        tokio::select! {
            message = socket.incoming.recv() => {
                if !answer_ping(&mut socket, message).await {
                    return;
                }
            }
            result = released.changed() => if result.is_err() { return },
        }
    }
}

/// Answers a ping; returns whether the client is still connected.
async fn answer_ping(socket: &mut Socket, message: Option<Incoming>) -> bool {
    match message {
        None | Some(Incoming::Close) => false,
        Some(Incoming::Message(_)) => true,
        Some(Incoming::Ping(payload)) => socket.pong(&payload).await.is_ok(),
    }
}
