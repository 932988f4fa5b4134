//! A consumer of the firehose that checks everything: every commit must be signed and chain to
//! the one before it, numbers must increase, and a number must never name a different event
//! than before.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use gapless::web::{self, App, Running, WebSettings};
use gapless_atp::crypto::PublicKey;
use gapless_atp::frame::{self, Event};
use gapless_atp::syntax::{Did, Rev};
use gapless_atp::verify::{self, Held, SyncVerdict, Verdict};
use gapless_harness::{PATIENCE, World};
use gapless_testnet::Truth;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

pub(crate) const ROUTE: &str = "/xrpc/com.atproto.sync.subscribeRepos";

pub(crate) type Socket = WebSocketStream<TcpStream>;

/// The mirror of a world, served over HTTP as `gapless run` does it.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<std::io::Result<()>>>,
}

impl Served {
    pub(crate) async fn start(world: &World) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (end, ended) = oneshot::channel();
        let app = App::new(WebSettings {
            token: None,
            loopback: true,
            open: true,
        });
        app.set_running(Running::new(world.mirror(), world.serving()));
        let task = web::serve(listener, app, async {
            let _ = ended.await;
        });
        Served {
            address,
            end: Some(end),
            task: Some(tokio::spawn(task)),
        }
    }

    pub(crate) async fn stop(mut self) {
        drop(self.end.take());
        let task = self.task.take().expect("it runs");
        task.await.expect("no panic").expect("it ends well");
    }
}

/// Dials; an HTTP answer other than the upgrade is the error.
pub(crate) async fn dial(address: SocketAddr, query: &str) -> Result<Socket, Error> {
    let stream = TcpStream::connect(address).await.map_err(Error::Io)?;
    let url = format!("ws://{address}{ROUTE}{query}");
    client_async(url, stream).await.map(|(socket, _)| socket)
}

/// What one consumer has seen, over all its connections.
#[derive(Default)]
pub(crate) struct Seen {
    /// Every numbered frame, by its number.
    pub(crate) frames: BTreeMap<u64, Vec<u8>>,
    /// The state of each repository, as the frames lead to it.
    pub(crate) held: BTreeMap<String, Held>,
    /// The commits that led on, since the last `#sync` (which stands first).
    pub(crate) path: BTreeMap<String, Vec<Rev>>,
    pub(crate) accounts: Vec<(String, bool, Option<String>)>,
    pub(crate) identities: u64,
    pub(crate) syncs: u64,
    pub(crate) commits: u64,
    /// Commits that were not newer than what was held.
    pub(crate) stale: u64,
    pub(crate) infos: Vec<String>,
    pub(crate) errors: Vec<String>,
    /// With what the connection was closed.
    pub(crate) closed: Option<u16>,
}

impl Seen {
    pub(crate) fn cursor(&self) -> Option<u64> {
        self.frames.keys().next_back().copied()
    }

    fn take(&mut self, bytes: &[u8], last: &mut u64, truth: &Truth) {
        let event = frame::decode(bytes).expect("it is a frame");
        if let Some(seq) = event.seq() {
            assert!(seq > *last, "{seq} after {last}: numbers only grow");
            *last = seq;
            if let Some(before) = self.frames.insert(seq, bytes.to_vec()) {
                assert_eq!(before, bytes, "number {seq} names something else");
            }
        }
        let now = now_micros();
        match event {
            Event::Commit(event) => {
                self.commits += 1;
                let did = event.repo.to_owned();
                let held = self.held.get(&did);
                let verdicts = keys(truth, &did);
                let verdicts = verdicts
                    .iter()
                    .map(|key| verify::check_commit(&event, key, held, now, None));
                let verdicts: Vec<_> = verdicts.collect();
                let next = verdicts.iter().find_map(|verdict| match verdict {
                    Verdict::Applies(commit) => Some(Some(commit.authentic)),
                    Verdict::Replay => Some(None),
                    _ => None,
                });
                let Some(next) = next else {
                    let classes: Vec<_> = verdicts.iter().map(Verdict::class).collect();
                    panic!("{did} {} at {held:?}: {classes:?}", event.rev);
                };
                match next {
                    None => self.stale += 1,
                    Some(next) => {
                        let held = Held {
                            rev: next.rev,
                            data: next.data,
                            commit: next.commit,
                        };
                        self.held.insert(did.clone(), held);
                        self.path.entry(did).or_default().push(next.rev);
                    }
                }
            }
            Event::Sync(event) => {
                self.syncs += 1;
                let did = event.did.to_owned();
                let held = self.held.get(&did);
                let verdicts = keys(truth, &did);
                let signed = verdicts.iter().find_map(|key| {
                    match verify::check_sync(&event, key, held, now) {
                        SyncVerdict::SameRoot(next) | SyncVerdict::OtherRoot(next) => {
                            Some(Some(next))
                        }
                        SyncVerdict::Replay => Some(None),
                        _ => None,
                    }
                });
                if let Some(next) = signed.expect("its owner signed it") {
                    assert_eq!(event.rev, next.rev.to_string());
                    let held = Held {
                        rev: next.rev,
                        data: next.data,
                        commit: next.commit,
                    };
                    self.held.insert(did.clone(), held);
                    self.path.insert(did, vec![next.rev]);
                }
            }
            Event::Account(event) => {
                let status = event.status.map(str::to_owned);
                let said = (event.did.to_owned(), event.active, status);
                self.accounts.push(said);
            }
            Event::Identity(_) => self.identities += 1,
            Event::Info(event) => self.infos.push(event.name.to_owned()),
            Event::Error { error, .. } => self.errors.push(error.to_owned()),
            Event::Unknown { .. } => panic!("nobody sends this: {event:?}"),
        }
    }

