//! Tests how the mirror reports problems of its own and of its upstreams: a full disk, a slow
//! start, silent hosts, roots that cannot be recomputed, and dead letters.

use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_core::ledger::UpstreamKind;
use gapless_harness::{PATIENCE, PDS, Program, World, condition, network};
use gapless_mirror::api::{ApiError, Inspect as _, NewUpstream, Operate as _};
use gapless_mirror::store_io::write;
use gapless_store::change::Change;
use gapless_testnet::faults::Part;
use gapless_testnet::{Config as NetConfig, Fault, Place, Spec};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::EXE;

fn small() -> NetConfig {
    network(2, 1)
}

/// A DID that neither the network nor the directory knows.
fn unknown_did(number: usize) -> Did {
    let name: String = format!("{number:024}")
        .chars()
        .map(|digit| char::from(b'a' + (digit as u8 - b'0')))
        .collect();
    Did::parse(&format!("did:plc:{name}")).expect("a DID")
}

async fn known_since(world: &World, did: &Did) -> String {
    let gap = world.gap(did).await.expect("it is one");
    gap.since.expect("it has a time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_reported_everywhere_and_ends_completeness() {
    let mut world = World::settled(small()).await;
    world.expect("nothing is written until there is room on the disk");
    assert!(world.status().await.store.writes);
    // With an event behind it, the stream can show that nothing was missed.
    let did = world.did(0);
    world.post(&did);
    world.until_caught_up(PDS).await;
    world.stop().await;
    world.adjust = |config| {
        config.mirror.min_free_disk = u64::MAX;
        config.mirror.live_grace = Duration::from_secs(1);
    };
    // Nothing new is configured, so it starts without writing anything.
    tokio::time::timeout(PATIENCE, world.begin())
        .await
        .expect("a start on a full disk is a start");
    world.until_open(&world.url(PDS)).await;
    world.post(&did);
    world
        .until("the status says so", async |world: &World| {
            let store = world.status().await.store;
            condition(!store.writes && store.since.is_some(), &store)
        })
        .await;
    world.until_unready("min_free_disk").await;
    let metrics = world.ask(|mirror| mirror.inspector().metrics()).await;
    assert!(metrics.expect("text").contains("\ngapless_store_full 1\n"));
    // Frames arrive, and none becomes durable: the stream proves nothing.
    world.until_incomplete(&did, "cover_down").await;
    let gap = world.gap(&did).await.expect("it is one");
    assert!(gap.since.is_some(), "{gap:?}");
    assert!(gap.doing.contains("The disk is full"), "{gap:?}");
    assert!(
        !gap.doing.contains("Gapless dials"),
        "it is connected: {gap:?}"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_no_older_than_what_is_known_of_it_and_no_younger_for_others() {
    let mut world = World::settled(network(4, 2)).await;
    // It was not heard of before.
    let (late, before) = (unknown_did(1), world.now());
    let name = late.clone();
    let tracked = world
        .ask(move |mirror| mirror.control().track(&[name]))
        .await;
    assert_eq!(tracked.expect("tracked").changed, 1);
    let first = known_since(&world, &late).await;
    assert!(first >= before, "{first} < {before}");
    let gap = world.gap(&late).await.expect("it is one");
    assert!(gap.doing.contains("DID document"), "{gap:?}");
    assert!(!gap.can_do.contains("upstream add"), "{gap:?}");
    // The stream of one host goes, then that of another.
    let (ours, url) = (world.account(0, 0), world.url(PDS));
    let removed = world
        .ask(move |mirror| mirror.control().remove_upstream(&url))
        .await;
    removed.expect("it was followed");
    world.until_incomplete(&ours, "no_cover").await;
    let left = known_since(&world, &ours).await;
    let url = world.url(Place::Pds(1));
    let removed = world
        .ask(move |mirror| mirror.control().remove_upstream(&url))
        .await;
    removed.expect("it was followed");
    assert_eq!(known_since(&world, &ours).await, left);
    // Its row learns of it only now.
    let ask = ours.clone();
    let resynced = world
        .ask(move |mirror| mirror.control().resync(&ask, false))
        .await;
    resynced.expect("it is fetched again");
    world
        .until("fetched again", async |world: &World| {
            let answer = world.answer(&ours).await;
            condition(answer.debt.is_none(), &answer)
        })
        .await;
    assert_eq!(known_since(&world, &ours).await, left);
    assert_eq!(known_since(&world, &late).await, first);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_waits_for_room_answers_and_can_be_ended() {
    let mut world = World::quiet(small()).await;
    world.expect("nothing is written until there is room on the disk");
    let mut program = Program::start(&world, EXE);
    program.until_all_complete().await;
    program.kill();
    // The upstream is not configured any more: that has to be written down.
    world.flags.upstream.clear();
    world.toml.insert_str(0, "min_free_disk = \"1000000TB\"\n");
    let mut program = Program::start(&world, EXE);
    world
        .until("it says why it does not start", async |_: &World| {
            let ready: Option<(u16, Value)> = program.ask("/ready").await;
            let text = format!("{ready:?}");
            let told = text.contains("starting") && text.contains("min_free_disk");
            condition(told && text.contains("503"), &text)
        })
        .await;
    assert_eq!(program.ask("/health").await.expect("it lives").0, 200);
    program.interrupt();
    let ended = program.until_ended(PATIENCE).await;
    assert_eq!(ended.code(), Some(0), "{}", program.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_start_without_room_says_why_it_ends() {
    let mut world = World::quiet(small()).await;
    world.adjust = |config| config.mirror.min_free_disk = u64::MAX;
    let error = world.try_begin().await.expect_err("nothing can be written");
    let words = error.to_string();
    assert!(words.contains("min_free_disk"), "{words}");
    assert!(!words.contains("reading continues"), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_gap_has_a_time_since_when_it_is_one() {
    let mut world = World::settled(small()).await;
    let did = world.did(0);
    let listing = world.guard("listRepos");
    let before = world.now();
    let payload = Fault::Undecodable {
        part: Part::Payload,
    };
    world.inject(Spec::new(payload).of(&did).times(1));
    world.post(&did);
    let other = world.did(1);
    world.until_incomplete(&other, "unreadable_frame").await;
    let unread = known_since(&world, &other).await;
    assert!(unread >= before, "{unread} < {before}");
    // The host forgets, and says so.
    let before = world.now();
    world.inject(Spec::new(Fault::Window { events: 0 }).on(PDS));
    world.inject(Spec::new(Fault::Disconnect {}).on(PDS));
    world.until_incomplete(&other, "epoch_changed").await;
    let reset = known_since(&world, &other).await;
    assert!(reset >= before, "{reset} < {before}");
    let before = world.now();
    let url = world.url(PDS);
    let removed = world
        .ask(move |mirror| mirror.control().remove_upstream(&url))
        .await;
    removed.expect("it was followed");
    world.until_incomplete(&other, "no_cover").await;
    let left = known_since(&world, &other).await;
    assert!(left >= before, "{left} < {before}");
    world.clear(listing).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_names_are_taken_in_together() {
    const NAMES: usize = 500;
    let mut world = World::network(small()).await;
    world.adjust = |config| config.mirror.dids = (0..NAMES).map(unknown_did).collect();
    world.begin().await;
    let tracked = world
        .ask(|mirror| mirror.inspector().tracked(None, 1000))
        .await;
    assert_eq!(tracked.expect("a page").tracked.len(), NAMES);
    let ack = write(&world.mirror().services().store, Change::default()).await;
    let batches = ack.expect("it is written").batch;
    assert!(batches < NAMES as u64, "{batches} writes to the disk");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_with_no_upstream_or_only_disconnected_ones_is_not_ready() {
    let mut world = World::network(small()).await;
    world.adjust = |config| {
        config.mirror.dids = vec![unknown_did(1)];
        config.mirror.ready.max_upstream_age = Duration::from_secs(1);
    };
    world.begin().await;
    world.until_unready("no upstream is followed").await;
    // And why: the directory does not know it.
    world
        .until("the last error is shown", async |world: &World| {
            let gap = world.gap(&unknown_did(1)).await;
            let told = gap.as_ref().and_then(|gap| gap.last_error.as_ref());
            let said_so = told.is_some_and(|told| told.error.contains("does not know it"));
            condition(
                said_so && gap.as_ref().is_some_and(|gap| gap.since.is_some()),
                &gap,
            )
        })
        .await;
    let answer = world
        .repo(&unknown_did(1))
        .await
        .expect("it is known by name");
    assert!(answer.last_error.is_some(), "{answer:?}");
    // The host of a tracked repository is heard, and then not any more.
    let did = world.did(0);
    let tracked = did.clone();
    let changed = world
        .ask(move |mirror| mirror.control().track(&[tracked]))
        .await;
    assert_eq!(changed.expect("tracked").changed, 1);
    world.until_complete(&did).await;
    world
        .until("ready", async |world: &World| {
            let ready = world.ready().await;
            condition(ready.ready, &ready)
        })
        .await;
    world.inject(Spec::new(Fault::DialError { status: 503 }).on(PDS));
    world.inject(Spec::new(Fault::Disconnect {}).on(PDS));
    world.until_unready("hosts of tracked repositories").await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_recomputed_is_said_to_be_so() {
    let mut world = World::quiet(small()).await;
    world.flags.collections = Some("app.bsky.feed.like".to_owned());
    world.flags.keep_keys = Some("wanted".to_owned());
    world.begin().await;
    let dids = world.net.truth().dids();
    let repos = dids.len() as u64;
    world
        .until("complete", async |world: &World| {
            let status = world.status().await;
            condition(status.repos.complete == repos, &status)
        })
        .await;
    let did = dids[0].clone();
    let one = world
        .ask(move |mirror| mirror.inspector().verify(&did))
        .await;
    assert!(!one.expect("an answer").verified);
    let all = world
        .ask(|mirror| mirror.inspector().verify_all(&|_| true))
        .await;
    let report = all.expect("a report");
    assert_eq!((report.not_recomputable, report.skipped), (repos, 0));
    assert_eq!(world.status().await.repos.not_recomputable, repos);
    let did = dids[0].clone();
    let answer = world.ask(move |mirror| mirror.inspector().repo(&did)).await;
    let answer = answer.expect("an answer").expect("it is known");
    assert!(!answer.evidence.recomputable);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_is_a_host_or_a_relay_and_not_both() {
    let mut world = World::settled(small()).await;
    let url = world.url(PDS);
    let new = NewUpstream {
        kind: UpstreamKind::Relay,
        url,
        host: None,
    };
    let added = world
        .ask(move |mirror| mirror.control().add_upstream(new))
        .await;
    let Err(ApiError::Conflict(words)) = added else {
        panic!("{added:?}");
    };
    assert!(words.contains("followed as a pds"), "{words}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_waits_for_a_person_and_for_no_longer() {
    let mut world = World::settled(small()).await;
    let a = world.did(0);
    for _ in 0..2 {
        let undecodable = Fault::Undecodable { part: Part::Rest };
        world.inject(Spec::new(undecodable).of(&a).times(1));
        world.post(&a);
        world.until_caught_up(PDS).await;
    }
    assert_eq!(world.status().await.dead_letters, 2);
    let page = world.ask(|mirror| mirror.inspector().dead(None, 1)).await;
    let page = page.expect("a page");
    let (letter, cursor) = (page.dead[0].clone(), page.cursor);
    assert_eq!(letter.class, "undecodable");
    assert_eq!(letter.did.as_deref(), Some(a.as_str()));
    assert_eq!(letter.upstream, Some(world.url(PDS)));
    assert!(cursor.is_some() && letter.bytes > 0, "{letter:?}");
    let number = letter.number;
    let settled = world
        .ask(move |mirror| mirror.control().resolve_dead(Some(number)))
        .await;
    assert_eq!(settled.expect("settled").resolved, 1);
    assert_eq!(world.status().await.dead_letters, 1);
    let again = world
        .ask(move |mirror| mirror.control().resolve_dead(Some(number)))
        .await;
    assert!(matches!(again, Err(ApiError::NotFound(_))), "{again:?}");
    world.stop().await;
    world.begin().await;
    assert_eq!(world.status().await.dead_letters, 1, "after a start, too");
    let all = world
        .ask(|mirror| mirror.control().resolve_dead(None))
        .await;
    assert_eq!(all.expect("settled").resolved, 1);
    assert_eq!(world.status().await.dead_letters, 0);
    let left = world.ask(|mirror| mirror.inspector().dead(None, 10)).await;
    assert_eq!(left.expect("a page").dead, []);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_needs_nothing_written_does_not_wait_for_one_that_does() {
    let mut world = World::quiet(network(4, 2)).await;
    world.expect("nothing is written until there is room on the disk");
    let mut program = Program::start(&world, EXE);
    program.until_all_complete().await;
    program.kill();
    // The first is not configured any more, which has to be written down.
    let urls = world.net.urls().pds.clone();
    world.flags.upstream.remove(0);
    world.toml.insert_str(0, "min_free_disk = \"1000000TB\"\n");
    let mut program = Program::start(&world, EXE);
    let status = program
        .until_status("the other one is connected", |status| {
            let mut all = status.upstreams.iter();
            all.any(|one| one.url == urls[1] && one.connected)
        })
        .await;
    assert_eq!(status.upstreams.len(), 1, "{status:?}");
    let (code, ready) = program.ask("/ready").await.expect("it answers");
    assert_eq!(code, 503, "it has not begun: {ready}");
    program.interrupt();
    let ended = program.until_ended(PATIENCE).await;
    assert_eq!(ended.code(), Some(0), "{}", program.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_interrupt_ends_it_although_something_is_held() {
    let world = World::quiet(small()).await;
    world.expect("the program ends without waiting");
    // The store never gets to the end of an answer, so it cannot be closed.
    let mut program = Program::start_with(&world, EXE, &[("HOLD_POINT", "event.durable:1")]);
    world.until_logged(&program, "held here").await;
    program.interrupt();
    world.until_logged(&program, "stopping").await;
    program.interrupt();
    let ended = program.until_ended(PATIENCE).await;
    assert_eq!(ended.code(), Some(1), "{}", program.log());
    let said = "second signal: the program ends without waiting for pending writes";
    assert!(program.log().contains(said), "{}", program.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_not_remembered_across_a_change_of_upstreams() {
    let mut world = World::settled(small()).await;
    let all = world.net.truth().dids().len() as u64;
    assert_eq!(world.status().await.repos.complete, all);
    let url = world.url(PDS);
    let removed = world.ask(move |mirror| {
        // Young enough to be remembered.
        let before = mirror
            .inspector()
            .status()
            .expect("an answer")
            .repos
            .complete;
        mirror
            .control()
            .remove_upstream(&url)
            .expect("it was followed");
        (
            before,
            mirror
                .inspector()
                .status()
                .expect("an answer")
                .repos
                .complete,
        )
    });
    assert_eq!(removed.await, (all, 0));
    world.stop().await;
}

/// A host that answers every dial with 429 and this time to wait.
async fn busy_host(retry_after: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = socket.read(&mut head).await;
            let answer = format!(
                "HTTP/1.1 429 Too Many Requests\r\nretry-after: {retry_after}\r\n\
                 content-length: 0\r\nconnection: close\r\n\r\n"
            );
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    format!("http://{address}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_says_when_to_dial_again_is_not_dialed_before() {
    let mut world = World::network(small()).await;
    world.expect("dials again after the wait");
    let url = busy_host(900).await;
    world.flags.upstream.push(format!("relay={url}"));
    world.begin().await;
    let before = world.mirror().services().clock.time();
    let soonest = gapless_mirror::api::timestamp(before.after(Duration::from_secs(890)));
    world
        .until("the next dial is told", async |world: &World| {
            let upstreams = world.ask(|mirror| mirror.inspector().upstreams()).await;
            let next = upstreams.expect("an answer")[0].next_dial.clone();
            condition(next >= soonest, &next)
        })
        .await;
    assert_eq!(world.metrics().dials.get(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_commit_says_nothing_of_how_far_behind_a_stream_is() {
    let mut world = World::settled(small()).await;
    let did = world.did(0);
    world.stop().await;
    world.begin().await;
    world.until_caught_up(PDS).await;
    let forged = Fault::ForgedRev { signed: false };
    world.inject(Spec::new(forged).of(&did));
    world.until_caught_up(PDS).await;
    let upstream = world.upstream(PDS).await;
    assert!(upstream.last_frame.is_some(), "{upstream:?}");
    assert_eq!(upstream.lag_seconds, None, "nothing that was checked");
    world.until_complete(&did).await;
    world.post(&did);
    world.until_caught_up(PDS).await;
    world
        .until("it is told", async |world: &World| {
            let lag = world.upstream(PDS).await.lag_seconds;
            condition(lag.is_some_and(|lag| lag < 30.0), &lag)
        })
        .await;
    world.stop().await;
}
