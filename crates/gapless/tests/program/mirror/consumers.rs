//! Tests the consumers of the log as an operator sees them: the status, `/v1/consumers`, the
//! metrics, the removal of a consumer, an overrun, and a log that is trimmed.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::Duration;

use futures_util::StreamExt;
use gapless_atp::frame::{self, Event};
use gapless_atp::syntax::Did;
use gapless_core::ledger::Time;
use gapless_core::ledger::time::micros;
use gapless_core::retain::{Consumer, ConsumerClass, ConsumerKey, ConsumerNeeds, Hold, When};
use gapless_harness::{Program, World, condition, http, listed, network, new_path, record};
use gapless_mirror::api::{ConsumerAnswer, ConsumerRemoved, ConsumersAnswer};
use gapless_mirror::metrics::Metrics;
use gapless_mirror::store_io::write;
use gapless_store::change::{Change, ConsumerChange};
use gapless_testnet::{Status, Write};
use tokio_tungstenite::tungstenite::Message;

use crate::EXE;
use crate::firehose::strict::{Served, dial};

const INDEX: ConsumerKey = ConsumerKey {
    class: ConsumerClass::Index,
    id: 0,
    lane: 0,
};
const LONG: Hold = Hold::For(Duration::from_secs(3600));
/// How long the log, or superseded records, are kept.
const KEPT: Duration = Duration::from_secs(2);
/// How long a consumer holds.
const HOLD: Duration = Duration::from_secs(3);

fn recipient(id: u32, lane: u64) -> ConsumerKey {
    ConsumerKey {
        class: ConsumerClass::Recipient,
        id,
        lane,
    }
}

fn when(world: &World) -> When {
    let now = world.mirror().services().clock.now();
    When {
        time: now.time,
        lived: now.lived,
    }
}

async fn change(world: &World, consumer: ConsumerChange) {
    let services = world.mirror().services();
    let change = Change {
        tick: services.clock.now().tick,
        consumer: Some(consumer),
        ..Change::default()
    };
    write(&services.store, change).await.expect("it is written");
}

async fn register(world: &World, key: ConsumerKey, name: &str, next: u64, needs: ConsumerNeeds) {
    register_with(world, key, name, next, needs, LONG).await;
}

async fn register_with(
    world: &World,
    key: ConsumerKey,
    name: &str,
    next: u64,
    needs: ConsumerNeeds,
    hold: Hold,
) {
    let consumer = Consumer {
        name: name.to_owned(),
        next,
        holds_from: next,
        registered: when(world),
        moved: when(world),
        hold,
        needs,
        overrun: false,
    };
    let log = None;
    change(world, ConsumerChange::Register { key, consumer, log }).await;
}

async fn advance(world: &World, key: ConsumerKey, next: u64) {
    let position = ConsumerChange::Move {
        key,
        next,
        holds_from: next,
        log: None,
        at: when(world),
    };
    change(world, position).await;
}

async fn ask(address: SocketAddr, method: &str, path: &str) -> (u16, Vec<u8>) {
    let answer = http::ask(address.port(), method, path).await;
    answer.expect("a whole answer")
}

async fn consumers(address: SocketAddr) -> ConsumersAnswer {
    let (status, body) = ask(address, "GET", "/v1/consumers").await;
    assert_eq!(status, 200);
    serde_json::from_slice(&body).expect("as the contract has it")
}

/// Runs a `gapless` command against a served mirror.
async fn command(address: SocketAddr, arguments: &[&str]) -> Output {
    let mut command = Command::new(EXE);
    command.args(arguments);
    command.args(["--url", &format!("http://{address}")]);
    let output = tokio::task::spawn_blocking(move || command.output());
    output.await.expect("no panic").expect("it starts")
}

/// Replaces a record of its own, which supersedes one record.
fn supersede(world: &World, did: &Did) {
    let path = new_path();
    let write = |path: &String, what: &str| (path.clone(), record(&format!("{path}{what}")));
    let (created, first) = write(&path, "first");
    let (updated, second) = write(&path, "second");
    world.write(
        did,
        &[Write::Create {
            path: created,
            record: first,
        }],
    );
    world.write(
        did,
        &[Write::Update {
            path: updated,
            record: second,
        }],
    );
}

fn versions(world: &World) -> u64 {
    let counts = world.mirror().services().store.view().counts();
    counts.expect("it can be read").versions
}

fn first_number(world: &World) -> u64 {
    let view = world.mirror().services().store.view();
    view.first_log_number().expect("it can be read")
}

