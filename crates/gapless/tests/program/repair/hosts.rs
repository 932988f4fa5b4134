//! Tests hosts: migrations, misrouted events, and hosts that are behind the mirror (T12 to T15,
//! T18, T23, T45, T56, T61).

use gapless_atp::syntax::Did;
use gapless_core::ledger::settings::OnRollback;
use gapless_harness::{World, listed, swept, unswept};
use gapless_mirror::api::Operate as _;
use gapless_testnet::{Fault, Place, Spec};

fn migrate(world: &World, did: &Did, to: usize) {
    let migrate = Fault::Migrate {
        to: Some(to),
        import: false,
    };
    let set = world.inject(Spec::new(migrate).of(did));
    assert_eq!(set.fired, 1);
}

fn roll_back(world: &World, did: &Did, commits: usize) {
    let set = world.inject(Spec::new(Fault::RevRollback { commits }).of(did));
    assert_eq!(set.fired, 1);
}

/// Complete, and by the host's own word.
async fn complete_at(world: &World, did: &Did, host: usize) {
    let answer = world.until_complete_never_stale(did).await;
    assert_eq!(answer.host, Some(world.host_url(host)));
    assert_eq!(answer.evidence.via, Some(world.host_url(host)));
}

#[tokio::test(flavor = "multi_thread")]
async fn t12_a_snapshot_that_a_migration_overtook_makes_nothing_complete() {
    let mut world = World::settled(listed(4, 2)).with(unswept).await;
    let did = world.account(0, 1);
    let written = world.metrics().snapshots_written.get();
    world.drip(0, "getRepo", 200);
    let fetched = world.too_big(&did);
    world.until_incomplete(&did, "fetch_owed").await;
    world.until_fired("drip", 1).await;
    // The directory is slower than the old host.
    let silence = Fault::Stall {
        ms: None,
        route: None,
    };
    let silent = world.inject(Spec::new(silence).on(Place::Plc));
    migrate(&world, &did, 1);
    // The new host has announced it; the old one's answer is still on its way.
    world.until_incomplete(&did, "resolve_owed").await;
    assert_eq!(world.metrics().snapshots_written.get(), written);
    world
        .until("the snapshot has come", async |world: &World| {
            let answer = world.never_stale(&did).await;
            assert_ne!(
                (answer.complete, answer.rev),
                (true, Some(fetched.rev.to_string()))
            );
            let metrics = world.metrics();
            let ended =
                metrics.snapshots_written.get() > written || metrics.snapshots_discarded.get() > 0;
            ended.then_some(()).ok_or("not yet".to_owned())
        })
        .await;
    world.clear(silent).await;
    complete_at(&world, &did, 1).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t12_b_who_moves_does_not_wait_for_what_the_old_host_sends() {
    let mut world = World::settled(listed(4, 2)).with(unswept).await;
    let moving = [
        (world.account(0, 0), "getRepo"),
        (world.account(0, 1), "getLatestCommit"),
    ];
    for (did, route) in moving {
        let failures = world.metrics().request_failures.get();
        let stalls = world.fired("stall");
        // The old host does not answer any more.
        let stalled = world.stall(0, route, Some(&did));
        world.too_big(&did);
        world.until_fired("stall", stalls + 1).await;
        migrate(&world, &did, 1);
        complete_at(&world, &did, 1).await;
        assert_eq!(
            world.metrics().request_failures.get(),
            failures,
            "it was not waited for until it failed"
        );
        assert_eq!(world.fired("stall"), stalls + 1, "nor asked again");
        world.clear(stalled).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t13_there_and_back_with_commits_in_between() {
    let mut world = World::settled(listed(4, 2)).with(unswept).await;
    let did = world.account(0, 1);
    let moved = world.metrics().moved.get();
    for to in [1, 0, 1, 0] {
        migrate(&world, &did, to);
        world.post(&did);
        world
            .until_repo(&did, "moved", |answer| {
                answer.host == Some(world.host_url(to))
            })
            .await;
        complete_at(&world, &did, to).await;
        world.post(&did);
        world.until_complete(&did).await;
    }
    assert_eq!(world.fired("migrate"), 4);
    assert_eq!(world.metrics().moved.get(), moved + 4);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t14_a_late_events_of_the_old_host_neither_apply_nor_hide() {
    let mut world = World::settled(listed(4, 2)).with(unswept).await;
    let did = world.account(0, 1);
    // The old host's last commit and its goodbye come long after the move.
    let delay = Spec::new(Fault::Delay { ms: 12_000 });
    world.inject(delay.on(Place::Pds(0)).of(&did).times(1));
    world.post(&did);
    migrate(&world, &did, 1);
    assert_eq!(world.fired("delay"), 1);
    world
        .until_repo(&did, "moved", |answer| {
            answer.host == Some(world.host_url(1))
        })
        .await;
    complete_at(&world, &did, 1).await;
    let last = world.net.last_seq(Place::Pds(0));
    assert!(world.cursor(0) < last, "they are still to come");
    let misrouted = world.metrics().misrouted.get();
    let head = world.answer(&did).await.rev;
    world
        .until("the late events", async |world: &World| {
            let answer = world.never_stale(&did).await;
            assert_eq!(answer.account, "active", "its old host cannot hide it");
            assert_eq!(answer.rev, head);
            if world.cursor(0) == last {
                Ok(())
            } else {
                Err(format!("{answer:?}"))
            }
        })
        .await;
    assert!(
        world.metrics().misrouted.get() > misrouted,
        "the goodbye was told apart"
    );
    complete_at(&world, &did, 1).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t14_b_what_the_old_host_signs_with_the_old_key_raises_nothing() {
    let mut world = World::settled(listed(4, 2)).with(unswept).await;
    let did = world.account(0, 1);
    migrate(&world, &did, 1);
    world
        .until_repo(&did, "moved", |answer| {
            answer.host == Some(world.host_url(1))
        })
        .await;
    complete_at(&world, &did, 1).await;
    let misrouted = world.metrics().misrouted.get();
    let first = world.answer(&did).await.first_rev_since_reset;
    let set = world.inject(Spec::new(Fault::LateWrite {}).of(&did));
    assert_eq!(set.fired, 1);
    world
        .until_counted(
            "misrouted",
            |metrics| metrics.misrouted.get(),
            misrouted + 1,
        )
        .await;
    complete_at(&world, &did, 1).await;
    assert_eq!(world.answer(&did).await.first_rev_since_reset, first);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t15_small_numbers_of_a_new_host_are_numbers_of_its_own() {
    let mut world = World::settled(listed(4, 2)).with(unswept).await;
    let did = world.account(0, 1);
    let busy = world.account(0, 0);
    for _ in 0..200 {
        world.post(&busy);
    }
    world.until_complete(&busy).await;
    migrate(&world, &did, 1);
    world
        .until_repo(&did, "moved", |answer| {
            answer.host == Some(world.host_url(1))
        })
        .await;
    complete_at(&world, &did, 1).await;
    let (old, new) = (
        world.net.last_seq(Place::Pds(0)),
        world.net.last_seq(Place::Pds(1)),
    );
    assert!(old > new.map(|seq| seq + 100), "{old:?} {new:?}");
    let resets = world.metrics().resets.get();
    let made = world.post(&did);
    world.until_complete(&did).await;
    let answer = world.answer(&did).await;
    assert_eq!(answer.last_firehose_rev, Some(made.rev.to_string()));
    assert_eq!(world.metrics().resets.get(), resets);
    // Nor are they compared after a restart.
    world.stop().await;
    world.begin().await;
    let made = world.post(&did);
    world.until_complete(&did).await;
    let answer = world.answer(&did).await;
    assert_eq!(answer.last_firehose_rev, Some(made.rev.to_string()));
    assert_eq!(
        world.metrics().resets.get(),
        0,
        "both showed where they were"
    );
    assert_eq!(world.fired("migrate"), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t18_listed_on_another_host_with_something_newer_is_asked_of_the_directory() {
    let mut world = World::settled(listed(4, 2)).with(swept).await;
    let did = world.account(0, 1);
    // No event tells of the move, and the old host goes on as if there had been none.
    let drop = Fault::Drop { unnumbered: true };
    world.inject(Spec::new(drop).of(&did).times(4));
    migrate(&world, &did, 1);
    let set = world.inject(Spec::new(Fault::Ghost {}).of(&did));
    assert_eq!((world.fired("drop"), set.fired), (4, 1));
    world
        .until_repo(&did, "moved", |answer| {
            answer.host == Some(world.host_url(1))
        })
        .await;
    complete_at(&world, &did, 1).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t23_a_host_restored_from_a_backup_rolls_nothing_back_when_told_to_hold() {
    let mut world = World::settled(listed(4, 1))
        .with(|config| {
            swept(config);
            config.mirror.on_rollback = OnRollback::Hold;
        })
        .await;
    let (quiet, busy) = (world.account(0, 1), world.account(0, 2));
    let mut held = Vec::new();
    for did in [&quiet, &busy] {
        for _ in 0..3 {
            world.post(did);
        }
        world.until_complete(did).await;
        held.push(world.answer(did).await.rev);
    }
    let written = world.metrics().snapshots_written.get();
    roll_back(&world, &quiet, 2);
    roll_back(&world, &busy, 2);
    world.until_incomplete(&quiet, "host_behind").await;
    world.until_incomplete(&busy, "host_behind").await;
    assert_eq!(world.metrics().host_behind.get(), 2, "said once for each");
    world.until_swept(4).await;
    assert_eq!(world.never_stale(&quiet).await.rev, held[0]);
    assert_eq!(world.never_stale(&busy).await.rev, held[1]);
    assert_eq!(world.metrics().snapshots_written.get(), written);
    // The host goes on by itself, or an operator accepts the rollback.
    world.post(&busy);
    world.until_complete_never_stale(&busy).await;
    assert_eq!(world.never_stale(&quiet).await.rev, held[0]);
    let (mirror, did) = (world.mirror().clone(), quiet.clone());
    let resync = tokio::task::spawn_blocking(move || mirror.control().resync(&did, true));
    resync.await.expect("no panic").expect("it is behind");
    world.until_complete_never_stale(&quiet).await;
    assert_eq!(world.metrics().adopted.get(), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t45_a_a_commit_that_the_host_lost_is_given_up_after_two_sweeps() {
    let mut world = World::settled(listed(4, 1)).with(swept).await;
    let did = world.account(0, 1);
    world.post(&did);
    world.until_complete(&did).await;
    let held = world.answer(&did).await.rev;
    roll_back(&world, &did, 1);
    let behind = world.until_incomplete(&did, "host_behind").await;
    assert_eq!(behind.rev, held, "never at the first word");
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.metrics().adopted.get(), 1);
    let row = world.row(&did);
    assert_eq!(row.lineage, 1);
    assert_eq!(
        row.abandoned.map(|rev| rev.to_string()),
        held,
        "what was given up does not come back"
    );
    // And life goes on.
    world.post(&did);
    world.until_complete(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t45_b_written_again_the_host_goes_on_in_its_own_line() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    world.post(&did);
    world.until_complete(&did).await;
    let written = world.metrics().snapshots_written.get();
    roll_back(&world, &did, 1);
    let stalled = world.stall(0, "getLatestCommit", Some(&did));
    world.post(&did);
    let owing = world.until_incomplete(&did, "newer_commit_known").await;
    assert!(owing.reasons.contains(&"fetch_owed".to_owned()));
    world.until_fired("stall", 1).await;
    world.clear(stalled).await;
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.metrics().snapshots_written.get(), written + 1);
    assert_eq!(world.metrics().adopted.get(), 0, "nothing was rolled back");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t56_a_host_that_lists_repositories_of_others_keeps_none_incomplete() {
    let mut world = World::settled(listed(4, 2)).with(swept).await;
    let did = world.account(0, 1);
    migrate(&world, &did, 1);
    world
        .until_repo(&did, "moved", |answer| {
            answer.host == Some(world.host_url(1))
        })
        .await;
    complete_at(&world, &did, 1).await;
    let asked = world.metrics().resolutions.get();
    // The old host has something newer, for ever.
    let ghost = world.inject(Spec::new(Fault::Ghost {}).of(&did));
    let late = world.inject(Spec::new(Fault::LateWrite {}).of(&did));
    assert_eq!((ghost.fired, late.fired), (1, 1));
    world.until_swept(16).await;
    let after = world.metrics().resolutions.get();
    assert!(after > asked, "its listing was worth a question");
    assert!(after <= asked + 6, "but not for ever: {}", after - asked);
    let until = world.metrics().sweeps.get() + 6;
    while world.metrics().sweeps.get() < until {
        let answer = world.never_stale(&did).await;
        assert!(answer.complete, "{answer:?}");
        assert_eq!(answer.host, Some(world.host_url(1)));
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(world.metrics().resolutions.get(), after);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t61_a_directory_that_still_answers_the_old_document_moves_nothing() {
    let mut world = World::settled(listed(4, 2)).with(unswept).await;
    let did = world.account(0, 1);
    let stale = world.inject(Spec::new(Fault::PlcStale { seq: None }).of(&did));
    migrate(&world, &did, 1);
    world.until_fired("plc-stale", 1).await;
    // Its old host, on which the directory still places it, no longer has it.
    let hidden = world.until_incomplete(&did, "inactive").await;
    assert_eq!(hidden.host, Some(world.host_url(0)));
    let asked = world.metrics().resolutions.get();
    world.post(&did);
    world
        .until_counted("asked", |metrics| metrics.resolutions.get(), asked + 1)
        .await;
    let still = world
        .until_repo(&did, "answered", |answer| answer.debt.is_none())
        .await;
    assert_eq!(
        (still.host, still.complete),
        (Some(world.host_url(0)), false)
    );
    world.clear(stale).await;
    world.post(&did);
    world
        .until_repo(&did, "moved", |answer| {
            answer.host == Some(world.host_url(1))
        })
        .await;
    complete_at(&world, &did, 1).await;
    world.stop().await;
}

/// With sweeps as often as counts are remembered, no older state is adopted before all
/// repositories were counted.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_rolled_everything_back_is_not_adopted() {
    let mut world = World::settled(listed(12, 1)).with(swept).await;
    let dids: Vec<_> = (0..12).map(|number| world.account(0, number)).collect();
    for did in &dids {
        world.post(did);
    }
    for did in &dids {
        world.until_complete(did).await;
    }
    for did in &dids {
        roll_back(&world, did, 1);
    }
    world.until_swept(8).await;
    let adopted = world.metrics().adopted.get();
    let behind = world.metrics().host_behind.get();
    assert!(behind >= 12, "{behind}");
    assert_eq!(adopted, 0, "of {behind} that were behind");
    world.stop().await;
}

/// The hourly sweep lists nothing meanwhile, so only the answers raise the cached share.
#[tokio::test(flavor = "multi_thread")]
async fn repositories_found_behind_by_asking_raise_the_share_of_their_host() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let dids: Vec<_> = (0..4).map(|number| world.account(0, number)).collect();
    for did in &dids {
        world.post(did);
        world.until_complete(did).await;
        roll_back(&world, did, 1);
    }
    for did in &dids {
        let did = did.clone();
        world
            .ask(move |mirror| mirror.control().resync(&did, false))
            .await
            .expect("it is asked about again");
    }
    for did in &dids {
        world.until_incomplete(did, "host_behind").await;
    }
    let host = world.row(&dids[0]).host.expect("its host is known");
    let services = world.mirror().services();
    let share = services
        .hosts
        .behind_counts
        .get(services.clock.time(), host)
        .expect("counted for the first answer");
    assert!(share.behind >= 4, "{share:?}");
    world.stop().await;
}
