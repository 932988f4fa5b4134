//! Tests `getRepo`: the files equal the truth and can be verified, and exports can be cancelled
//! and are limited.

use std::time::Duration;

use gapless::config::Config;
use gapless_harness::{Program, World, condition};
use gapless_testnet::{Write, encode_record};
use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::EXE;
use crate::serve::served::{Served, mirrored, path, records_of, small, true_records};

#[tokio::test(flavor = "multi_thread")]
async fn every_account_is_served_as_its_owner_signed_it() {
    let (mut world, served) = mirrored(gapless_harness::network(6, 2)).await;
    for did in world.net.truth().dids() {
        let head = world.net.truth().head(&did).expect("it exists");
        let got = served.good("sync.getRepo", &[("did", did.as_str())]).await;
        assert_eq!(got.header("content-type"), "application/vnd.ipld.car");
        assert_eq!(got.header("atproto-repo-rev"), head.rev.to_string());
        let evidence = got.header("gapless-evidence");
        assert!(evidence.starts_with("complete; level="), "{evidence}");
        assert!(evidence.contains("; as_of=20"), "{evidence}");
        assert_eq!(
            records_of(&world, &did, &got.body),
            true_records(&world, &did)
        );
        let again = served.good("sync.getRepo", &[("did", did.as_str())]).await;
        assert_eq!(
            got.body, again.body,
            "the same bytes, from the tree that is kept"
        );
        let since = [("did", did.as_str()), ("since", "2222222222222")];
        let whole = served.good("sync.getRepo", &since).await;
        assert_eq!(got.body, whole.body, "the whole answers every `since`");
        let did = [("did", did.as_str())];
        let latest = served.good("sync.getLatestCommit", &did).await.json();
        assert_eq!(latest["cid"], head.commit.to_string());
        assert_eq!(latest["rev"], head.rev.to_string());
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_current_is_served_and_says_so() {
    let (mut world, served) = mirrored(small(1)).await;
    let did = world.did(0);
    let before = served.good("sync.getRepo", &[("did", did.as_str())]).await;
    let hold = world.stall(0, "getRepo", None);
    let latest = world.stall(0, "getLatestCommit", None);
    world.too_big(&did);
    world.until_incomplete(&did, "fetch_owed").await;
    let got = served.good("sync.getRepo", &[("did", did.as_str())]).await;
    assert_eq!(got.body, before.body);
    let evidence = got.header("gapless-evidence");
    assert!(evidence.starts_with("incomplete; reasons="), "{evidence}");
    assert!(evidence.contains("fetch_owed"), "{evidence}");
    world.need_not_fire(hold);
    world.clear(latest).await;
    world.drop_fault(hold);
    world.until_complete(&did).await;
    let after = served.good("sync.getRepo", &[("did", did.as_str())]).await;
    assert_ne!(
        after.body, before.body,
        "the kept tree is not that of the new commit"
    );
    assert_eq!(
        records_of(&world, &did, &after.body),
        true_records(&world, &did)
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_and_options_are_answered() {
    let (mut world, served) = mirrored(small(1)).await;
    let did = world.did(0);
    let asked = path("sync.getRepo", &[("did", did.as_str())]);
    let head = served.ask(Method::HEAD, &asked).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    let rev = world.net.truth().head(&did).expect("it exists").rev;
    assert_eq!(head.header("atproto-repo-rev"), rev.to_string());
    assert_eq!(
        world.metrics().trees_built.get(),
        0,
        "nothing was built for it"
    );
    let options = served.ask(Method::OPTIONS, &asked).await;
    assert_eq!(options.status, 204);
    assert_eq!(options.header("access-control-allow-origin"), "*");
    assert!(
        options
            .header("access-control-allow-methods")
            .contains("GET")
    );
    let post = served.ask(Method::POST, &asked).await;
    assert_eq!(post.refused().1, "InvalidRequest");
    world.stop().await;
}

/// Of so many bytes that it is read twice, in many parts.
async fn large(world: &World) -> gapless_atp::syntax::Did {
    let did = world.did(0);
    for part in 0..60 {
        let writes: Vec<Write> = (0..150)
            .map(|number| {
                let text = format!("{part} {number} {}", "x".repeat(2500));
                let json = serde_json::json!({ "$type": "com.example.large", "text": text });
                Write::Create {
                    path: format!("com.example.large/{part:03}-{number:03}"),
                    record: encode_record(&json).expect("a record"),
                }
            })
            .collect();
        world.write(&did, &writes);
    }
    world.until_complete(&did).await;
    did
}

async fn asked(served: &Served, did: &str) -> TcpStream {
    let mut socket = TcpStream::connect(served.address)
        .await
        .expect("it listens");
    let asked = path("sync.getRepo", &[("did", did)]);
    let request = format!("GET {asked} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    socket.write_all(request.as_bytes()).await.expect("sent");
    let mut first = [0; 1024];
    socket.read_exact(&mut first).await.expect("it begins");
    assert!(first.starts_with(b"HTTP/1.1 200"));
    socket
}

fn impatient(config: &mut Config) {
    config.serve.limits.stall = Duration::from_millis(300);
    config.serve.limits.exports = 1;
    config.serve.limits.turn = Duration::from_millis(200);
    config.mirror.sweep_every = Duration::from_secs(3600);
}

fn patient(config: &mut Config) {
    config.serve.limits.exports = 1;
    config.serve.limits.turn = Duration::from_millis(200);
    config.mirror.sweep_every = Duration::from_secs(3600);
}

async fn with(adjust: fn(&mut Config)) -> (World, Served) {
    let mut world = World::quiet(small(1)).await;
    world.adjust = adjust;
    world.begin().await;
    world.settle().await;
    let served = Served::of(&world).await;
    (world, served)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_is_cut_and_cannot_take_it_for_whole() {
    let (mut world, served) = with(impatient).await;
    let did = large(&world).await;
    let mut socket = asked(&served, did.as_str()).await;
    world
        .until("it is cut", async |world: &World| {
            let cut = world.metrics().exports_cut.get();
            condition(cut == 1, &cut)
        })
        .await;
    let mut rest = Vec::new();
    let ended = socket.read_to_end(&mut rest).await;
    assert!(
        !rest.ends_with(b"\r\n0\r\n\r\n"),
        "{ended:?}: it does not look whole"
    );
    // The seat is free again, and a reader that reads gets all of it.
    let got = served.good("sync.getRepo", &[("did", did.as_str())]).await;
    assert!(got.body.len() > 20 << 20, "{}", got.body.len());
    assert_eq!(
        records_of(&world, &did, &got.body),
        true_records(&world, &did)
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_when_all_seats_are_taken_is_told_to_come_again_and_a_reader_that_leaves_frees_its_seat()
 {
    let (mut world, served) = with(patient).await;
    let did = large(&world).await;
    let socket = asked(&served, did.as_str()).await;
    let got = served.get("sync.getRepo", &[("did", did.as_str())]).await;
    assert_eq!(
        (got.status, got.refused().1.as_str()),
        (503, "NotEnoughResources")
    );
    assert!(!got.header("retry-after").is_empty());
    drop(socket);
    world
        .until("the work ends", async |world: &World| {
            let left = world.metrics().exports_left.get();
            condition(left == 1, &left)
        })
        .await;
    served.good("sync.getRepo", &[("did", did.as_str())]).await;
    world.stop().await;
}

/// Four seats, so one for an address; this machine is counted.
fn services(config: &mut Config) {
    config.serve.limits.exports = 4;
    config.serve.limits.count_loopback = true;
    config.serve.limits.turn = Duration::from_millis(200);
    config.mirror.sweep_every = Duration::from_secs(3600);
}

/// Nothing is refused here, so that a slow machine may take long to build the tree.
fn own(config: &mut Config) {
    services(config);
    config.serve.limits.count_loopback = false;
    config.serve.limits.turn = Duration::from_secs(30);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_does_not_take_the_seats_of_the_others() {
    let (mut world, mut served) = with(services).await;
    let did = large(&world).await;
    let _idle = asked(&served, did.as_str()).await;
    let of = ("did", did.as_str());
    let commit = world.net.truth().head(&did).expect("it exists").commit;
    let commit = commit.to_string();
    let place = [of, ("collection", "com.example.large"), ("rkey", "001-001")];
    let asked: [(&str, &[(&str, &str)]); 3] = [
        ("sync.getRepo", &[of]),
        ("sync.getRecord", &place),
        ("sync.getBlocks", &[of, ("cids", &commit)]),
    ];
    for (method, query) in asked {
        let got = served.get(method, query).await;
        let (status, name, words) = got.refused();
        assert_eq!(
            (status, name.as_str()),
            (503, "NotEnoughResources"),
            "{words}"
        );
        assert!(!got.header("retry-after").is_empty(), "{method}");
    }
    let elsewhere = std::net::IpAddr::from([127, 0, 0, 2]);
    let client = reqwest::Client::builder().no_proxy();
    served.http = client.local_address(elsewhere).build().expect("one");
    for (method, query) in asked {
        served.good(method, query).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_on_this_machine_may_take_all_the_seats() {
    let (mut world, served) = with(own).await;
    let did = large(&world).await;
    let idle = [(); 3].map(|()| asked(&served, did.as_str()));
    let _idle = futures_util::future::join_all(idle).await;
    served.good("sync.getRepo", &[("did", did.as_str())]).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_moves_on_while_it_is_sent_is_sent_as_it_was() {
    let (mut world, served) = with(|_| {}).await;
    let did = large(&world).await;
    let rev = world.net.truth().head(&did).expect("it exists").rev;
    let mut socket = asked(&served, did.as_str()).await;
    // From its end to its beginning everything is deleted meanwhile.
    let gone: Vec<String> = true_records(&world, &did)
        .into_iter()
        .map(|(path, ..)| path)
        .rev()
        .collect();
    for some in gone.chunks(200) {
        let some = some.iter().map(|path| Write::Delete { path: path.clone() });
        world.write(&did, &some.collect::<Vec<_>>());
    }
    world.until_complete(&did).await;
    let mut rest = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    while !rest.ends_with(b"\r\n0\r\n\r\n") {
        let read = socket.read(&mut buffer).await.expect("it goes on");
        assert!(read > 0, "it is not cut");
        rest.extend_from_slice(&buffer[..read]);
    }
    // The head and 1,024 bytes were read before.
    assert!(rest.len() > 20 << 20, "{}", rest.len());
    assert_ne!(world.net.truth().head(&did).expect("it exists").rev, rev);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_an_account_that_is_hidden_meanwhile_is_cut() {
    let (mut world, served) = with(|_| {}).await;
    let did = large(&world).await;
    let mut socket = asked(&served, did.as_str()).await;
    let takendown = gapless_testnet::Status::Takendown;
    world.net.set_status(&did, takendown).expect("it is active");
    world.until_incomplete(&did, "inactive").await;
    let mut rest = Vec::new();
    let ended = socket.read_to_end(&mut rest).await;
    assert!(!rest.ends_with(b"\r\n0\r\n\r\n"), "{ended:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_export_and_import_a_repository() {
    let world = World::quiet(small(2)).await;
    let mut program = Program::start(&world, EXE);
    program.until_all_complete().await;
    let did = world.did(0);
    let file = world.folder.path().join("it.car");
    let name = file.display().to_string();
    let told = program
        .run_command(&["export", did.as_str(), "--out", &name, "--json"])
        .await;
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let head = world.net.truth().head(&did).expect("it exists");
    assert_eq!(told["rev"], head.rev.to_string());
    assert_eq!(told["data"], head.data.to_string());
    let records = true_records(&world, &did);
    assert_eq!(told["records"], records.len());
    let car = std::fs::read(&file).expect("it is there");
    assert_eq!(records_of(&world, &did, &car), records);
    let evidence = told["evidence"].as_str().unwrap_or_default();
    assert!(evidence.starts_with("complete"), "{told}");
    let again = program.command(&["import", &name]).await;
    assert_eq!(again.status.code(), Some(1));
    let words = String::from_utf8_lossy(&again.stderr);
    assert!(
        words.contains("this very commit is held already"),
        "{words}"
    );
    // An unknown repository is a finding for every command.
    let stranger = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa";
    let asked: [&[&str]; 4] = [
        &["export", stranger, "--out", &name],
        &["repo", stranger],
        &["verify", stranger],
        &["resync", stranger],
    ];
    for arguments in asked {
        let told = program.command(&[arguments, &["--json"]].concat()).await;
        let words = String::from_utf8_lossy(&told.stdout).into_owned();
        assert_eq!(told.status.code(), Some(1), "{arguments:?}: {words}");
        let told: serde_json::Value = serde_json::from_str(&words).expect("JSON");
        let error = told["error"].as_str().unwrap_or_default();
        assert!(error.contains(stranger), "{arguments:?}: {error}");
    }
    assert_eq!(std::fs::read(&file).expect("untouched"), car);
    program.kill();
}
