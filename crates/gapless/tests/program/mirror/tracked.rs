//! Tests repositories that are followed by name: from a file, and added while the mirror runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use gapless::config;
use gapless_atp::syntax::Did;
use gapless_core::ledger::UpstreamKind;
use gapless_harness::{Program, World, condition, network};
use gapless_mirror::Mirror;
use gapless_mirror::api::{Inspect as _, NewUpstream, Operate as _, RepoAnswer};
use gapless_testnet::{Fault, Place, Spec};

use crate::EXE;

/// A network of two hosts, and a file that names accounts of it: by host, and by
/// their number there.
async fn named(accounts: &[(usize, usize)]) -> World {
    let mut world = World::network(network(8, 2)).await;
    let dids: Vec<Did> = accounts
        .iter()
        .map(|(host, number)| world.account(*host, *number))
        .collect();
    world.name(&dids.iter().collect::<Vec<_>>());
    world
}

/// Waits until a host's stream is durable up to its last event.
async fn passed(program: &mut Program, world: &World, host: usize) {
    let (url, last) = (
        world.net.urls().pds[host].clone(),
        world.net.last_seq(Place::Pds(host)),
    );
    program
        .until_status("the cursor passes", |status| {
            let mut all = status.upstreams.iter();
            all.any(|one| one.url == url && one.cursor == last)
        })
        .await;
}

