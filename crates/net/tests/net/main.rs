//! Tests outgoing requests over real sockets: against the test network and its faults, and
//! against a server that sends what a test wants.

mod directory;
mod guarded;
mod hosts;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use futures_util::{StreamExt, stream};
use gapless_atp::car::read_blocks;
use gapless_atp::crypto::PublicKey;
use gapless_atp::syntax::{Did, DidMethod};
use gapless_core::ledger::Account;
use gapless_net::{
    AskClass, FetchLimits, GetRepoError, HostAddress, HostLimits, KnownIdentity, LatestAnswer, Net,
    NetSettings, RequestLimits, ResolveError, ResolvedIdentity, Trust, key_bytes, public_key,
};
use gapless_testnet::{Config, Fault, Place, Spec, Status, Testnet};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(20);
const LIMITS: RequestLimits = RequestLimits {
    total: Duration::from_secs(5),
    bytes: 10_000,
};

async fn network() -> Testnet {
    let config = Config {
        repos: 6,
        pds: 2,
        records: 40,
        ..Config::default()
    };
    Testnet::start(config).await.unwrap()
}

fn net_of(plc: &str, allow_private: bool) -> Net {
    let settings = NetSettings {
        allow_private,
        contact: Some("mailto:ops@example.com".to_owned()),
        authorities: Vec::new(),
        plc: plc.to_owned(),
        plc_requests_per_second: 100.0,
    };
    // The pace has tests of its own.
    let limits = HostLimits {
        requests_per_second: 1000.0,
        burst: 1000,
        ..HostLimits::default()
    };
    Net::with_limits(settings, limits).unwrap()
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(DEADLINE, work).await.expect("an end in time")
}

/// A did:plc or did:web of the network, with what its document says.
async fn account(testnet: &Testnet, net: &Net, method: DidMethod) -> (Did, ResolvedIdentity) {
    let dids = testnet.truth().dids();
    let did = dids.iter().find(|did| did.method() == method).unwrap();
    let resolved = within(net.resolve(did, KnownIdentity::default()))
        .await
        .unwrap();
    (did.clone(), resolved)
}

fn home(resolved: &ResolvedIdentity) -> HostAddress {
    HostAddress::named(resolved.host.clone().unwrap())
}

fn place(testnet: &Testnet, host: &HostAddress) -> usize {
    let at = testnet.urls().pds.iter().position(|url| *url == host.url);
    at.unwrap()
}

fn known(resolved: &ResolvedIdentity) -> KnownIdentity {
    KnownIdentity {
        version: resolved.version,
        host: resolved.host.clone(),
        key: resolved.key,
    }
}

async fn settled() -> (Testnet, Net, Did, HostAddress, Place) {
    let testnet = network().await;
    let net = net_of(&testnet.urls().plc, true);
    let (did, resolved) = account(&testnet, &net, DidMethod::Plc).await;
    let host = home(&resolved);
    let place = Place::Pds(place(&testnet, &host));
    (testnet, net, did, host, place)
}

/// A server that answers as it is told; the second part counts its requests.
async fn serve<F>(answer: F) -> (String, Arc<AtomicU32>)
where
    F: Fn(&Request<Body>) -> Response<Body> + Clone + Send + Sync + 'static,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let router = Router::new().fallback(move |request: Request<Body>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let answer = answer(&request);
        async move { answer }
    });
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, count)
}

fn answer(status: u16, body: impl Into<Body>) -> Response<Body> {
    let answer = Response::builder().status(status);
    answer.body(body.into()).unwrap()
}

fn redirect(to: &str) -> Response<Body> {
    let answer = Response::builder().status(302).header("location", to);
    answer.body(Body::empty()).unwrap()
}

fn endless() -> Response<Body> {
    let piece = Bytes::from(vec![b'x'; 1000]);
    let pieces = stream::repeat_with(move || Ok::<_, std::io::Error>(piece.clone()));
    answer(200, Body::from_stream(pieces))
}

async fn fetch(
    net: &Net,
    host: &HostAddress,
    did: &Did,
    limits: FetchLimits,
) -> Result<Vec<u8>, GetRepoError> {
    let mut car = Vec::new();
    let mut sink = |piece: &[u8]| {
        car.extend_from_slice(piece);
        Ok(())
    };
    let fetched = within(net.get_repo(host, did, None, &mut sink, &limits)).await?;
    assert_eq!(fetched.bytes, car.len() as u64);
    Ok(car)
}

fn class(error: GetRepoError) -> AskClass {
    match error {
        GetRepoError::Ask(error) => error.class,
        other => panic!("{other:?}"),
    }
}
