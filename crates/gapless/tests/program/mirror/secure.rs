//! Tests TLS: a relay and a directory with certificates of a private authority, which are
//! checked like public ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gapless_harness::{Program, World, network};
use gapless_testnet::Config as NetConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::EXE;

/// Whose certificates a mirror is told to trust.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Connections that came about with one of its certificates.
    trusted: Arc<AtomicU64>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority {
            issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate"),
            trusted: Arc::default(),
        }
    }

    /// Listens with a certificate for these names, and hands what comes on to an
    /// address without TLS.
    async fn in_front_of(&self, url: &str, names: &[&str]) -> u16 {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let private = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .expect("they belong together");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let behind = url.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let trusted = self.trusted.clone();
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                let (acceptor, trusted) = (acceptor.clone(), trusted.clone());
                let behind = behind.clone();
                tokio::spawn(async move {
                    // A client that does not trust the certificate hangs up, as the test wants.
                    let Ok(mut from) = acceptor.accept(from).await else {
                        return;
                    };
                    trusted.fetch_add(1, Ordering::SeqCst);
                    let mut to = TcpStream::connect(behind).await.expect("it listens");
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                });
            }
        });
        port
    }
}

/// A network whose relay and directory are asked by TLS, as `localhost`.
async fn secured(authority: &Authority, names: &[&str]) -> World {
    let mut world = World::network(NetConfig {
        relay: true,
        did_web: false,
        ..network(4, 1)
    })
    .await;
    let urls = world.net.urls().clone();
    let relay = urls.relay.expect("there is one");
    let relay = authority.in_front_of(&relay, names).await;
    let plc = authority.in_front_of(&urls.plc, &["localhost"]).await;
    world.flags.plc = Some(format!("https://localhost:{plc}"));
    world.flags.upstream = vec![format!("relay=https://localhost:{relay}")];
    world
}

fn trust(world: &mut World, authority: &Authority) {
    let file = world.folder.path().join("authority.pem");
    std::fs::write(&file, authority.issuer.pem()).expect("a file");
    world.toml = format!("ca_file = {:?}\n{}", file.display().to_string(), world.toml);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_and_a_directory_are_followed_by_tls() {
    let authority = Authority::new();
    let mut world = secured(&authority, &["localhost"]).await;
    trust(&mut world, &authority);
    let mut program = Program::start(&world, EXE);
    program
        .until_upstream("connected", |upstream| upstream.connected)
        .await;
    for did in world.net.truth().dids() {
        world.post(&did);
    }
    program.until_all_complete().await;
    let trusted = authority.trusted.load(Ordering::SeqCst);
    assert!(trusted >= 2, "the relay and the directory: {trusted}");
}

/// Nothing is followed, and the reason is told.
async fn refused(world: &World, authority: &Authority, why: &'static str) {
    world.expect("invalid peer certificate");
    let mut program = Program::start(world, EXE);
    let told = |upstream: &gapless_mirror::api::UpstreamAnswer| {
        let error = upstream.error.as_ref();
        !upstream.connected && error.is_some_and(|error| error.contains(why))
    };
    program.until_upstream(why, told).await;
    assert_eq!(authority.trusted.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_a_stranger_is_refused_and_the_reason_told() {
    let authority = Authority::new();
    let world = secured(&authority, &["localhost"]).await;
    refused(&world, &authority, "UnknownIssuer").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_name_is_refused_and_the_reason_told() {
    let authority = Authority::new();
    let mut world = secured(&authority, &["elsewhere.example"]).await;
    trust(&mut world, &authority);
    refused(&world, &authority, "not valid for name").await;
}
