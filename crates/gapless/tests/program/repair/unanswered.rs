//! Tests hosts that are asked about each repository by itself and do not answer: a request
//! without an answer proves nothing (T25, T46).

use gapless_atp::syntax::Did;
use gapless_harness::{World, listed, swept};
use gapless_mirror::api::timestamp;
use gapless_testnet::faults::Part;
use gapless_testnet::{Config as NetConfig, Fault, Place, SetFault, Spec, Status};

const REPOS: usize = 3;

/// Repositories that are followed by name: their host is not listed, but asked.
async fn by_name(repos: usize, allow_private: bool) -> World {
    let mut world = World::network(listed(repos, 1)).await;
    let dids = world.net.truth().dids();
    world.name(&dids.iter().collect::<Vec<_>>());
    world.flags.allow_private = allow_private;
    world.adjust = swept;
    world.begin().await;
    world
}

/// A small host behind a relay.
async fn behind_a_relay() -> World {
    let mut world = World::network(NetConfig {
        relay: true,
        ..listed(REPOS, 1)
    })
    .await;
    let relay = world.net.urls().relay.clone().expect("there is a relay");
    world.flags.upstream.push(format!("relay={relay}"));
    world.adjust = swept;
    world.begin().await;
    world
        .until("connected", async |world: &World| {
            let covers = world.mirror().services().upstreams.read();
            let open = covers.iter().any(|(id, _)| covers.open_epoch(id).is_some());
            open.then_some(()).ok_or("not yet".to_owned())
        })
        .await;
    // A relay's repositories are known by their events.
    for did in world.net.truth().dids() {
        world.post(&did);
        world
            .until("sighted", async |world: &World| {
                let seen = world.repo(&did).await;
                seen.map(drop).ok_or_else(|| "unknown".to_owned())
            })
            .await;
    }
    world
}

fn no_heads(world: &World) -> SetFault {
    let error = Fault::HttpError {
        status: 503,
        retry_after: None,
        route: Some("getLatestCommit".to_owned()),
    };
    world.inject(Spec::new(error).on(Place::Pds(0)))
}

/// When the only host was last swept.
fn swept_at(world: &World) -> Option<String> {
    let hosts = world.mirror().services().hosts.all();
    let swept = hosts.into_iter().find_map(|(_, host)| host.swept);
    swept.and_then(|swept| timestamp(swept.at))
}

/// Waits until the host was asked so often; whatever is said of `did` meanwhile
/// must not be about a time after `since`.
async fn asked(world: &World, did: &Did, since: &str, times: u64) {
    let least = world.metrics().heads_asked.get() + times;
    world
        .until("asked in vain", async |world: &World| {
            let answer = world.answer(did).await;
            let vouched = answer
                .evidence
                .swept_at
                .as_deref()
                .is_some_and(|at| at > since);
            assert!(!vouched, "since {since}: {answer:?}");
            assert!(swept_at(world).as_deref() <= Some(since), "since {since}");
            if world.metrics().heads_asked.get() >= least {
                Ok(())
            } else {
                Err(format!("{} of {least}", world.metrics().heads_asked.get()))
            }
        })
        .await;
}

fn now(world: &World) -> String {
    timestamp(world.mirror().services().clock.time()).expect("a time")
}

