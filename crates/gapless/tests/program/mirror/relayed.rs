//! Tests mirrors that follow relays: relays that omit, skip or roll back events, two relays and
//! a host, commits of the old form, and wiped hosts.

use std::sync::atomic::Ordering;
use std::time::Duration;

use gapless::config::Config;
use gapless_atp::syntax::Did;
use gapless_harness::proxy::Proxy;
use gapless_harness::{PDS, Program, World, condition, network};
use gapless_mirror::api::{Inspect as _, timestamp};
use gapless_testnet::{Config as NetConfig, Fault, Place, Spec, Status};

use crate::EXE;

/// Commits per second in the background.
const LOAD: f64 = 100.0;

fn relayed(repos: usize, pds: usize) -> NetConfig {
    NetConfig {
        relay: true,
        did_web: false,
        ..network(repos, pds)
    }
}

/// A mirror that follows the relay alone, all complete, with a sweep every second.
async fn by_relay() -> World {
    by_relay_adjusted(|_| {}).await
}

async fn by_relay_adjusted(adjust: fn(&mut Config)) -> World {
    let mut world = World::network(relayed(6, 2)).await;
    world.adjust = adjust;
    follow_relay(&mut world).await;
    world
}

async fn follow_relay(world: &mut World) {
    let relay = world.net.urls().relay.clone().expect("there is one");
    world.flags.upstream.push(format!("relay={relay}"));
    world.flags.sweep_every = Some("1s".to_owned());
    world.begin().await;
    world.until_connected(Place::Relay).await;
    // A relay is not asked for repositories that it has not spoken of.
    for did in world.net.truth().dids() {
        world.post(&did);
    }
    world.until_all_complete().await;
}

