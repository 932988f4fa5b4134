//! Tests a Jetstream as a source: each claim is asked about and proven by a fetch, no claim
//! makes a repository complete, and no claim replaces proven state.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::Account;
use gapless_harness::fake_jetstream::FakeJetstream;
use gapless_harness::{PATIENCE, PDS, Program, World, condition, network, new_path, record};
use gapless_mirror::api::{Inspect as _, Operate as _, RepoAnswer, Status};
use gapless_store::table::claimed::ClaimRow;
use gapless_store::table::log::LogKind;
use gapless_testnet::{Config as NetConfig, Place, Write, encode_record};
use serde_json::{Value as Json, json};

use crate::EXE;

/// What a Jetstream is asked for once more, in microseconds.
const OVERLAP: u64 = 5_000_000;

pub(crate) fn told(repos: usize) -> NetConfig {
    NetConfig {
        relay: true,
        jetstream: true,
        did_web: false,
        ..network(repos, 1)
    }
}

async fn connected(world: &World, url: &str) {
    world
        .until("connected", async |world: &World| {
            let mirror = world.mirror().clone();
            let asked = tokio::task::spawn_blocking(move || mirror.inspector().upstreams()).await;
            let all = asked.expect("no panic").expect("an answer");
            let ours = all.iter().find(|one| one.url == url);
            condition(ours.is_some_and(|one| one.connected), &all)
        })
        .await;
}

