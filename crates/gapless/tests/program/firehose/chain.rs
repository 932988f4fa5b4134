//! Tests that a consumer of the firehose reads the history that the owners signed, step by
//! step: over live commits, fetches, repairs, kills and restarts, and through a second mirror.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gapless::config::{self, Flags};
use gapless_atp::frame::{self, Event};
use gapless_atp::syntax::Did;
use gapless_core::ledger::Account;
use gapless_harness::{PDS, Program, World, network};
use gapless_mirror::Mirror;
use gapless_mirror::api::Inspect as _;
use gapless_testnet::{Config as NetConfig, Fault, Place, Spec, Status};

use crate::EXE;
use crate::firehose::strict::{Served, Strict};

/// Commits per second while the mirror is killed.
const LOAD: f64 = 150.0;

fn condition(holds: bool, seen: &dyn std::fmt::Debug) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("{seen:?}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_stays_connected_sees_the_true_history() {
    let mut world = World::settled(network(5, 1)).await;
    let served = Served::start(&world).await;
    let mut strict = Strict::new(&world);
    strict.connect(served.address, Some(0)).await;
    strict.until_true().await;
    let syncs = strict.seen().syncs;
    assert!(syncs >= 4, "what was fetched is announced: {syncs}");
    for _ in 0..20 {
        for number in 0..5 {
            world.post(&world.did(number));
        }
    }
    strict.until_true().await;
    {
        let seen = strict.seen();
        assert_eq!(seen.syncs, syncs, "live commits need no announcement");
        let steps: usize = seen.path.values().map(|path| path.len() - 1).sum();
        assert!(steps >= 100, "{steps}");
        assert_eq!((seen.infos.len(), seen.errors.len()), (0, 0));
    }
    // The frames are the host's own, but for the number.
    let theirs = world.net.frames(PDS).expect("it is there");
    let last = theirs.last().expect("it has sent");
    let same = strict.seen().frames.iter().any(|(seq, ours)| {
        let same = frame::renumber(last, *seq).expect("a frame");
        same.to_vec() == *ours
    });
    assert!(same, "byte for byte");
    served.stop().await;
    strict.ended().await;
    assert_eq!(strict.seen().closed, Some(1001), "it is told that we end");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_moved_by_a_fetch_is_announced_and_the_chain_goes_on() {
    let mut world = World::settled(network(3, 1)).await;
    let served = Served::start(&world).await;
    let mut strict = Strict::new(&world);
    strict.connect(served.address, Some(0)).await;
    strict.until_true().await;
    let (lost, large, other) = (world.did(0), world.did(1), world.did(2));
    let syncs = strict.seen().syncs;
    // A commit that never came: the next one follows on nothing, and is fetched.
    world.lose_commit(&lost);
    world.post(&lost);
    world.until_complete(&lost).await;
    strict.until_true().await;
    world.too_big(&large);
    world.until_complete(&large).await;
    strict.until_true().await;
    let announced = strict.seen().syncs - syncs;
    assert!(announced >= 2, "{announced}");
    for did in [&lost, &large, &other] {
        world.post(did);
        world.post(did);
    }
    strict.until_true().await;
    let path = strict.seen().path[lost.as_str()].len();
    assert_eq!(path, 3, "after the word that was no step, two steps");
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_moves_the_head_and_a_commit_of_the_old_form_go_on_as_they_came() {
    let mut world = World::settled(network(2, 1)).await;
    let served = Served::start(&world).await;
    let mut strict = Strict::new(&world);
    strict.connect(served.address, Some(0)).await;
    strict.until_true().await;
    let did = world.did(0);
    // A new key: an empty commit or a #sync, and an #identity with a row of its own.
    let identities = strict.seen().identities;
    world.net.rotate_key(&did, false).expect("it is rotated");
    world.post(&did);
    world.until_complete(&did).await;
    strict.until_true().await;
    assert!(
        strict.seen().identities > identities,
        "others learn of the key"
    );
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_hidden_is_not_sent_any_more_and_comes_back_with_a_word() {
    let mut world = World::settled(network(2, 1)).await;
    let served = Served::start(&world).await;
    let (shown, hidden) = (world.did(0), world.did(1));
    let mut from_the_start = Strict::new(&world);
    from_the_start.connect(served.address, Some(0)).await;
    for did in [&shown, &hidden, &hidden] {
        world.post(did);
    }
    from_the_start.until_true().await;
    world
        .net
        .set_status(&hidden, Status::Takendown)
        .expect("it is taken down");
    from_the_start
        .until("it is told", |seen| {
            let hidden = |told: &(String, bool, Option<String>)| !told.1;
            condition(seen.accounts.last().is_some_and(hidden), &seen.accounts)
        })
        .await;
    let told = from_the_start.seen().accounts.last().cloned();
    let status = Some("takendown".to_owned());
    assert_eq!(told, Some((hidden.to_string(), false, status)));
    // Who comes now reads of it that it is hidden, and nothing else.
    let mut late = Strict::new(&world);
    late.connect(served.address, Some(0)).await;
    world.post(&shown);
    let truth = world.net.truth();
    late.until("caught up", |seen| seen.agrees(&truth, &shown))
        .await;
    {
        let seen = late.seen();
        assert!(!seen.held.contains_key(hidden.as_str()), "nothing of it");
        assert!(
            seen.accounts
                .iter()
                .any(|(did, active, _)| did == hidden.as_str() && !active)
        );
    }
    // Shown again: its next commit follows on what was kept back, so it is announced.
    world
        .net
        .set_status(&hidden, Status::Active)
        .expect("it is active");
    world.until_complete(&hidden).await;
    world.post(&hidden);
    world.until_complete(&hidden).await;
    late.until_true().await;
    from_the_start.until_true().await;
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_returning_consumer_gets_a_sync_for_commits_that_were_kept_back() {
    let mut world = World::settled(network(2, 1)).await;
    let (shown, hidden) = (world.did(0), world.did(1));
    let mut strict = Strict::new(&world);
    let served = Served::start(&world).await;
    strict.connect(served.address, Some(0)).await;
    strict.until_true().await;
    served.stop().await;
    strict.ended().await;
    // While it is away: commits, and then they are hidden.
    world.post(&hidden);
    world.post(&hidden);
    world.until_complete(&hidden).await;
    world
        .net
        .set_status(&hidden, Status::Deactivated)
        .expect("it is active");
    world
        .until("it is hidden", async |world: &World| {
            let view = world.mirror().services().store.view();
            let found = view.repo_by_did(&hidden).expect("read");
            let account = found.map(|(_, repo)| repo.account);
            condition(account == Some(Account::Deactivated), &account)
        })
        .await;
    let served = Served::start(&world).await;
    let cursor = strict.seen().cursor();
    strict.connect(served.address, cursor).await;
    world.post(&shown);
    let truth = world.net.truth();
    strict
        .until("it is past them", |seen| seen.agrees(&truth, &shown))
        .await;
    served.stop().await;
    strict.ended().await;
    // Another start, which does not remember what was kept back.
    world.stop().await;
    world.begin().await;
    world
        .net
        .set_status(&hidden, Status::Active)
        .expect("it is hidden");
    world.until_complete(&hidden).await;
    let served = Served::start(&world).await;
    let cursor = strict.seen().cursor();
    let syncs = strict.seen().syncs;
    strict.connect(served.address, cursor).await;
    world.post(&hidden);
    strict.until_true().await;
    assert_eq!(
        strict.seen().syncs,
        syncs + 1,
        "one word, and then its commit"
    );
    assert_eq!(strict.seen().path[hidden.as_str()].len(), 2);
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_can_follow_a_mirror() {
    let mut world = World::settled(NetConfig {
        did_web: false,
        ..network(6, 2)
    })
    .await;
    let served = Served::start(&world).await;
    let flags = Flags {
        data: Some(world.folder.path().join("second").display().to_string()),
        plc: Some(world.net.urls().plc.clone()),
        allow_private: true,
        sweep_every: Some("1h".to_owned()),
        upstream: vec![format!("relay=http://{}", served.address)],
        ..Flags::default()
    };
    let loaded = config::load(&flags, &[], Path::new("/nonexistent")).expect("it is valid");
    let mut config = loaded.config;
    config.mirror.fetch.requests_per_second = 10_000.0;
    let second = Mirror::start(config.mirror.clone(), true)
        .await
        .expect("it starts");
    for did in world.net.truth().dids() {
        world.post(&did);
        world.post(&did);
    }
    // One by a fetch of the first.
    world.too_big(&world.did(3));
    world.until_all_complete().await;
    for did in world.net.truth().dids() {
        same_root(&world, &second, &did).await;
    }
    let applied = second.services().metrics.events_applied.get();
    for did in world.net.truth().dids() {
        world.post(&did);
    }
    for did in world.net.truth().dids() {
        same_root(&world, &second, &did).await;
    }
    let live = second.services().metrics.events_applied.get() - applied;
    assert_eq!(live, 6, "each of them came over the first mirror's stream");
    second.stop().await.expect("it stops");
    served.stop().await;
    world.stop().await;
}

/// Waits until both mirrors hold the truth's head, called complete by the second.
async fn same_root(world: &World, second: &Arc<Mirror>, did: &Did) {
    world
        .until("the second is where the first is", async |world: &World| {
            let (asked, of) = (second.clone(), did.clone());
            let answer = tokio::task::spawn_blocking(move || asked.inspector().repo(&of)).await;
            let answer = answer.expect("no panic").expect("an answer");
            let head = world.net.truth().head(did).expect("it exists");
            let Some(answer) = answer else {
                return Err("unknown".to_owned());
            };
            let there = answer.complete && answer.rev == Some(head.rev.to_string());
            let view = second.services().store.view();
            let (id, _) = view.repo_by_did(did).expect("read").expect("known");
            let root = view.root(id).expect("the keys make a tree");
            condition(there && root == head.data, &answer)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t39_no_number_ever_names_anything_else_over_kills() {
    let world = World::quiet(network(8, 1)).await;
    let mut strict = Strict::new(&world);
    let mut program = Program::start(&world, EXE);
    program.until_all_complete().await;
    program.kill();
    world.net.set_rate(LOAD).expect("a rate");
    for round in 0..6u64 {
        let mut program = Program::start(&world, EXE);
        program.until_status("it answers", |_| true).await;
        // From its cursor, or all of it again: every number is compared.
        let cursor = match round % 3 {
            2 => Some(0),
            _ => strict.seen().cursor().or(Some(0)),
        };
        let address = ([127, 0, 0, 1], program.port()).into();
        strict.connect(address, cursor).await;
        let before = strict.seen().commits;
        strict
            .until("it reads", |seen| {
                condition(seen.commits > before + 30, &seen.commits)
            })
            .await;
        tokio::time::sleep(Duration::from_millis(37 * round)).await;
        program.kill();
        strict.ended().await;
    }
    world.net.set_rate(0.0).expect("a rate");
    let mut program = Program::start(&world, EXE);
    program.until_all_complete().await;
    let address = ([127, 0, 0, 1], program.port()).into();
    let cursor = strict.seen().cursor();
    strict.connect(address, cursor).await;
    strict.until_true().await;
    let seen = strict.seen();
    assert!(
        seen.infos.is_empty() && seen.errors.is_empty(),
        "{:?}",
        seen.infos
    );
    let commits = seen.frames.values();
    let commits = commits.filter(|bytes| matches!(frame::decode(bytes), Ok(Event::Commit(_))));
    assert!(commits.count() > 150);
    drop(seen);
    program.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn over_dropped_events_and_sweeps_every_state_is_reached_or_announced() {
    let mut world = World::quiet(network(6, 2)).await;
    world.flags.sweep_every = Some("1s".to_owned());
    world.begin().await;
    world.until_all_complete().await;
    let served = Served::start(&world).await;
    let mut strict = Strict::new(&world);
    strict.connect(served.address, Some(0)).await;
    for place in [Place::Pds(0), Place::Pds(1)] {
        world.inject(
            Spec::new(Fault::Drop { unnumbered: false })
                .on(place)
                .times(5),
        );
    }
    for _ in 0..15 {
        for did in world.net.truth().dids() {
            world.post(&did);
        }
    }
    world.until_all_complete().await;
    strict.until_true().await;
    served.stop().await;
    world.stop().await;
}