async fn an_omission_is_not_vouched_for(mut world: World, omit: Spec) {
    world.until_all_complete().await;
    let did = world.account(0, 1);
    let failing = no_heads(&world);
    // No question is on its way that began before the fault.
    world.until_fired("http-error", 1).await;
    let name = omit.fault.name();
    let fired = world.fired(&name);
    world.inject(omit.of(&did).times(1));
    let since = now(&world);
    world.post(&did);
    assert_eq!(world.fired(&name), fired + 1);
    asked(&world, &did, &since, 2 * REPOS as u64).await;
    world.until_incomplete(&did, "compare_owed").await;
    assert!(
        world.metrics().sweep_failures.get() > 0,
        "and it is counted"
    );
    world.clear(failing).await;
    let answer = world.until_complete_never_stale(&did).await;
    assert_eq!(answer.evidence.swept.as_deref(), Some("head"));
    world.until_all_complete().await;
    world
        .until("swept", async |world: &World| {
            let at = swept_at(world);
            (at.as_deref() > Some(&since))
                .then_some(())
                .ok_or(format!("{at:?}"))
        })
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t46_c_by_name_an_omission_is_not_vouched_for_by_a_question_without_an_answer() {
    let world = by_name(REPOS, true).await;
    let drop = Fault::Drop { unnumbered: false };
    an_omission_is_not_vouched_for(world, Spec::new(drop)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t46_d_behind_a_relay_an_omission_is_not_vouched_for_by_a_question_without_an_answer() {
    let world = behind_a_relay().await;
    an_omission_is_not_vouched_for(world, Spec::new(Fault::RelayOmit {})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t25_d_by_name_an_unreadable_frame_makes_all_incomplete_until_answers() {
    let mut world = by_name(REPOS, true).await;
    world.until_all_complete().await;
    let (did, other) = (world.account(0, 1), world.account(0, 2));
    let failing = no_heads(&world);
    world.until_fired("http-error", 1).await;
    let undecodable = Fault::Undecodable {
        part: Part::Payload,
    };
    world.inject(Spec::new(undecodable).of(&did).times(1));
    let since = now(&world);
    world.post(&did);
    assert_eq!(world.fired("undecodable"), 1);
    world.until_incomplete(&did, "unreadable_frame").await;
    asked(&world, &did, &since, 2 * REPOS as u64).await;
    for did in [&did, &other] {
        let answer = world.answer(did).await;
        assert!(!answer.complete, "{answer:?}");
    }
    world.clear(failing).await;
    world.until_complete_never_stale(&did).await;
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_does_not_answer_is_not_asked_about_every_repository() {
    const MANY: usize = 40;
    let mut world = by_name(MANY, true).await;
    world.until_all_complete().await;
    let failing = no_heads(&world);
    let failures = world.metrics().sweep_failures.get();
    world
        .until_counted(
            "given up twice",
            |metrics| metrics.sweep_failures.get(),
            failures + 2,
        )
        .await;
    // Repositories that were not asked about are unchanged.
    let dids = world.net.truth().dids();
    let owing = dids.iter().filter(|did| !world.row(did).debt.is_empty());
    let owing = owing.count();
    assert!((1..MANY / 2).contains(&owing), "{owing} of {MANY}");
    world.clear(failing).await;
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_may_not_be_asked_is_not_shown_as_swept() {
    let mut world = by_name(REPOS, false).await;
    world.expect("only https and wss are used for hosts that others name");
    world
        .until_counted(
            "a sweep",
            |metrics| metrics.sweep_failures.get() + metrics.sweeps.get(),
            2,
        )
        .await;
    assert_eq!(swept_at(&world), None);
    for did in world.net.truth().dids() {
        assert!(!world.answer(&did).await.complete);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_host_that_is_asked_about_each_repository_hides_none() {
    const MANY: usize = 12;
    let mut world = by_name(MANY, true).await;
    world.expect("too many repositories vanished at once");
    world.until_all_complete().await;
    let vanished = world.metrics().vanished.get();
    // A sweep that asks about all of them after they are gone.
    let stalled = world.stall(0, "getLatestCommit", None);
    world.until_fired("stall", 1).await;
    let dids = world.net.truth().dids();
    for did in &dids {
        world.inject(Spec::new(Fault::LostAccount {}).of(did).times(1));
        let gone = world.net.set_status(did, Status::Deleted);
        gone.expect("it is active");
    }
    assert_eq!(world.fired("lost-account"), MANY as u64);
    world.clear(stalled).await;
    let all = vanished + MANY as u64;
    world
        .until_counted("asked", |metrics| metrics.vanished.get(), all)
        .await;
    let hosts = world.mirror().services().hosts.all();
    assert!(hosts.iter().any(|(_, host)| host.hiding_suspended));
    // However often it is asked.
    world.until_swept(2).await;
    for did in &dids {
        let answer = world.answer(did).await;
        assert_eq!(answer.account, "active", "nobody said otherwise");
        assert!(!answer.complete && answer.records > Some(0), "{answer:?}");
    }
    world.stop().await;
}
