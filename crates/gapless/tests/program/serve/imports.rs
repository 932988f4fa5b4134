//! Tests the import of repository files: a file must be whole, signed by the owner and newer
//! than the held state, and it never proves that it is the newest.

use gapless_atp::syntax::Did;
use gapless_harness::{PATIENCE, Program, World};
use gapless_testnet::{Fault, Place, Spec, Status};
use serde_json::Value;

use crate::EXE;
use crate::serve::served::{Served, mirrored, small};

/// What the host serves, faults and all.
async fn from_host(world: &World, served: &Served, did: &Did) -> Vec<u8> {
    let host = &world.net.urls().pds[0];
    let path = crate::serve::served::path("sync.getRepo", &[("did", did.as_str())]);
    let got = served.http.get(format!("{host}{path}")).send().await;
    got.expect("it answers")
        .bytes()
        .await
        .expect("whole")
        .to_vec()
}

/// Imports a file, and tries again while a repair is running for the repository.
async fn import(served: &Served, car: Vec<u8>) -> (u16, Value) {
    let began = std::time::Instant::now();
    loop {
        let (status, told) = import_once(served, car.clone()).await;
        let words = told["message"].as_str().unwrap_or_default();
        if !words.contains("at this moment") || began.elapsed() > PATIENCE {
            return (status, told);
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn import_once(served: &Served, car: Vec<u8>) -> (u16, Value) {
    let url = format!("http://{}/v1/import", served.address);
    let got = served
        .http
        .post(url)
        .body(car)
        .send()
        .await
        .expect("it answers");
    (got.status().as_u16(), got.json().await.expect("JSON"))
}

async fn refused(served: &Served, car: Vec<u8>, status: u16, words: &str) {
    let (got, told) = import(served, car).await;
    let message = told["message"].as_str().unwrap_or_default();
    assert!(got == status && message.contains(words), "{got}: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_one_is_taken_and_the_host_is_asked_before_it_counts() {
    let (mut world, served) = mirrored(small(2)).await;
    let did = world.did(0);
    world.lose_commit(&did);
    let car = from_host(&world, &served, &did).await;
    let (compare, fetch) = (
        world.stall(0, "getLatestCommit", None),
        world.guard("getRepo"),
    );
    assert_complete_before(&world, &did).await;
    let (status, told) = import(&served, car).await;
    assert_eq!(status, 200, "{told}");
    let head = world.net.truth().head(&did).expect("it exists");
    assert_eq!(told["rev"], head.rev.to_string());
    assert_eq!(told["data"], head.data.to_string());
    let records = world.net.truth().records(&did).expect("it exists").len();
    assert_eq!(told["records"], records);
    let answer = world.answer(&did).await;
    assert_eq!(answer.rev, Some(head.rev.to_string()), "it is held");
    assert!(!answer.complete, "and nobody says that it is the newest");
    assert!(
        answer.reasons.contains(&"compare_owed".to_owned()),
        "{answer:?}"
    );
    world.clear(compare).await;
    world.until_complete(&did).await;
    world.drop_fault(fetch);
    world.stop().await;
}

/// Checks that a repository is complete at a commit that the truth has gone beyond.
async fn assert_complete_before(world: &World, did: &Did) {
    let head = world.net.truth().head(did).expect("it exists");
    let answer = world.answer(did).await;
    assert_ne!(answer.rev, Some(head.rev.to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_the_owners_or_not_whole_or_not_newer_is_refused() {
    let (mut world, served) = mirrored(small(3)).await;
    let did = world.did(0);
    let older = from_host(&world, &served, &did).await;
    refused(
        &served,
        older.clone(),
        409,
        "this very commit is held already",
    )
    .await;
    world.post(&did);
    world.until_complete(&did).await;
    refused(&served, older, 409, "the held commit is newer").await;
    let rev = world.answer(&did).await.rev;
    world.lose_commit(&did);
    for (fault, words) in [
        (Fault::CarOtherKey {}, "not signed by its owner"),
        (Fault::CarMinusNode {}, "is missing"),
        (Fault::CarMinusLeaf {}, "is missing"),
        (Fault::CarNonCanonical {}, "not canonical"),
    ] {
        let fault = world.inject(Spec::new(fault).on(Place::Pds(0)).of(&did));
        let car = from_host(&world, &served, &did).await;
        world.clear(fault).await;
        refused(&served, car, 400, words).await;
    }
    let whole = from_host(&world, &served, &did).await;
    let mut cut = whole.clone();
    cut.truncate(whole.len() - 3);
    refused(&served, cut, 400, "CAR").await;
    refused(&served, b"nothing of the kind".to_vec(), 400, "CAR").await;
    let held = world.answer(&did).await.rev;
    assert_eq!(held, rev, "nothing was written");
    // A repository that is not mirrored here.
    let stranger = gapless_testnet::Testnet::start(gapless_testnet::Config {
        seed: 77,
        wall_clock: true,
        ..gapless_testnet::Config::default()
    });
    let stranger = stranger.await.expect("it starts");
    let other = stranger.truth().dids()[0].clone();
    let path = crate::serve::served::path("sync.getRepo", &[("did", other.as_str())]);
    let host = stranger.truth().head(&other).expect("it exists").host;
    let url = format!("{}{path}", stranger.urls().pds[host]);
    let car = served.http.get(url).send().await.expect("it answers");
    let car = car.bytes().await.expect("whole").to_vec();
    refused(&served, car, 404, "not mirrored here").await;
    world.stop().await;
}

/// The server does not read it to its end, and its answer is read all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_too_large_is_wrong_usage_every_time() {
    let world = World::quiet(small(1)).await;
    let limits = [
        ("GAPLESS_FETCH_MAX_REPO_BYTES", "1MB"),
        ("GAPLESS_TOKEN", "a-long-secret"),
    ];
    let mut program = Program::start_with(&world, EXE, &limits);
    program.until_all_complete().await;
    let file = world.folder.path().join("large.car");
    let large = std::fs::File::create(&file).expect("a file");
    large.set_len(300 << 20).expect("of zeros");
    let name = file.display().to_string();
    for _ in 0..10 {
        let told = program
            .command(&["import", &name, "--json", "--token", "a-long-secret"])
            .await;
        let words = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(words.contains("more than 1000000 bytes"), "{words}");
        assert_eq!(told.status.code(), Some(2), "{words}");
        // Nor is what the guard says lost.
        let told = program.command(&["import", &name, "--json"]).await;
        let words = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(words.contains("needs the token"), "{words}");
        assert_eq!(told.status.code(), Some(2), "{words}");
    }
    program.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_taken_in_for_an_account_that_is_hidden() {
    let (mut world, served) = mirrored(small(2)).await;
    let did = world.did(0);
    world.lose_commit(&did);
    let car = from_host(&world, &served, &did).await;
    world
        .net
        .set_status(&did, Status::Deactivated)
        .expect("active");
    world.until_incomplete(&did, "inactive").await;
    refused(&served, car, 409, "not active").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_was_signed_with_a_replaced_key_is_refused() {
    let (mut world, served) = mirrored(small(2)).await;
    let did = world.did(0);
    world.lose_commit(&did);
    let car = from_host(&world, &served, &did).await;
    let rev = world.answer(&did).await.rev;
    // The mirror has not been told: it knows only the old key.
    world.net.rotate_key(&did, true).expect("it is rotated");
    refused(&served, car, 400, "not signed by its owner").await;
    assert_eq!(world.answer(&did).await.rev, rev, "nothing was written");
    world.stop().await;
}
