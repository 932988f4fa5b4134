//! Tests the resolution of handles: by a service or by the DNS, and confirmed by the document
//! of the DID.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gapless_harness::World;
use gapless_testnet::{Fault, Place, Spec};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use crate::serve::served::{Served, small, true_records};

/// A mirror with these lines in `[serve]`.
async fn with_handles(accounts: usize, serve: impl Fn(&World) -> String) -> (World, Served) {
    let mut world = World::quiet(small(accounts)).await;
    world.adjust = |config| config.mirror.sweep_every = Duration::from_secs(3600);
    let file = world.folder.path().join("handles.toml");
    let lines = serve(&world);
    std::fs::write(&file, format!("[serve]\n{lines}\n")).expect("a file");
    world.flags.config = Some(file);
    world.begin().await;
    world.settle().await;
    let served = Served::of(&world).await;
    (world, served)
}

/// A name server that knows a few TXT records, and notes what it is asked for.
#[derive(Clone, Default)]
struct NameServer {
    records: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
    /// By UDP and by TCP.
    asked: Arc<Mutex<Vec<(&'static str, String)>>>,
}

/// Text of this length does not fit into an answer by UDP.
const LONG: usize = 200;

impl NameServer {
    async fn start(&self) -> SocketAddr {
        // Both on one port; if one of them is taken, another port is tried.
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
            let address = udp.local_addr().expect("bound");
            if let Ok(tcp) = TcpListener::bind(address).await {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().expect("bound");
        let server = self.clone();
        tokio::spawn(async move {
            let mut question = [0; 1500];
            while let Ok((length, from)) = udp.recv_from(&mut question).await {
                let answer = server.answer("udp", &question[..length]);
                let _ = udp.send_to(&answer, from).await;
            }
        });
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                let server = server.clone();
                tokio::spawn(async move {
                    while let Ok(length) = stream.read_u16().await {
                        let mut question = vec![0; usize::from(length)];
                        stream.read_exact(&mut question).await.expect("it comes");
                        let answer = server.answer("tcp", &question);
                        let length = u16::try_from(answer.len()).expect("a short one");
                        stream.write_u16(length).await.expect("it is taken");
                        stream.write_all(&answer).await.expect("it is taken");
                    }
                });
            }
        });
        address
    }

    fn tell(&self, handle: &str, texts: &[&str]) {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let name = format!("_atproto.{handle}");
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.insert(name, texts);
    }

    fn asked(&self) -> Vec<(&'static str, String)> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.clone()
    }

    fn answer(&self, way: &'static str, question: &[u8]) -> Vec<u8> {
        let mut name = Vec::new();
        let mut at = 12;
        while question[at] > 0 {
            let end = at + 1 + usize::from(question[at]);
            name.push(String::from_utf8_lossy(&question[at + 1..end]).to_lowercase());
            at = end;
        }
        let name = name.join(".");
        let asked = &question[12..at + 5];
        assert_eq!(
            asked[asked.len() - 4..],
            [0, 16, 0, 1],
            "TXT, of the internet"
        );
        let mut noted = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        noted.push((way, name.clone()));
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let texts = records.get(&name).cloned();
        let cut = way == "udp" && texts.iter().flatten().any(|text| text.len() >= LONG);
        let (flags, code) = match &texts {
            Some(_) if cut => (0x86, 0x80),
            Some(_) => (0x84, 0x80),
            None => (0x84, 0x83),
        };
        let texts = texts.filter(|_| !cut).unwrap_or_default();
        let count = u8::try_from(texts.len()).expect("few");
        let mut answer = question[..2].to_vec();
        answer.extend([flags | question[2] & 1, code, 0, 1, 0, count, 0, 0, 0, 0]);
        answer.extend(asked);
        for text in texts {
            // In two strings, which belong together.
            let (one, two) = text.as_bytes().split_at(text.len() / 2);
            let length = u16::try_from(text.len() + 2).expect("short");
            answer.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60]);
            answer.extend(length.to_be_bytes());
            for part in [one, two] {
                answer.push(u8::try_from(part.len()).expect("short"));
                answer.extend(part);
            }
        }
        answer
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_are_taken_for_dids() {
    let (mut world, served) = with_handles(2, |world| {
        // The host itself is asked whose a handle is.
        format!("handle_resolver = \"{}\"", world.net.urls().pds[0])
    })
    .await;
    let did = world.did(0);
    let handle = world.net.truth().handle(&did).expect("it has one");
    let described = served
        .good("repo.describeRepo", &[("repo", &handle)])
        .await
        .json();
    assert_eq!(described["did"], did.as_str());
    assert_eq!(described["handle"], handle.as_str());
    assert_eq!(described["handleIsCorrect"], true);
    assert_eq!(described["didDoc"]["id"], did.as_str());
    let collections: std::collections::BTreeSet<String> = true_records(&world, &did)
        .into_iter()
        .map(|(path, ..)| path.split('/').next().unwrap_or_default().to_owned())
        .collect();
    let told: Vec<&str> = described["collections"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(
        told,
        collections.iter().map(String::as_str).collect::<Vec<_>>()
    );
    let path = world.some_path(&did);
    let (collection, rkey) = path.split_once('/').expect("a path");
    let query = [
        ("repo", handle.as_str()),
        ("collection", collection),
        ("rkey", rkey),
    ];
    let got = served.good("repo.getRecord", &query).await.json();
    assert_eq!(got["uri"], format!("at://{did}/{path}"));
    // Remembered: the directory need not be there any more.
    let down = world.inject(Spec::new(Fault::PlcDown {}).on(Place::Plc));
    world.need_not_fire(down);
    served.good("repo.getRecord", &query).await;
    let words = served
        .bad(
            "repo.describeRepo",
            &[("repo", "nobody.pds0.test")],
            "InvalidRequest",
        )
        .await;
    assert!(
        words.contains("nobody.pds0.test") && words.contains("DID instead"),
        "{words}"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dns_tells_whose_a_handle_is() {
    let server = NameServer::default();
    let address = server.start().await;
    let (mut world, served) = with_handles(3, |_| format!("dns = \"{address}\"")).await;
    let dids = [0, 1, 2].map(|number| world.did(number));
    let handles = dids
        .clone()
        .map(|did| world.net.truth().handle(&did).expect("it has one"));
    let [first, second, third] = dids.clone().map(|did| format!("did={did}"));
    let spf = "v=spf1 -all";
    server.tell(&handles[0], &[spf, &first]);
    // Too long for UDP.
    server.tell(&handles[1], &[&"x".repeat(LONG), &second]);
    // Two DIDs: which of them counts is not decided.
    server.tell(&handles[2], &[&third, &first]);
    // It names a DID whose document does not name it.
    server.tell("stranger.pds0.test", &[&first]);
    server.tell("nobody.example", &[&first]);
    for (handle, did) in handles.iter().zip(&dids).take(2) {
        let described = served.good("repo.describeRepo", &[("repo", handle)]).await;
        assert_eq!(described.json()["did"], did.as_str());
        assert_eq!(described.json()["handleIsCorrect"], true);
    }
    let asked = server.asked();
    assert!(
        asked.contains(&("tcp", format!("_atproto.{}", handles[1]))),
        "{asked:?}"
    );
    let refused = [
        (handles[2].as_str(), "different DIDs"),
        ("stranger.pds0.test", "does not name it"),
        ("nobody.example", "no handle may end in"),
    ];
    for (handle, why) in refused {
        let query = [("repo", handle), ("collection", "a.b.c")];
        let words = served
            .bad("repo.listRecords", &query, "InvalidRequest")
            .await;
        assert!(words.contains(why), "{handle}: {words}");
    }
    // Each but the last was asked for, and none twice for nothing.
    let asked = server.asked();
    assert!(
        !asked.iter().any(|(_, name)| name.ends_with(".example")),
        "{asked:?}"
    );
    let before = asked.len();
    served
        .good("repo.describeRepo", &[("repo", &handles[0])])
        .await;
    assert_eq!(server.asked().len(), before, "it is remembered");
    world.stop().await;
}

/// A name server that says nothing costs some time; then its own domain is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_handle_that_cannot_be_resolved_is_refused_in_words() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
    let address = silent.local_addr().expect("bound");
    for (dns, why) in [
        ("off".to_owned(), None),
        (address.to_string(), Some("the DNS")),
    ] {
        let (mut world, served) = with_handles(1, |_| format!("dns = \"{dns}\"")).await;
        let handle = world.net.truth().handle(&world.did(0)).expect("it has one");
        let query = [("repo", handle.as_str()), ("collection", "a.b.c")];
        let words = served
            .bad("repo.listRecords", &query, "InvalidRequest")
            .await;
        assert!(words.contains("could not be resolved"), "{words}");
        assert!(why.is_none_or(|why| words.contains(why)), "{words}");
        assert_eq!(words.contains("the DNS"), why.is_some(), "{words}");
        world.stop().await;
    }
}