fn has(reason: &'static str) -> impl Fn(&RepoAnswer) -> bool {
    move |answer| answer.reasons.iter().any(|one| one == reason)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_dids_is_mirrored_and_nothing_else_of_their_hosts() {
    let accounts = [(0, 0), (0, 1), (1, 0)];
    let world = named(&accounts).await;
    let ours = accounts.map(|(host, number)| world.account(host, number));
    let (stranger, far) = (world.account(0, 2), world.account(1, 1));
    let mut program = Program::start(&world, EXE);
    for did in &ours {
        program.until_complete(did).await;
    }
    let status = program
        .until_status("two hosts are followed", |status| {
            status.upstreams.iter().filter(|one| one.open).count() == 2
        })
        .await;
    assert!(status.upstreams.iter().all(|one| one.kind == "pds"));
    assert_eq!(status.repos.total, 3, "nobody else");
    // Their commits are applied, and those of others are passed over.
    for _ in 0..5 {
        for did in ours.iter().chain([&stranger, &far]) {
            world.post(did);
        }
    }
    for host in [0, 1] {
        passed(&mut program, &world, host).await;
    }
    for did in &ours {
        let answer = program.until_complete(did).await;
        assert_eq!(answer.last_firehose_rev, answer.rev, "by the stream");
    }
    for did in [&stranger, &far] {
        assert_eq!(program.repo(did).await, None);
    }
    // Nor does a sweep add repositories.
    let status = program.status().await.expect("it answers");
    assert_eq!((status.repos.total, status.repos.complete), (3, 3));
    program.kill();
    let mut program = Program::start(&world, EXE);
    for did in &ours {
        program.until_complete(did).await;
    }
    let status = program.status().await.expect("it answers");
    assert_eq!(status.repos.total, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_are_tracked_and_left_while_it_runs() {
    let world = named(&[(0, 0)]).await;
    let kept = world.account(0, 0);
    let (near, far) = (world.account(0, 1), world.account(1, 0));
    let mut program = Program::start(&world, EXE);
    program.until_complete(&kept).await;
    let added = program
        .run_command(&["track", "add", near.as_str(), far.as_str()])
        .await;
    assert!(added.contains('2'), "{added}");
    program.until_complete(&near).await;
    program.until_complete(&far).await;
    let list = program.run_command(&["track", "list"]).await;
    let mut all = [kept.as_str(), near.as_str(), far.as_str()];
    all.sort_unstable();
    assert_eq!(list.lines().collect::<Vec<_>>(), all);

    program
        .run_command(&["track", "remove", near.as_str(), far.as_str()])
        .await;
    for did in [&near, &far] {
        let left = program.until_repo(did, "no cover", has("no_cover")).await;
        assert!(left.records > Some(0), "kept as it was");
    }
    let status = program
        .until_status("the far host is left", |status| status.upstreams.len() == 1)
        .await;
    assert_eq!(status.upstreams[0].url, world.net.urls().pds[0]);
    let held = program.repo(&near).await.expect("it is known").rev;
    world.post(&near);
    world.post(&far);
    world.post(&kept);
    passed(&mut program, &world, 0).await;
    let left = program.repo(&near).await.expect("it is known");
    assert_eq!((left.complete, left.rev), (false, held));

    // Remembered across a restart, with no word from the file.
    program
        .run_command(&["track", "add", near.as_str(), far.as_str()])
        .await;
    program.interrupt();
    let ended = program.until_ended(Duration::from_secs(10)).await;
    assert!(ended.success(), "{}", program.log());
    world.post(&near);
    let mut program = Program::start(&world, EXE);
    for did in [&kept, &near, &far] {
        program.until_complete(did).await;
    }
    let list = program.run_command(&["track", "list"]).await;
    assert_eq!(list.lines().count(), 3);
    let status = program.status().await.expect("it answers");
    assert_eq!(status.repos.total, 3);
}

/// The addresses that are followed.
async fn followed(world: &World) -> Vec<String> {
    let mirror = world.mirror().clone();
    let asked = tokio::task::spawn_blocking(move || mirror.inspector().upstreams());
    let all = asked.await.expect("no panic").expect("an answer");
    all.into_iter().map(|one| one.url).collect()
}

async fn until_followed(world: &World, hosts: &[usize]) {
    let wanted: BTreeSet<String> = hosts
        .iter()
        .map(|host| world.net.urls().pds[*host].clone())
        .collect();
    world
        .until("these are followed", async |world: &World| {
            let all = followed(world).await;
            condition(wanted == all.iter().cloned().collect(), &all)
        })
        .await;
}

/// It lives on the other host from now on. Of the stream that is followed nothing is
/// told but that the old host has closed the account.
fn moves(world: &World, did: &Did) {
    let (to, import) = (Some(1), false);
    world.inject(Spec::new(Fault::Migrate { to, import }).of(did));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_left_when_the_last_tracked_repository_has_moved_away() {
    let mut world = World::network(network(8, 2)).await;
    let (first, last) = (world.account(0, 0), world.account(0, 1));
    world.name(&[&first, &last]);
    world.begin().await;
    world.until_complete(&first).await;
    world.until_complete(&last).await;
    until_followed(&world, &[0]).await;
    moves(&world, &first);
    world.until_complete(&first).await;
    until_followed(&world, &[0, 1]).await;
    // The other one still lives there, and is heard.
    let live = world.post(&last);
    world.until_complete(&last).await;
    let answer = world.answer(&last).await;
    assert_eq!(answer.last_firehose_rev, Some(live.rev.to_string()));
    moves(&world, &last);
    until_followed(&world, &[1]).await;
    world.until_complete(&first).await;
    world.until_complete(&last).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tracked_and_untracked_at_once_is_one_or_the_other() {
    let mut world = named(&[(0, 0), (0, 1)]).await;
    let a = world.account(0, 0);
    world.begin().await;
    world.until_complete(&a).await;
    for round in 0..200 {
        let order = |track: bool| {
            let (mirror, dids) = (world.mirror().clone(), vec![a.clone()]);
            tokio::task::spawn_blocking(move || {
                if track {
                    mirror.control().track(&dids)
                } else {
                    mirror.control().untrack(&dids)
                }
            })
        };
        let remove = order(false);
        tokio::time::sleep(Duration::from_micros(round * 37 % 5000)).await;
        let add = order(true);
        remove.await.expect("no panic").expect("it is done");
        add.await.expect("no panic").expect("it is done");
        // A row that calls itself tracked is covered by a stream that is read for
        // those that are.
        let row = world.mirror().services().store.view().repo_by_did(&a);
        let (_, row) = row.expect("it can be read").expect("it is known");
        assert_eq!(
            row.tracked,
            world.mirror().services().admission.is_tracked(&a),
            "round {round}"
        );
        order(true).await.expect("no panic").expect("it is done");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_tracked_no_longer_during_a_start_stays_so() {
    let world = World::network(network(2, 1)).await;
    let many: Vec<Did> = (0..5_000)
        .map(|n| Did::parse(&format!("did:web:nobody{n}.invalid")).expect("a DID"))
        .collect();
    let loaded = config::load(&world.flags, &[], Path::new("/nonexistent"));
    let mut config = loaded.expect("it is valid").config;
    config.mirror.dids = many.clone();
    let mirror = Mirror::start(config.mirror.clone(), true).await;
    let mirror = mirror.expect("it starts");
    mirror.stop().await.expect("it stops");
    drop(mirror);
    config.mirror.dids = Vec::new();
    let mirror = Mirror::open(config.mirror.clone()).await.expect("it opens");
    let (asked, dids) = (mirror.clone(), many[..1_000].to_vec());
    let removing = tokio::task::spawn_blocking(move || asked.control().untrack(&dids));
    mirror.begin(true).await.expect("it begins");
    let gone = removing.await.expect("no panic").expect("it is done");
    assert_eq!(gone.changed, 1_000);
    let mut first = many[..1_000].iter();
    assert_eq!(
        first.find(|did| mirror.services().admission.is_tracked(did)),
        None
    );
    mirror.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_tracked_stays_followed_when_its_upstream_is_removed() {
    let mut world = World::settled(network(3, 1)).await;
    let (did, url) = (world.did(0), world.url(Place::Pds(0)));
    let named = vec![did.clone()];
    let tracked = world
        .ask(move |mirror| mirror.control().track(&named))
        .await;
    tracked.expect("it is tracked");
    world.until_complete(&did).await;
    let gone = url.clone();
    let removed = world
        .ask(move |mirror| mirror.control().remove_upstream(&gone))
        .await;
    removed.expect("it was followed");
    world.post(&did);
    world.until_complete(&did).await;
    // For the tracked one alone, and not by an order.
    let gone = url.clone();
    let refused = world
        .ask(move |mirror| mirror.control().remove_upstream(&gone))
        .await;
    let refused = refused.expect_err("it is needed").to_string();
    assert!(refused.contains("gapless track remove"), "{refused}");
    // A relay of that address is another one.
    let new = NewUpstream {
        kind: UpstreamKind::Relay,
        url: url.clone(),
        host: None,
    };
    let added = world
        .ask(move |mirror| mirror.control().add_upstream(new))
        .await;
    assert_eq!(added.expect("it is new").kind, "relay");
    let removed = world
        .ask(move |mirror| mirror.control().remove_upstream(&url))
        .await;
    removed.expect("it was followed");
    let left = world.ask(|mirror| mirror.inspector().upstreams()).await;
    let left = left.expect("an answer");
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].kind, "pds");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_is_added_while_it_starts_is_followed_once() {
    let mut world = World::settled(network(3, 1)).await;
    let url = world.url(Place::Pds(0));
    let new = || NewUpstream {
        kind: UpstreamKind::Pds,
        url: url.clone(),
        host: None,
    };
    // From the configuration to one that was added while running.
    let gone = url.clone();
    let removed = world
        .ask(move |mirror| mirror.control().remove_upstream(&gone))
        .await;
    removed.expect("it was followed");
    let again = new();
    let added = world
        .ask(move |mirror| mirror.control().add_upstream(again))
        .await;
    added.expect("it is followed");
    world.stop().await;
    world.flags.upstream.clear();
    let loaded = config::load(&world.flags, &[], Path::new("/nonexistent"));
    let config = loaded.expect("it is valid").config;
    let mirror = Mirror::open(config.mirror.clone()).await.expect("it opens");
    // The program answers from now on, and a request arrives.
    let (asked, again) = (mirror.clone(), new());
    let added = tokio::task::spawn_blocking(move || asked.control().add_upstream(again)).await;
    added.expect("no panic").expect("it is followed");
    mirror.begin(true).await.expect("it begins");
    world.mirror = Some(mirror);
    world.post(&world.did(0));
    world.until_complete(&world.did(0)).await;
    world.until_caught_up(Place::Pds(0)).await;
    assert_eq!(world.metrics().dials.get(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_passed_over_just_before_the_end_of_a_connection_holds_nothing_back() {
    let mut world = named(&[(0, 0)]).await;
    world.adjust = |config| config.mirror.live_grace = Duration::from_secs(1);
    world.begin().await;
    let (ours, stranger) = (world.account(0, 0), world.account(0, 1));
    world.until_complete(&ours).await;
    let place = Place::Pds(0);
    let dials = world.metrics().dials.get();
    world.post(&stranger);
    world.until_all_read(place).await;
    world.inject(Spec::new(Fault::Disconnect {}).on(place));
    world
        .until("dialed again", async |world: &World| {
            let now = world.metrics().dials.get();
            condition(now > dials, &now)
        })
        .await;
    world.until_caught_up(place).await;
    world.until_complete(&ours).await;
    world.stop().await;
}

/// A mistyped name is forgotten once it is no longer tracked, and nothing is owed for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_mistyped_can_be_taken_back() {
    let mut world = World::settled(network(3, 1)).await;
    let before = world.status().await.repos;
    let wrong = Did::parse("did:web:nobody.invalid").expect("a DID");
    let named = vec![wrong.clone()];
    let tracked = world
        .ask(move |mirror| mirror.control().track(&named))
        .await;
    tracked.expect("it is tracked");
    world
        .until("it is asked for", async |world: &World| {
            let last_error = world.mirror().fetcher().last_errors.of(&wrong);
            condition(last_error.is_some(), &last_error.is_some())
        })
        .await;
    world
        .until("it is counted", async |world: &World| {
            let total = world.status().await.repos.total;
            condition(total == before.total + 1, &total)
        })
        .await;
    let named = vec![wrong.clone()];
    let gone = world
        .ask(move |mirror| mirror.control().untrack(&named))
        .await;
    assert_eq!(gone.expect("it was tracked").changed, 1);
    world
        .until("as if it had never been named", async |world: &World| {
            let status = world.status().await;
            let forgotten = status.repos == before && status.debt.repos == 0;
            condition(forgotten, &status)
        })
        .await;
    let gaps = world.ask(|mirror| mirror.inspector().gaps(None, 9)).await;
    assert_eq!(gaps.expect("an answer").gaps, []);
    let asked = wrong.clone();
    let none = world
        .ask(move |mirror| mirror.inspector().repo(&asked))
        .await;
    assert_eq!(none.expect("an answer"), None);
    // What is held stays.
    let did = world.did(0);
    let named = vec![did.clone()];
    for track in [true, false] {
        let named = named.clone();
        let changed = world.ask(move |mirror| {
            if track {
                mirror.control().track(&named)
            } else {
                mirror.control().untrack(&named)
            }
        });
        changed.await.expect("it is done");
    }
    world.until_complete(&did).await;
    world.stop().await;
}