/// Whether everything below this number was logged longer ago than [`KEPT`] and a pass of upkeep.
fn is_older_than_kept(world: &World, number: u64) -> bool {
    let services = world.mirror().services();
    let long_ago = Time(services.clock.time().0 - micros(3 * KEPT));
    let since = services.store.view().log_number_after(long_ago);
    since.expect("it can be read") >= number
}

fn find<'a>(all: &'a [ConsumerAnswer], name: &str) -> &'a ConsumerAnswer {
    let found = all.iter().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("no {name}: {all:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_is_shown_with_its_position_and_with_what_it_holds() {
    let mut world = World::settled(network(2, 1)).await;
    let served = Served::start(&world).await;
    assert!(world.status().await.consumers.is_empty());
    let middle = world.log_next();
    world.post(&world.did(0));
    world.until_all_complete().await;
    let head = world.log_next();
    register(&world, INDEX, "search", 1, ConsumerNeeds::LogAndVersions).await;
    let mail = recipient(3, 1 << 60);
    register(&world, mail, "mail", middle, ConsumerNeeds::Log).await;
    let status = world.status().await;
    let told = consumers(served.address).await;
    assert_eq!(told.consumers.len(), 2, "and no other: {told:?}");
    assert_eq!((told.head, told.first), (head, 1));
    let search = find(&told.consumers, "search");
    assert_eq!((search.next, search.behind), (1, head - 1));
    assert_eq!((search.class.as_str(), search.overrun), ("index", false));
    assert_eq!(search.holds_numbers, head - 1);
    assert_eq!(search.hold_seconds, Some(3600));
    assert!(search.behind_seconds.is_some() && search.moved_at.is_some());
    let log = search.holds_alone.log.as_ref().expect("the lowest holder");
    assert_eq!((log.from, log.to), (1, middle - 1), "up to the next one");
    let versions = search.holds_alone.versions.as_ref();
    assert_eq!(versions.expect("the only holder").to, head - 1);
    let lanes = find(&told.consumers, "mail");
    assert_eq!((lanes.behind, lanes.lane), (head - middle, 1 << 60));
    assert_eq!(lanes.holds_alone.log, None, "the other one holds it too");
    let in_status = find(&status.consumers, "mail");
    assert_eq!(in_status.behind, lanes.behind);
    // A move changes the figures; one that has read everything is not behind by any time.
    advance(&world, mail, head).await;
    let told = consumers(served.address).await;
    let mail = find(&told.consumers, "mail");
    assert_eq!((mail.behind, mail.behind_seconds), (0, None));
    assert_eq!(mail.holds_numbers, 0);
    let (_, metrics) = ask(served.address, "GET", "/metrics").await;
    let metrics = String::from_utf8(metrics).expect("text");
    let labels = r#"{consumer="search",class="index",id="0",lane="0"}"#;
    for line in [
        format!("gapless_consumer_behind{labels} {}", head - 1),
        format!("gapless_consumer_holds{labels} {}", head - 1),
        format!("gapless_consumer_overrun{labels} 0"),
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line}: {metrics}");
    }
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_is_audited_and_lets_go_what_the_consumer_held() {
    let mut world = World::settled(network(2, 1))
        .with(|config| config.mirror.keep_versions = KEPT)
        .await;
    let served = Served::start(&world).await;
    let did = world.did(0);
    let from = world.log_next();
    let needs = ConsumerNeeds::LogAndVersions;
    register(&world, INDEX, "search", from, needs).await;
    supersede(&world, &did);
    world.until_complete(&did).await;
    let head = world.log_next();
    world
        .until("it is kept beyond its time", async |world: &World| {
            condition(is_older_than_kept(world, head), &"it is too young")
        })
        .await;
    assert_eq!(versions(&world), 1, "the consumer holds it");
    let unknown = "/v1/consumers?name=serach";
    let (status, body) = ask(served.address, "DELETE", unknown).await;
    let body = String::from_utf8(body).expect("text");
    assert!(
        status == 404 && body.contains("the consumers are search (index, id 0, lane 0)"),
        "{status} {body}"
    );
    let refused = command(served.address, &["consumers", "remove", "search"]).await;
    assert_eq!(refused.status.code(), Some(2), "there is no one to ask");
    assert_eq!(consumers(served.address).await.consumers.len(), 1);
    let remove = ["consumers", "remove", "search", "--yes", "--json"];
    let removed = command(served.address, &remove).await;
    assert_eq!(removed.status.code(), Some(0), "{removed:?}");
    let removed: ConsumerRemoved =
        serde_json::from_slice(&removed.stdout).expect("as the contract has it");
    let let_go = removed.let_go.versions.expect("it held versions");
    assert_eq!((let_go.from, let_go.to), (from, head - 1));
    assert!(let_go.since.is_some());
    world
        .until("it is let go", async |world: &World| {
            let left = versions(world);
            condition(left == 0, &left)
        })
        .await;
    let told = consumers(served.address).await;
    assert!(told.consumers.is_empty());
    let audit = &told.audit[0];
    assert_eq!(
        (audit.by.as_str(), audit.consumer.as_str()),
        ("operator", "search")
    );
    assert_eq!(audit.what, format!("removed at {from}"));
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_consumers_with_one_name_the_one_that_is_told_is_removed() {
    let mut world = World::settled(network(1, 1)).await;
    let served = Served::start(&world).await;
    for lane in [1, 2] {
        let key = recipient(7, lane);
        register(&world, key, "mail", 1, ConsumerNeeds::Log).await;
    }
    let (status, body) = ask(served.address, "DELETE", "/v1/consumers?name=mail").await;
    let body = String::from_utf8(body).expect("text");
    assert!(
        status == 400 && body.contains("lane 1") && body.contains("lane 2"),
        "{body}"
    );
    let path = "/v1/consumers?class=recipient&id=7&lane=2";
    let (status, body) = ask(served.address, "DELETE", path).await;
    let gone: ConsumerRemoved = serde_json::from_slice(&body).expect("as the contract has it");
    assert_eq!((status, gone.removed.lane), (200, 2));
    assert_eq!(gone.let_go.log, None, "the other lane holds the same");
    let left = consumers(served.address).await.consumers;
    assert_eq!(left.iter().map(|one| one.lane).collect::<Vec<_>>(), [1]);
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_stops_for_longer_than_its_hold_is_overrun_and_named() {
    let mut world = World::settled(network(2, 1)).await;
    world.expect("a consumer of the log is overrun");
    let head = world.log_next();
    let hold = Hold::For(HOLD);
    register_with(&world, INDEX, "search", head, ConsumerNeeds::Log, hold).await;
    world.stop().await;
    let mut program = Program::start(&world, EXE);
    program.until_all_complete().await;
    world.post(&world.did(0));
    let overrun = program
        .until_status("it is overrun", |status| {
            status.consumers.iter().any(|one| one.overrun)
        })
        .await;
    let search = find(&overrun.consumers, "search");
    assert!(search.behind > 0 && search.holds_numbers == 0, "{search:?}");
    world
        .until_logged(&program, "a consumer of the log is overrun")
        .await;
    let log = program.log();
    let line = log.lines().find(|line| line.contains("is overrun"));
    let line = line.expect("it is logged");
    assert!(line.contains("ERROR") && line.contains("search"), "{line}");
    let status = program.command(&["status"]).await;
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    assert_eq!(status.status.code(), Some(1), "a person is needed: {text}");
    let named = "search (index, id 0, lane 0), a consumer of the log, is overrun";
    assert!(text.contains(named), "{text}");
    let (_, metrics) = http::ask(program.port(), "GET", "/metrics")
        .await
        .expect("it answers");
    let metrics = String::from_utf8(metrics).expect("text");
    assert!(
        metrics.contains("gapless_consumers_overrun_total 1\n"),
        "{metrics}"
    );
    let (_, told) = program.ask("/v1/consumers").await.expect("it answers");
    let audit = &told["audit"][0];
    assert_eq!(
        (&audit["by"], &audit["consumer"]),
        (&"gapless".into(), &"search".into())
    );
    let what = audit["what"].as_str().expect("text");
    assert!(what.starts_with(&format!("overrun at {head}, ")), "{what}");
    let remove = ["consumers", "remove", "search", "--yes"];
    let removed = program.run_command(&remove).await;
    assert!(
        removed.contains("search (index, id 0, lane 0) is removed"),
        "{removed}"
    );
    program.run_command(&["status"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_trimmed_after_its_time_and_not_past_a_holder() {
    let mut world = World::settled(network(2, 1))
        .with(|config| {
            config.mirror.keep_log = Some(KEPT);
            config.mirror.keep_versions = KEPT;
        })
        .await;
    let did = world.did(0);
    let held = world.log_next();
    register(&world, INDEX, "search", held, ConsumerNeeds::Log).await;
    supersede(&world, &did);
    world.until_complete(&did).await;
    let later = world.log_next();
    // As if every frame had left the window: a row whose frame is kept is not trimmed.
    world.stop().await;
    std::fs::remove_dir_all(world.data().join("frames")).expect("it was there");
    world.begin().await;
    let served = Served::start(&world).await;
    world
        .until("it is trimmed up to the holder", async |world: &World| {
            let first = first_number(world);
            condition(first == held, &(first, held))
        })
        .await;
    let trimmed = world.metrics().log_trimmed.get();
    assert_eq!(trimmed, held - 1);
    // What the holder needs is as old by now, and upkeep looks at it.
    world
        .until("it is old enough", async |world: &World| {
            condition(is_older_than_kept(world, later), &later)
        })
        .await;
    let expired = world.metrics().versions_expired.get();
    for more in 1..=2 {
        supersede(&world, &did);
        let counted = |metrics: &Metrics| metrics.versions_expired.get();
        world
            .until_counted("upkeep looks", counted, expired + more)
            .await;
    }
    assert_eq!(first_number(&world), held, "not past the holder");
    // A reader whose cursor is in the trimmed range is told that it has missed something.
    let mut socket = dial(served.address, "?cursor=1")
        .await
        .expect("it is served");
    let first = socket.next().await.expect("a message").expect("no error");
    let Message::Binary(bytes) = first else {
        panic!("{first:?}");
    };
    match frame::decode(&bytes).expect("a frame") {
        Event::Info(info) => assert_eq!(info.name, "OutdatedCursor"),
        other => panic!("{other:?}"),
    }
    advance(&world, INDEX, world.log_next()).await;
    world
        .until("it is trimmed beyond", async |world: &World| {
            let first = first_number(world);
            condition(first >= later, &(first, later))
        })
        .await;
    let told = consumers(served.address).await;
    assert!(told.first > held && told.first <= told.head, "{told:?}");
    drop(socket);
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overrun_at_the_first_look_after_a_start_is_logged() {
    let mut world = World::settled(network(1, 1)).await;
    world.expect("a consumer of the log is overrun");
    let hold = Hold::For(Duration::ZERO);
    let long_ago = When {
        lived: gapless_core::ledger::Lived(0),
        ..when(&world)
    };
    let consumer = Consumer {
        name: "search".to_owned(),
        next: 1,
        holds_from: 1,
        registered: long_ago,
        moved: long_ago,
        hold,
        needs: ConsumerNeeds::Log,
        overrun: false,
    };
    let (key, log) = (INDEX, None);
    change(&world, ConsumerChange::Register { key, consumer, log }).await;
    world.stop().await;
    let mut program = Program::start(&world, EXE);
    program
        .until_status("it is overrun", |status| {
            status.consumers.iter().any(|one| one.overrun)
        })
        .await;
    world
        .until_logged(&program, "a consumer of the log is overrun")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_a_year_ahead_for_a_while_takes_nothing_held_and_keeps_nothing_purged() {
    let mut world = World::settled(listed(2, 1))
        .with(|config| {
            config.mirror.keep_versions = KEPT;
            config.mirror.purge_grace = Duration::from_secs(1);
        })
        .await;
    world.expect("the clock was set");
    let (did, gone) = (world.did(0), world.did(1));
    supersede(&world, &did);
    supersede(&world, &did);
    world.until_complete(&did).await;
    let superseded = |world: &World| -> Vec<u64> {
        let view = world.mirror().services().store.view();
        let rows = view.superseded_keys(b"");
        rows.map(|row| row.expect("it can be read").1).collect()
    };
    let held = superseded(&world).into_iter().max().expect("two are kept");
    register(&world, INDEX, "index", held, ConsumerNeeds::LogAndVersions).await;
    let clock = world.mirror().services().clock.clone();
    clock.set_wall(365 * 24 * 3600);
    world
        .until("what nobody holds is gone", async |world: &World| {
            let kept = superseded(world);
            condition(kept == [held], &kept)
        })
        .await;
    clock.set_wall(0);
    let set = world.net.set_status(&gone, Status::Deleted);
    set.expect("it is active");
    world
        .until("the purge is over", async |world: &World| {
            let all = world.purges().await;
            let over = matches!(&all[..], [one] if one.state == "finished");
            condition(over, &all)
        })
        .await;
    assert_eq!(superseded(&world), [held], "the consumer has not passed it");
    advance(&world, INDEX, held + 1).await;
    world.stop().await;
}