    /// For every repository: where the truth is, and by exactly the truth's steps
    /// since the last word that was no step.
    pub(crate) fn agrees(&self, truth: &Truth, did: &Did) -> Result<(), String> {
        let Some(head) = truth.head(did) else {
            return Ok(());
        };
        let held = self.held.get(did.as_str()).map(|held| held.commit);
        if held != Some(head.commit) {
            return Err(format!("{did}: {held:?}, the truth is at {}", head.rev));
        }
        let path = self.path.get(did.as_str()).expect("it is somewhere");
        let commits = truth.commits(did).expect("history is kept");
        let first = path.first().expect("it has a beginning");
        let true_path: Vec<Rev> = commits
            .iter()
            .map(|commit| commit.rev)
            .filter(|rev| rev >= first)
            .collect();
        assert_eq!(*path, true_path, "{did}: other steps than the truth's");
        Ok(())
    }
}

fn keys(truth: &Truth, did: &str) -> Vec<PublicKey> {
    let did = Did::parse(did).expect("a DID");
    let keys = truth.keys(&did).expect("it is known");
    let keys = keys.iter().rev();
    keys.map(|key| PublicKey::from_did_key(key).expect("a key"))
        .collect()
}

fn now_micros() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970").as_micros() as u64
}

/// A consumer, and what it has seen so far.
pub(crate) struct Strict {
    seen: Arc<Mutex<Seen>>,
    truth: Truth,
    task: Option<JoinHandle<()>>,
}

impl Strict {
    pub(crate) fn new(world: &World) -> Strict {
        Strict {
            seen: Arc::default(),
            truth: world.net.truth(),
            task: None,
        }
    }

    /// Reads from after its cursor, or from a given one, until it is closed.
    pub(crate) async fn connect(&mut self, address: SocketAddr, cursor: Option<u64>) {
        let query = cursor.map_or(String::new(), |cursor| format!("?cursor={cursor}"));
        let socket = dial(address, &query).await.expect("it is served");
        self.read(socket);
    }

    pub(crate) fn read(&mut self, mut socket: Socket) {
        let (seen, truth) = (self.seen.clone(), self.truth.clone());
        self.task = Some(tokio::spawn(async move {
            let mut last = 0;
            while let Some(Ok(message)) = socket.next().await {
                match message {
                    Message::Binary(bytes) => lock(&seen).take(&bytes, &mut last, &truth),
                    Message::Close(close) => {
                        lock(&seen).closed = close.map(|close| close.code.into());
                    }
                    Message::Ping(_) | Message::Pong(_) => {
                        let _ = socket.flush().await;
                    }
                    other => panic!("nobody sends this: {other:?}"),
                }
            }
        }));
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// Waits until what was seen is as wanted.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Seen) -> Result<(), String>) {
        let began = Instant::now();
        loop {
            let told = wanted(&self.seen());
            match told {
                Ok(()) => return,
                Err(told) if began.elapsed() > PATIENCE => panic!("{what}: {told}"),
                Err(_) => {}
            }
            if let Some(task) = &self.task
                && task.is_finished()
            {
                // Once more: it may have ended with what was wanted.
                let told = wanted(&self.seen());
                told.unwrap_or_else(|told| panic!("{what}: it ended, {told}"));
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until it is where the truth is, with every repository.
    pub(crate) async fn until_true(&self) {
        let truth = self.truth.clone();
        for did in truth.dids() {
            self.until("at the truth's head", |seen| seen.agrees(&truth, &did))
                .await;
        }
    }

    /// Waits for the end of the connection; a panic of the reader is ours.
    pub(crate) async fn ended(&mut self) {
        let task = self.task.take().expect("it reads");
        let ended = tokio::time::timeout(PATIENCE, task).await;
        ended.expect("it ends").expect("what it read was right");
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