/// Starts the mirror once a request without an answer has released the data folder.
async fn begin_again(world: &mut World) {
    let began = Instant::now();
    while let Err(error) = world.try_begin().await {
        assert!(began.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn follow(world: &mut World, url: &str) {
    world.flags.upstream.push(format!("jetstream={url}"));
    world.flags.sweep_every = Some("1h".to_owned());
    world.begin().await;
    connected(world, url).await;
}

pub(crate) fn claims(world: &World, did: &Did) -> Vec<(String, ClaimRow)> {
    let view = world.mirror().services().store.view();
    let Some(id) = view.repo_id(did).expect("it can be read") else {
        return Vec::new();
    };
    let rows = view.claims(id).map(|row| {
        let (path, claim) = row.expect("it can be read");
        (String::from_utf8(path).expect("text"), claim)
    });
    rows.collect()
}

pub(crate) async fn until_claims(world: &World, did: &Did, count: usize) {
    world
        .until("it is claimed", async |world: &World| {
            let claims = claims(world, did);
            condition(claims.len() == count, &claims)
        })
        .await;
}

/// Waits until it is held as the truth has it, and nothing is owed or claimed.
async fn until_proven(world: &World, did: &Did) -> RepoAnswer {
    let mut seen = None;
    world
        .until("it is proven", async |world: &World| {
            let Some(answer) = world.repo(did).await else {
                return Err("unknown".to_owned());
            };
            let head = world.net.truth().head(did).expect("it exists");
            let there = answer.rev == Some(head.rev.to_string()) && answer.debt.is_none();
            let holds = there && answer.claims.is_none();
            let told = condition(holds, &answer);
            seen = Some(answer);
            told
        })
        .await;
    seen.expect("it was seen")
}

async fn status(world: &World) -> Status {
    let mirror = world.mirror().clone();
    let asked = tokio::task::spawn_blocking(move || mirror.inspector().status());
    asked.await.expect("no panic").expect("an answer")
}

pub(crate) fn passed(world: &World, reason: &str) -> u64 {
    world.metrics().claims_passed.get(reason)
}

pub(crate) fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("after 1970").as_micros() as u64
}

/// A rev that is newer than everything signed so far.
pub(crate) fn rev_after(micros: u64) -> String {
    Rev::from_micros(now_us() + micros, 7).to_string()
}

/// A commit that puts this record at a path.
pub(crate) fn put(rev: &str, path: &str, text: &str) -> (Json, Cid) {
    let json = json!({ "$type": "app.bsky.feed.post", "text": text });
    let bytes = encode_record(&json).expect("it is a record");
    let cid = Cid::dag_cbor(&bytes);
    let (collection, rkey) = path.split_once('/').expect("a path");
    let commit = json!({
        "rev": rev, "operation": "create", "collection": collection, "rkey": rkey,
        "record": json, "cid": cid.to_string(),
    });
    (commit, cid)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_says_is_claimed_until_a_fetch_proves_it_and_never_complete() {
    let mut world = World::network(told(4)).await;
    let url = world.url(Place::Jetstream);
    follow(&mut world, &url).await;
    let did = world.did(0);
    let held = world.stall(0, "getRepo", None);
    // Unknown so far: created, created and updated, and one that is deleted.
    let (one, two, gone) = (new_path(), new_path(), world.some_path(&did));
    let create = |path: &String, text: &str| Write::Create {
        path: path.clone(),
        record: record(text),
    };
    world.write(&did, &[create(&one, "one"), create(&two, "two")]);
    world.write(
        &did,
        &[Write::Update {
            path: two.clone(),
            record: record("two, better"),
        }],
    );
    let last = world.write(&did, &[Write::Delete { path: gone.clone() }]);
    until_claims(&world, &did, 3).await;
    world
        .until("all that was said", async |world: &World| {
            let all = claims(world, &did);
            let newest = all.iter().map(|(_, claim)| claim.rev).max();
            condition(newest == Some(last.rev), &all)
        })
        .await;
    let id = world.upstream_id(Place::Jetstream);
    for (path, claim) in claims(&world, &did) {
        assert_eq!(claim.upstream, id);
        let expected = match path {
            path if path == one => Some(record("one")),
            path if path == two => Some(record("two, better")),
            path => {
                assert_eq!(path, gone);
                None
            }
        };
        let expected = expected.map(|bytes| (Cid::dag_cbor(&bytes), bytes));
        assert_eq!(claim.record, expected);
    }
    let answer = world.answer(&did).await;
    assert!(!answer.complete && answer.rev.is_none(), "{answer:?}");
    assert_eq!(answer.evidence.level, "claimed");
    let claimed = answer.claims.expect("it is told");
    assert_eq!((claimed.count, claimed.upstreams), (3, vec![url.clone()]));
    assert_eq!(claimed.rev, Some(last.rev.to_string()));
    assert_eq!(status(&world).await.claims, 3);
    // In the log they are what they are.
    let view = world.mirror().services().store.view();
    let kinds: Vec<LogKind> = view
        .log_from(0)
        .expect("it can be read")
        .map(|row| row.expect("it can be read").1.kind)
        .filter(|kind| !matches!(kind, LogKind::Identity | LogKind::Account(_)))
        .collect();
    let claimed = kinds
        .iter()
        .all(|kind| matches!(kind, LogKind::Claimed(Some(_))));
    assert!(claimed && kinds.len() == 4, "{kinds:?}");
    drop(view);
    world.clear(held).await;
    let answer = until_proven(&world, &did).await;
    assert_eq!(answer.evidence.level, "chained");
    assert_eq!(answer.reasons, ["no_cover"], "{answer:?}");
    world
        .until("nothing is claimed", async |world: &World| {
            let claims = status(world).await.claims;
            condition(claims == 0, &claims)
        })
        .await;
    // Then it writes again: what is held is exact, what is said is beside it.
    let held = world.stall(0, "getLatestCommit", None);
    world.post(&did);
    until_claims(&world, &did, 1).await;
    let answer = world.answer(&did).await;
    assert_eq!(answer.rev, Some(last.rev.to_string()));
    let debt = answer.debt.expect("it is owed to look");
    assert_eq!(
        (debt.owed[0].what.as_str(), debt.owed[0].why.as_str()),
        ("compare", "claimed")
    );
    assert!(!answer.complete);
    world.clear(held).await;
    until_proven(&world, &did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_about_a_covered_repository_causes_no_request() {
    let mut world = World::network(told(4)).await;
    let url = world.url(Place::Jetstream);
    follow(&mut world, &url).await;
    let did = world.did(0);
    world.post(&did);
    until_proven(&world, &did).await;
    // A host that is followed covers it: then it can be complete.
    let own = gapless_mirror::api::NewUpstream {
        kind: gapless_core::ledger::UpstreamKind::Pds,
        url: world.url(PDS),
        host: None,
    };
    let mirror = world.mirror().clone();
    let added = tokio::task::spawn_blocking(move || mirror.control().add_upstream(own)).await;
    added.expect("no panic").expect("it is followed");
    world.until_all_complete().await;
    // Claims of the Jetstream about a covered repository cause no requests.
    let (asked, kept) = (
        world.metrics().heads_asked.get(),
        world.metrics().claims_kept.get(),
    );
    for _ in 0..5 {
        world.post(&did);
        world.until_complete(&did).await;
    }
    world
        .until("all of it is heard", async |world: &World| {
            let heard = passed(world, "covered") + passed(world, "old");
            condition(heard >= 5, &heard)
        })
        .await;
    assert_eq!(world.metrics().heads_asked.get(), asked);
    assert_eq!(world.metrics().claims_kept.get(), kept);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_asks_for_a_little_more_and_a_clamped_cursor_is_a_gap() {
    let mut world = World::network(told(1)).await;
    world.expect("a new epoch");
    world.expect("not connected");
    let jetstream = FakeJetstream::start().await;
    follow(&mut world, &jetstream.url).await;
    let did = world.did(0);
    let held = world.stall(0, "getLatestCommit", None);
    let began = now_us();
    let mut last = 0;
    for number in 0..4 {
        last = began + number * 1_000_000;
        let (commit, _) = put(&rev_after(number), &new_path(), "x");
        jetstream.say_commit(last, did.as_str(), &commit);
    }
    until_claims(&world, &did, 4).await;
    let durable = async |world: &World, at: u64| {
        let view = || world.mirror().services().store.view();
        let all = view().upstreams().expect("they can be read");
        let id = *all.keys().next().expect("it is followed");
        world
            .until("the cursor is durable", async |_: &World| {
                let cursor = view().cursor(id).expect("it can be read");
                condition(cursor.is_some_and(|cursor| cursor.seq == at), &cursor)
            })
            .await;
    };
    durable(&world, last).await;
    assert_eq!(jetstream.asked(), [None]);
    let epoch = |world: &World| {
        let covers = world.mirror().services().upstreams.read();
        let (_, source) = covers.iter().next().expect("it is followed");
        source.row.epoch
    };
    let before = epoch(&world);
    world.stop().await;
    // What it says meanwhile is heard, and what it says again is nothing new.
    let (commit, _) = put(&rev_after(9), &new_path(), "meanwhile");
    last += 1_000_000;
    jetstream.say_commit(last, did.as_str(), &commit);
    begin_again(&mut world).await;
    until_claims(&world, &did, 5).await;
    durable(&world, last).await;
    assert_eq!(jetstream.asked(), [None, Some(last - 1_000_000 - OVERLAP)]);
    assert_eq!(epoch(&world), before, "the event at our cursor came again");
    assert_eq!(
        passed(&world, "old"),
        3,
        "the repeat itself is not even looked at"
    );
    let view = world.mirror().services().store.view();
    let log = view.log_from(0).expect("it can be read");
    let kinds = log.map(|row| row.expect("it can be read").1.kind);
    let told = kinds
        .filter(|kind| matches!(kind, LogKind::Claimed(_)))
        .count();
    assert_eq!(told, 5, "each once");
    // It forgets: what comes first after a cut is later than our cursor.
    jetstream.forget_before(last + 1);
    last += 60_000_000;
    let (commit, _) = put(&rev_after(99), &new_path(), "after a gap");
    jetstream.say_commit(last, did.as_str(), &commit);
    jetstream.cut();
    until_claims(&world, &did, 6).await;
    world
        .until("a new epoch", async |world: &World| {
            let now = epoch(world);
            condition(now > before, &now)
        })
        .await;
    durable(&world, last).await;
    world.clear(held).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_in_between_lose_nothing_and_all_is_proven_in_the_end() {
    let mut world = World::network(told(6)).await;
    world.expect("a new epoch");
    world.expect("not connected");
    let url = world.url(Place::Jetstream);
    world.flags.upstream.push(format!("jetstream={url}"));
    world.flags.sweep_every = Some("1s".to_owned());
    let dids = world.net.truth().dids();
    let mut program = Program::start(&world, EXE);
    program
        .until_status("connected", |status| {
            status.upstreams.iter().any(|one| one.connected)
        })
        .await;
    for round in 0..4 {
        for did in &dids {
            world.post(did);
        }
        program
            .until_status("they are heard of", |status| status.repos.total == 6)
            .await;
        program.kill();
        // Some of it is sent while the mirror is down.
        world.post(&dids[round]);
        program = Program::start(&world, EXE);
    }
    for did in &dids {
        let head = world.net.truth().head(did).expect("it exists").rev;
        let answer = program
            .until_repo(did, "proven", |answer| {
                answer.rev == Some(head.to_string()) && answer.claims.is_none()
            })
            .await;
        assert!(!answer.complete, "nobody speaks for it: {answer:?}");
        assert!(answer.reasons.iter().any(|one| one == "no_cover"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_removes_the_claims_about_a_repository_never_fetched() {
    let mut world = World::network(told(2)).await;
    world.adjust = |config| config.mirror.purge_grace = Duration::from_secs(1);
    let url = world.url(Place::Jetstream);
    follow(&mut world, &url).await;
    let did = world.did(0);
    let held = world.stall(0, "getRepo", None);
    world.post(&did);
    until_claims(&world, &did, 1).await;
    // A repair is running for the repository, so no other one asks whether it exists.
    world.until_fired("stall", 1).await;
    // Never fetched: nothing is held of it, and then it is gone, as the directory's word
    // leaves the row.
    let gone = world.mirror().desks().with_repo(&did, |turn| {
        let now = turn.services.clock.now();
        let repo = &mut turn.tx.as_mut().expect("it is known").repo;
        (repo.account, repo.deleted_at) = (Account::Deleted, Some(now.time));
        (repo.debt, repo.unset_at) = (Default::default(), now.tick);
    });
    gone.await.expect("it is written");
    world
        .until("nothing is said of it", async |world: &World| {
            let purged = world.metrics().purged.get();
            let left = claims(world, &did).len();
            condition(left == 0, &(purged, left, world.answer(&did).await))
        })
        .await;
    assert_eq!(world.metrics().purged.get(), 1);
    let answer = world.answer(&did).await;
    assert_eq!((answer.account.as_str(), answer.rev), ("deleted", None));
    world.clear(held).await;
    world.stop().await;
}
