//! The HTTP interface of a mirror that runs in the test's process, and a client for it.

use std::net::SocketAddr;

use gapless::web::{self, App, Running, WebSettings};
use gapless_atp::car::read_blocks;
use gapless_atp::cid::Cid;
use gapless_atp::repo::RepoCar;
use gapless_atp::syntax::Did;
use gapless_harness::{PATIENCE, World, network};
use gapless_testnet::Config as NetConfig;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A mirror's interface. It ends with the test's runtime, or when it is stopped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) http: reqwest::Client,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

/// An answer, whole.
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }

    /// The status and the name of an error, and its words.
    pub(crate) fn refused(&self) -> (u16, String, String) {
        let json = self.json();
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        (self.status, text("error"), text("message"))
    }
}

impl Served {
    pub(crate) async fn of(world: &World) -> Served {
        Served::with(world, true).await
    }

    pub(crate) async fn with(world: &World, open: bool) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let app = App::new(WebSettings {
            token: None,
            loopback: true,
            open,
        });
        app.set_running(Running::new(world.mirror(), world.serving()));
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(web::serve(listener, app, stopped));
        let http = reqwest::Client::builder().no_proxy().build().expect("one");
        Served {
            address,
            http,
            stop,
            task,
        }
    }

    /// Lets go of the mirror.
    pub(crate) async fn stop(self) {
        drop((self.http, self.stop));
        let ended = tokio::time::timeout(PATIENCE, self.task).await;
        ended
            .expect("in time")
            .expect("no panic")
            .expect("it ends well");
    }

    pub(crate) async fn ask(&self, method: Method, path: &str) -> Got {
        let url = format!("http://{}{path}", self.address);
        let response = self.http.request(method, url).send().await;
        let response = response.expect("it answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await.expect("the whole of it").to_vec();
        Got {
            status,
            headers,
            body,
        }
    }

    /// A method of `com.atproto`, with its query.
    pub(crate) async fn get(&self, method: &str, query: &[(&str, &str)]) -> Got {
        self.ask(Method::GET, &path(method, query)).await
    }

    /// Calls a method that must answer 200.
    pub(crate) async fn good(&self, method: &str, query: &[(&str, &str)]) -> Got {
        let got = self.get(method, query).await;
        let text = String::from_utf8_lossy(&got.body);
        assert_eq!(got.status, 200, "{method} {query:?}: {text}");
        got
    }

    /// Calls a method that must refuse with the error `name`; returns its message.
    pub(crate) async fn bad(&self, method: &str, query: &[(&str, &str)], name: &str) -> String {
        let got = self.get(method, query).await;
        let (status, error, words) = got.refused();
        assert_eq!((status, error.as_str()), (400, name), "{method}: {words}");
        assert_eq!(got.header("access-control-allow-origin"), "*");
        words
    }
}

pub(crate) fn path(method: &str, query: &[(&str, &str)]) -> String {
    let mut url = url::form_urlencoded::Serializer::new(String::new());
    url.extend_pairs(query);
    format!("/xrpc/com.atproto.{method}?{}", url.finish())
}

/// A network whose accounts are all in the directory, mirrored and complete.
pub(crate) async fn mirrored(config: NetConfig) -> (World, Served) {
    let world = World::settled(config).await;
    let served = Served::of(&world).await;
    (world, served)
}

pub(crate) fn small(repos: usize) -> NetConfig {
    NetConfig {
        did_web: false,
        ..network(repos, 1)
    }
}

/// The records of a CAR, checked whole; its commit must be signed with the owner's
/// present key.
pub(crate) fn records_of(world: &World, did: &Did, car: &[u8]) -> Vec<(String, Cid, Vec<u8>)> {
    let repo = RepoCar::read(car).expect("a repository");
    assert_eq!(repo.commit.did, did.as_str());
    let keys = world.net.truth().keys(did).expect("it exists");
    let key = keys.last().expect("it has one");
    let key = gapless_atp::crypto::PublicKey::from_did_key(key).expect("a key");
    repo.commit.verify(&key).expect("the owner signed it");
    let head = world.net.truth().head(did).expect("it exists");
    assert_eq!(repo.commit_cid, head.commit);
    let mut records = Vec::new();
    repo.records::<gapless_atp::repo::ImportError>(|path, cid, bytes| {
        let path = String::from_utf8(path.to_vec()).expect("text");
        records.push((path, cid, bytes.to_vec()));
        Ok(())
    })
    .expect("whole");
    records
}

/// The truth's records in the same shape.
pub(crate) fn true_records(world: &World, did: &Did) -> Vec<(String, Cid, Vec<u8>)> {
    let records = world.net.truth().records(did).expect("it exists");
    let own = |(path, (cid, bytes)): (String, (Cid, bytes::Bytes))| (path, cid, bytes.to_vec());
    records.into_iter().map(own).collect()
}

/// The blocks of a CAR, each hashed.
pub(crate) fn blocks_of(car: &[u8]) -> Vec<(Cid, Vec<u8>)> {
    let blocks = read_blocks(car).expect("a CAR");
    blocks
        .map(|block| block.map(|(cid, data)| (cid, data.to_vec())))
        .collect::<Result<_, _>>()
        .expect("each hashes to its CID")
}
