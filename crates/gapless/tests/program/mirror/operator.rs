//! Tests what an operator does to the program: removing and adding upstreams, a host behind a
//! proxy, Ctrl-C under load.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gapless_harness::audit::Audit;
use gapless_harness::proxy::Proxy;
use gapless_harness::{Program, World, network};
use gapless_mirror::api::RepoAnswer;
use gapless_testnet::Config as NetConfig;
use serde_json::Value;

use crate::EXE;

/// Commits per second in the background.
const LOAD: f64 = 150.0;
/// Ctrl-C is answered within this, whatever is on its way.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

fn no_cover(answer: &RepoAnswer) -> bool {
    answer.reasons.iter().any(|one| one == "no_cover")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_taken_away_and_given_back_costs_no_fetch() {
    let mut world = World::quiet(network(6, 2)).await;
    world.flags.sweep_every = Some("2s".to_owned());
    let mut program = Program::start(&world, EXE);
    program.until_all_complete().await;
    let url = world.net.urls().pds[0].clone();
    let truth = world.net.truth();
    let mut here = truth.dids();
    here.retain(|did| truth.head(did).is_some_and(|head| head.host == 0));
    program.run_command(&["upstream", "remove", &url]).await;
    for did in &here {
        let left = program.until_repo(did, "no cover", no_cover).await;
        assert!(left.records > Some(0) && left.rev.is_some(), "{left:?}");
    }
    let others = (truth.dids().len() - here.len()) as u64;
    program
        .until_status("only the other host's are complete", |status| {
            status.upstreams.len() == 1 && status.repos.complete == others
        })
        .await;
    // A commit that the mirror does not read, because the host is not followed.
    let missed = world.post(&here[0]);
    let unknown = program.repo(&here[0]).await.expect("it is known");
    assert!(!unknown.complete && unknown.rev != Some(missed.rev.to_string()));
    // Nothing but the one that changed may be fetched.
    for did in &here[1..] {
        world.need_not_fire(world.stall(0, "getRepo", Some(did)));
    }
    program.run_command(&["upstream", "add", "pds", &url]).await;
    program.until_all_complete().await;
    assert_eq!(world.fired("stall"), 0);
    let changed = program.repo(&here[0]).await.expect("it is known");
    assert_eq!(changed.rev, Some(missed.rev.to_string()));
    world.post(&here[1]);
    let live = program.until_complete(&here[1]).await;
    assert_eq!(live.last_firehose_rev, live.rev);
    assert_eq!(world.fired("stall"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_behind_a_proxy_is_known_by_the_name_in_the_documents() {
    let mut world = World::network(NetConfig {
        public_hosts: true,
        did_web: false,
        ..network(4, 1)
    })
    .await;
    let way = Proxy::to(&world.net.urls().pds[0]).await;
    world.toml.push_str(&format!(
        "[[upstream]]\nkind = \"pds\"\nurl = \"{}\"\nhost = \"pds0.example\"\n",
        way.url
    ));
    let mut program = Program::start(&world, EXE);
    program.until_all_complete().await;
    assert!(way.taken.load(Ordering::Relaxed) >= 2, "the only way");
    let did = world.did(0);
    for _ in 0..3 {
        world.post(&did);
    }
    let answer = program.until_complete(&did).await;
    assert_eq!(answer.host.as_deref(), Some("https://pds0.example"));
    assert_eq!(answer.evidence.via, Some(way.url.clone()));
    assert_eq!(answer.last_firehose_rev, answer.rev);
    // What only a fetch brings comes by the same way.
    let (taken, made) = (way.taken.load(Ordering::Relaxed), world.too_big(&did));
    let answer = program.until_complete(&did).await;
    assert_eq!(answer.last_indexed_rev, Some(made.rev.to_string()));
    assert!(way.taken.load(Ordering::Relaxed) >= taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_under_load_ends_in_seconds_and_loses_nothing() {
    let mut world = World::quiet(network(8, 2)).await;
    let mut program = Program::start(&world, EXE);
    world.net.set_rate(LOAD).expect("a rate");
    let mut audit = Audit::default();
    let data = world.folder.path().join("data");
    for round in 0..3 {
        let before = audit.log_next;
        program
            .until_status("it is at work", |status| {
                let open = status.upstreams.iter().all(|one| one.open);
                open && status.log.head > Some(before + 50)
            })
            .await;
        program.interrupt();
        let ended = program.until_ended(ENDS_WITHIN).await;
        assert_eq!(ended.code(), Some(0), "{}", program.log());
        audit.check_data(&data, &world.net);
        if round == 2 {
            break;
        }
        program = Program::start(&world, EXE);
    }
    // What was read and not written is read again: neither lists nor snapshots help.
    let settled = audit.log_next;
    assert!(settled > 150);
    world.net.set_rate(0.0).expect("a rate");
    world.begin().await;
    world.until_all_complete().await;
    assert_eq!(world.metrics().resets.get(), 0, "both hosts go on");
    world.stop().await;
    audit.check_data(&data, &world.net);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_for_programs_has_cursors_as_numbers() {
    let mut world = World::quiet(network(2, 1)).await;
    world.toml.insert_str(0, "log = \"json\"\n");
    let mut program = Program::start(&world, EXE);
    program.until_all_complete().await;
    world.post(&world.did(0));
    program.until_all_complete().await;
    program
        .until_upstream("there is a cursor", |upstream| upstream.cursor.is_some())
        .await;
    program.kill();
    let mut program = Program::start(&world, EXE);
    program
        .until_upstream("connected", |upstream| upstream.connected)
        .await;
    let log = program.log();
    let lines = log.lines().map(serde_json::from_str);
    let lines: Vec<Value> = lines.collect::<Result<_, _>>().expect("it is JSON");
    let fields = lines.iter().map(|line| &line["fields"]);
    let cursors: Vec<Option<&Value>> = fields
        .filter(|fields| fields["message"] == "connected")
        .map(|fields| fields.get("cursor"))
        .collect();
    assert_eq!(cursors.first(), Some(&None), "{log}");
    let last = cursors.last().copied().flatten();
    assert!(last.is_some_and(Value::is_u64), "{log}");
}