/// Waits until the relay's stream is durable up to its last event.
async fn heard(world: &World) {
    world.until_caught_up(Place::Relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_relay_told_of_too_many_the_directory_is_asked_first_and_nothing_is_lost() {
    // Repositories that are not known yet are over the limit. All are complete in the end.
    let mut world = by_relay_adjusted(|config| config.mirror.newcomers = 0).await;
    let (passed, known) = (
        world.metrics().newcomers_passed.get(),
        world.metrics().newcomers_known.get(),
    );
    assert!(passed >= 6 && known >= 6, "{passed} {known}");
    // From then on they are followed like all others.
    for did in world.net.truth().dids() {
        let live = world.post(&did);
        world.until_complete(&did).await;
        let answer = world.answer(&did).await;
        assert_eq!(answer.last_firehose_rev, Some(live.rev.to_string()));
    }
    assert_eq!(world.metrics().newcomers_passed.get(), passed);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_relay_omits_is_found_by_a_sweep() {
    let mut world = by_relay().await;
    let (silent, other) = (world.did(0), world.did(1));
    let omit = world.inject(Spec::new(Fault::RelayOmit {}).of(&silent));
    let lost: Vec<_> = (0..3).map(|_| world.post(&silent)).collect();
    assert_eq!(world.fired("relay-omit"), 3);
    world.post(&other);
    heard(&world).await;
    world.until_complete(&silent).await;
    let answer = world.answer(&silent).await;
    assert_eq!(answer.last_indexed_rev, Some(lost[2].rev.to_string()));
    // What comes again after that chains.
    world.clear(omit).await;
    let live = world.post(&silent);
    world.until_complete(&silent).await;
    let answer = world.answer(&silent).await;
    assert_eq!(answer.last_firehose_rev, Some(live.rev.to_string()));
    world.until_all_complete().await;
    world.stop().await;
}

/// What is known only of repositories that a relay spoke of is not said of the whole network.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_by_a_relays_word_is_said_of_those_it_spoke_of() {
    let mut world = World::network(relayed(6, 2)).await;
    let relay = world.net.urls().relay.clone().expect("there is one");
    world.flags.upstream.push(format!("relay={relay}"));
    world.begin().await;
    world.until_connected(Place::Relay).await;
    world.post(&world.did(0));
    world.until_complete(&world.did(0)).await;
    let page = world
        .ask(|mirror| mirror.inspector().gaps(None, 100))
        .await
        .expect("an answer");
    assert_eq!(page.gaps, [], "one was heard of, and is complete");
    let reach = page.reach.expect("on the first page");
    assert_eq!((reach.repos, reach.listed_total), (1, 0), "{reach:?}");
    assert_eq!(reach.relays, std::slice::from_ref(&relay));
    let words = [
        "the 1 repository that Gapless knows",
        "not read the whole listing of any host",
        "reports only active accounts",
    ];
    for words in words {
        assert!(reach.says.contains(words), "{}", reach.says);
    }
    let next = world
        .ask(|mirror| mirror.inspector().gaps(Some(0), 100))
        .await;
    assert_eq!(next.expect("an answer").reach, None);
    world.stop().await;
    // The host itself, followed whole, says who lives there.
    let mut world = World::settled(network(3, 1)).await;
    let reach = world
        .ask(|mirror| mirror.inspector().status().expect("an answer"))
        .await
        .reach;
    assert_eq!((reach.repos, reach.listed_total), (3, 1), "{reach:?}");
    assert!(
        reach.listed[0].until.is_some() && reach.relays.is_empty(),
        "{reach:?}"
    );
    assert!(
        reach.says.contains("Gapless read the whole listing of") && reach.says.contains(" at 20"),
        "{}",
        reach.says
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_that_a_relay_skips_are_found_by_a_sweep_or_by_the_next_commit() {
    let mut world = by_relay().await;
    let (quiet, busy) = (world.did(0), world.did(1));
    let gap = |did: &Did| Spec::new(Fault::RelayGap {}).of(did).times(1);
    world.inject(gap(&quiet));
    world.inject(gap(&busy));
    world.post(&quiet);
    world.post(&busy);
    assert_eq!(world.fired("relay-gap"), 2);
    world.post(&busy);
    heard(&world).await;
    world.until_complete(&busy).await;
    world.until_complete(&quiet).await;
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_rolled_back_and_counts_anew_leaves_nothing_wrong() {
    let mut world = by_relay().await;
    world.net.stir(40);
    world.until_all_complete().await;
    heard(&world).await;
    let before = world.net.last_seq(Place::Relay).expect("it is there");
    world.inject(Spec::new(Fault::RelayRollback { events: 20 }).on(Place::Relay));
    world.inject(Spec::new(Fault::Disconnect {}).on(Place::Relay));
    assert!(world.net.last_seq(Place::Relay) < Some(before));
    // Other events under numbers that we have had, and then further ones.
    world.net.stir(10);
    world.until_all_complete().await;
    world.net.stir(40);
    world.until_all_complete().await;
    assert!(world.net.last_seq(Place::Relay) > Some(before));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_and_a_host_together_under_load() {
    let mut world = World::network(relayed(8, 2)).await;
    let direct = world.net.urls().relay.clone().expect("there is one");
    let way = Proxy::to(&direct).await;
    let own = world.net.urls().pds[0].clone();
    for upstream in [
        format!("relay={direct}"),
        format!("relay={}", way.url),
        format!("pds={own}"),
    ] {
        world.flags.upstream.push(upstream);
    }
    world.flags.sweep_every = Some("2s".to_owned());
    let mut program = Program::start(&world, EXE);
    program
        .until_status("all three are open", |status| {
            status.upstreams.iter().filter(|one| one.connected).count() == 3
        })
        .await;
    world.net.set_rate(LOAD).expect("a rate");
    for did in world.net.truth().dids() {
        world.post(&did);
    }
    program
        .until_status("known", |status| status.repos.total == 8)
        .await;
    // Each of the three loses its connection once, one of them its past as well.
    way.open.send_replace(false);
    world.inject(Spec::new(Fault::Window { events: 1 }).on(PDS));
    world.inject(Spec::new(Fault::Disconnect {}).on(PDS));
    world.inject(Spec::new(Fault::Disconnect {}).on(Place::Relay));
    for did in world.net.truth().dids() {
        // Whatever is said meanwhile is true at its rev.
        program.repo(&did).await;
    }
    world
        .until("the way is cut", async |_: &World| {
            let cuts = way.cuts.load(Ordering::Relaxed);
            condition(cuts > 0, &cuts)
        })
        .await;
    way.open.send_replace(true);
    world.net.set_rate(0.0).expect("a rate");
    program.until_all_complete().await;
    let truth = world.net.truth();
    for did in truth.dids() {
        let answer = program.until_complete(&did).await;
        let via = answer.evidence.via.expect("somebody speaks for it");
        match truth.head(&did).expect("it exists").host {
            0 => assert_eq!(via, own, "the host's own stream"),
            _ => assert!(via == direct || via == way.url, "{via}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_without_the_root_before_them_are_recomputed_and_never_fetched() {
    let mut world = World::settled(network(4, 1)).await;
    let (fetched, applied) = (
        world.snapshots().await,
        world.metrics().events_applied.get(),
    );
    let legacy = world.inject(Spec::new(Fault::Legacy {}).on(PDS));
    let made = world.net.stir(120);
    assert_eq!(world.fired("legacy"), made);
    world.until_caught_up(PDS).await;
    for did in world.net.truth().dids() {
        world.assert_complete(&did).await;
    }
    assert_eq!(world.metrics().events_applied.get(), applied + made);
    assert_eq!(world.snapshots().await, fetched);
    // One that was lost before them breaks the chain all the same.
    let did = world.did(0);
    world.lose_commit(&did);
    let held = world.stall(0, "getRepo", Some(&did));
    world.post(&did);
    world
        .until_incomplete_for(&did, &["newer_commit_known", "fetch_owed"])
        .await;
    world.until_fired("stall", 1).await;
    world.clear(held).await;
    world.until_complete(&did).await;
    assert_eq!(world.snapshots().await, fetched + 1);
    world.clear(legacy).await;
    world.until_all_complete().await;
    world.stop().await;
}

/// A mirror by a relay alone, with hardly any grace. Its hosts are asked about each
/// repository, or their listings are read.
async fn by_relay_without_grace(listed: bool) -> World {
    let mut world = World::network(relayed(6, 2)).await;
    world.flags.network = listed;
    world.adjust = |config| config.mirror.purge_grace = Duration::from_secs(1);
    follow_relay(&mut world).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_behind_a_relay_is_purged_once_its_host_shows_the_others() {
    for listed in [false, true] {
        purged_behind_a_relay(listed).await;
    }
}

async fn purged_behind_a_relay(listed: bool) {
    let mut world = by_relay_without_grace(listed).await;
    let gone = world.did(0);
    // Until a sweep has found them together, the others may have come to the host after it.
    let known = timestamp(world.mirror().services().clock.time());
    world
        .until("it is swept", async |world: &World| {
            let answer = world.answer(&gone).await;
            condition(answer.evidence.swept_at > known, &answer)
        })
        .await;
    world
        .net
        .set_status(&gone, Status::Deleted)
        .expect("it is active");
    world
        .until("it is purged", async |world: &World| {
            let (all, answer) = (world.purges().await, world.answer(&gone).await);
            let purged = matches!(&all[..], [one] if one.did == gone.as_str());
            condition(purged && answer.records == Some(0), &(all, answer))
        })
        .await;
    let answer = world.answer(&gone).await;
    assert_eq!((answer.account.as_str(), answer.awaits), ("deleted", None));
    assert_eq!(answer.records, Some(0));
    let vanished = world.metrics().vanished.get();
    assert_eq!(vanished, 0, "nobody was alarmed");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_behind_a_relay_stays_while_its_host_may_have_been_wiped() {
    for listed in [false, true] {
        kept_behind_a_relay(listed).await;
    }
}

async fn kept_behind_a_relay(listed: bool) {
    let mut world = by_relay_without_grace(listed).await;
    world.expect("the host says that it has no such repository");
    let truth = world.net.truth();
    let host = truth.head(&world.did(0)).expect("it exists").host;
    let lives = |did: &Did| truth.head(did).expect("it exists").host == host;
    let mut there: Vec<Did> = truth.dids().into_iter().filter(lives).collect();
    let gone = there.remove(0);
    // The host loses all it has, and tells of one alone.
    let silent = world.inject(Spec::new(Fault::LostAccount {}));
    for did in &there {
        let set = world.net.set_status(did, Status::Deleted);
        set.expect("it is active");
    }
    assert_eq!(world.fired("lost-account"), there.len() as u64);
    world.clear(silent).await;
    let set = world.net.set_status(&gone, Status::Deleted);
    set.expect("it is active");
    world
        .until("it is denied", async |world: &World| {
            let answer = world.answer(&gone).await;
            let awaits = answer.awaits.clone().unwrap_or_default();
            condition(awaits.contains("whole sweep"), &answer)
        })
        .await;
    // Four times for each of the two hosts.
    world.until_swept(8).await;
    let answer = world.answer(&gone).await;
    assert_eq!(answer.account, "deleted_unconfirmed");
    assert!(answer.records > Some(0), "{answer:?}");
    assert!(world.purges().await.is_empty());
    let mirror = world.mirror().clone();
    let gaps = tokio::task::spawn_blocking(move || mirror.inspector().gaps(None, 100));
    let gaps = gaps.await.expect("no panic").expect("an answer");
    let named = gaps.gaps.iter().any(|gap| gap.did == gone.as_str());
    assert!(!named, "it is no gap: {gaps:?}");
    world.stop().await;
}

/// So many vanish, and a host of them is doubted.
const MANY: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_host_hides_no_repository_until_an_operator_confirms() {
    let mut world = World::quiet(NetConfig {
        did_web: false,
        ..network(30, 1)
    })
    .await;
    world.flags.sweep_every = Some("1s".to_owned());
    world.expect("too many repositories vanished at once");
    world.expect("the host says that it has no such repository");
    let mut program = Program::start(&world, EXE);
    program.until_all_complete().await;
    let dids = world.net.truth().dids();
    let (lost, kept) = dids.split_at(MANY);
    // The host has lost them and says nothing of it.
    let silent = world.inject(Spec::new(Fault::LostAccount {}));
    for did in lost {
        world
            .net
            .set_status(did, Status::Deleted)
            .expect("it is active");
    }
    assert_eq!(world.fired("lost-account"), MANY as u64);
    world.clear(silent).await;
    let url = world.net.urls().pds[0].clone();
    program
        .until_status("hiding is suspended", |status| {
            status.hiding_suspended.contains(&url)
        })
        .await;
    for did in lost {
        let answer = program
            .until_repo(did, "in doubt", |answer| !answer.complete)
            .await;
        assert_eq!(answer.account, "active", "not hidden: {answer:?}");
        assert!(answer.records > Some(0), "nor gone");
    }
    for did in kept {
        program.until_complete(did).await;
    }
    let status = program.status().await.expect("it answers");
    assert_eq!(status.repos.hidden, 0);
}

/// A listing that lacks almost everything, while the host still has it.
async fn shortened(fault: Fault) {
    let mut world = World::quiet(NetConfig {
        did_web: false,
        ..network(20, 1)
    })
    .await;
    world.flags.sweep_every = Some("1s".to_owned());
    world.expect("too many repositories vanished at once");
    world.begin().await;
    world.until_all_complete().await;
    let (name, vanished) = (fault.name(), world.metrics().vanished.get());
    let short = world.inject(Spec::new(fault).on(PDS));
    world.until_fired(&name, 2).await;
    let suspended = |world: &World| {
        let mut hosts = world.mirror().services().hosts.all().into_iter();
        hosts.any(|(_, host)| host.hiding_suspended)
    };
    world
        .until("hiding is suspended", async |world: &World| {
            condition(suspended(world), &"not yet")
        })
        .await;
    world.net.stir(40);
    // The host itself says that it has them: no repository is hidden, nor incomplete for long.
    world.until_all_complete().await;
    for did in world.net.truth().dids() {
        assert_eq!(world.answer(&did).await.account, "active");
    }
    assert_eq!(world.metrics().vanished.get(), vanished);
    world.clear(short).await;
    world.net.stir(40);
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_listing_hides_no_repository_that_the_host_still_has() {
    shortened(Fault::ListEmpty {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shortened_listing_hides_no_repository_that_the_host_still_has() {
    shortened(Fault::ListShort { keep: 3 }).await;
}
