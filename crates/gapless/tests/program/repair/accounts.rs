//! Tests account states: repositories that are hidden, shown, purged, lost and found again
//! (T27, T40, T43, T53, T57).

use std::time::Duration;

use gapless_atp::syntax::Did;
use gapless_harness::{World, listed, swept, unswept};
use gapless_mirror::api::{Inspect as _, Operate as _, Status as MirrorStatus};
use gapless_testnet::{Fault, Place, Spec, Status};

/// Each state as a host tells it, and as the mirror names it.
const HIDDEN: [(Status, &str); 4] = [
    (Status::Deactivated, "deactivated"),
    (Status::Takendown, "takendown"),
    (Status::Suspended, "suspended"),
    (Status::Deleted, "deleted"),
];

#[tokio::test(flavor = "multi_thread")]
async fn t27_every_state_hides_at_once_and_active_again_is_complete_without_a_fetch() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let written = world.metrics().snapshots_written.get();
    for (number, (state, name)) in HIDDEN.into_iter().enumerate() {
        let did = world.account(0, number.min(2));
        world.inject(Spec::new(Fault::Account { state }).of(&did));
        let hidden = world.until_incomplete(&did, "inactive").await;
        assert_eq!(hidden.account, name);
        assert!(hidden.records > Some(0), "hidden, and still there");
        let asked = world.metrics().heads_asked.get();
        let back = Fault::Account {
            state: Status::Active,
        };
        world.inject(Spec::new(back).of(&did));
        let shown = world.until_complete_never_stale(&did).await;
        assert_eq!(shown.account, "active");
        assert!(world.metrics().heads_asked.get() > asked, "it was compared");
    }
    assert_eq!(world.fired("account"), 8);
    assert_eq!(world.metrics().snapshots_written.get(), written);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t40_a_a_lost_deactivation_is_found_by_the_sweep() {
    let mut world = World::settled(listed(4, 1)).with(swept).await;
    let did = world.account(0, 1);
    world.inject(Spec::new(Fault::LostAccount {}).of(&did).times(1));
    world
        .net
        .set_status(&did, Status::Deactivated)
        .expect("it is active");
    assert_eq!(world.fired("lost-account"), 1);
    let hidden = world.until_incomplete(&did, "inactive").await;
    assert_eq!(hidden.account, "deactivated");
    world.until_swept(2).await;
    assert_eq!(world.answer(&did).await.account, "deactivated");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t40_b_a_lost_deletion_is_found_by_the_sweep_and_purges_nothing() {
    let mut world = World::settled(listed(4, 1))
        .with(|config| {
            swept(config);
            config.mirror.purge_grace = Duration::from_secs(1);
        })
        .await;
    let did = world.account(0, 1);
    world.inject(Spec::new(Fault::LostAccount {}).of(&did).times(1));
    world
        .net
        .set_status(&did, Status::Deleted)
        .expect("it is active");
    assert_eq!(world.fired("lost-account"), 1);
    // The host does not say that it was deleted, only that it is not there.
    let hidden = world.until_incomplete(&did, "inactive").await;
    assert_eq!(hidden.account, "not_found");
    assert!(world.metrics().vanished.get() >= 1);
    world.until_swept(3).await;
    let kept = world.answer(&did).await;
    assert!(
        kept.records > Some(0) && kept.rev.is_some(),
        "nobody said deleted"
    );
    assert_eq!(world.metrics().purged.get(), 0);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t40_c_a_lost_reactivation_is_found_by_the_sweep() {
    let mut world = World::settled(listed(4, 1)).with(swept).await;
    let did = world.account(0, 1);
    world
        .net
        .set_status(&did, Status::Suspended)
        .expect("it is active");
    world.until_incomplete(&did, "inactive").await;
    world.inject(Spec::new(Fault::LostAccount {}).of(&did).times(1));
    world
        .net
        .set_status(&did, Status::Active)
        .expect("it is there");
    assert_eq!(world.fired("lost-account"), 1);
    let shown = world.until_complete_never_stale(&did).await;
    assert_eq!(shown.account, "active");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t43_active_again_is_compared_before_it_is_complete() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    // What happened before it was hidden never reached us.
    world.lose_commit(&did);
    let account = |state| Spec::new(Fault::Account { state }).of(&did);
    world.inject(account(Status::Takendown));
    world.until_incomplete(&did, "inactive").await;
    let stalled = world.stall(0, "getLatestCommit", Some(&did));
    world.inject(account(Status::Active));
    world.until_fired("stall", 1).await;
    let back = world
        .until_repo(&did, "active", |answer| answer.account == "active")
        .await;
    assert!(!back.complete);
    assert!(
        back.reasons.contains(&"compare_owed".to_owned()),
        "{back:?}"
    );
    assert!(world.row(&did).marker.is_none());
    world.clear(stalled).await;
    world.until_complete_never_stale(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t53_purged_and_active_again_with_the_same_head_is_fetched_anew() {
    let mut world = World::settled(listed(4, 1))
        .with(|config| {
            unswept(config);
            config.mirror.purge_grace = Duration::from_secs(1);
        })
        .await;
    let did = world.account(0, 1);
    let head = world.answer(&did).await.rev;
    let written = world.metrics().snapshots_written.get();
    let account = |state| Spec::new(Fault::Account { state }).of(&did);
    world.inject(account(Status::Deleted));
    world.until_incomplete(&did, "inactive").await;
    let purged = world.until_incomplete(&did, "no_snapshot").await;
    assert_eq!((purged.rev, purged.records), (None, Some(0)));
    assert_eq!(world.metrics().purged.get(), 1);
    world.inject(account(Status::Active));
    let back = world.until_complete_never_stale(&did).await;
    assert_eq!(back.rev, head);
    assert_eq!(world.metrics().snapshots_written.get(), written + 1);
    assert_eq!(world.fired("account"), 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t57_a_reactivation_lost_in_a_reset_is_found_by_the_sweep() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    world
        .net
        .set_status(&did, Status::Deactivated)
        .expect("it is active");
    world.until_incomplete(&did, "inactive").await;
    // Account, identity and sync.
    let drop = Fault::Drop { unnumbered: true };
    world.inject(Spec::new(drop).on(Place::Pds(0)).of(&did).times(3));
    world
        .net
        .set_status(&did, Status::Active)
        .expect("it is there");
    assert_eq!(world.fired("drop"), 3);
    assert_eq!(world.answer(&did).await.account, "deactivated");
    let sweeps = world.metrics().sweeps.get();
    world.reset(0).await;
    let shown = world.until_complete_never_stale(&did).await;
    assert_eq!(shown.account, "active");
    // The reset asked for it: none was due.
    world
        .until_counted("a sweep", |metrics| metrics.sweeps.get(), sweeps + 1)
        .await;
    world.stop().await;
}

/// Accounts that are gone from their host, which says nothing of it.
fn lose(world: &World, dids: &[Did]) {
    for did in dids {
        world.inject(Spec::new(Fault::LostAccount {}).of(did).times(1));
        let lost = world.net.set_status(did, Status::Deleted);
        lost.expect("it is active");
    }
}

async fn status(world: &World) -> MirrorStatus {
    let mirror = world.mirror().clone();
    let asked = tokio::task::spawn_blocking(move || mirror.inspector().status());
    asked.await.expect("no panic").expect("an answer")
}

async fn suspended(world: &World) {
    world
        .until("suspended", async |world: &World| {
            let status = status(world).await;
            if status.hiding_suspended == [world.host_url(0)] {
                Ok(())
            } else {
                Err(format!("{status:?}"))
            }
        })
        .await;
}

async fn confirm_loss(world: &World) {
    let (mirror, url) = (world.mirror().clone(), world.host_url(0));
    let confirmed = tokio::task::spawn_blocking(move || mirror.control().confirm_loss(&url));
    confirmed.await.expect("no panic").expect("it is suspended");
}

#[tokio::test(flavor = "multi_thread")]
async fn t52_a_confirmed_loss_stays_confirmed_and_a_further_one_is_doubted_again() {
    let mut world = World::settled(listed(30, 1)).with(swept).await;
    world.expect("too many repositories vanished at once");
    // Not account 0: its post, the last event of the host, is the event at the cursor. A PDS
    // deletes the events of a deleted account, so after the restart that event would not come
    // again, and the first sweep would wait until the stream gives up continuity.
    let dids: Vec<Did> = (1..25).map(|number| world.account(0, number)).collect();
    let (lost, later) = dids.split_at(12);
    lose(&world, lost);
    suspended(&world).await;
    let count = lost.len() as u64;
    world
        .until_counted("vanished", |metrics| metrics.vanished.get(), count)
        .await;
    world.until_swept(3).await;
    for did in lost {
        let kept = world.answer(did).await;
        assert_eq!(kept.account, "active", "not hidden");
        assert!(!kept.complete, "{kept:?}");
    }
    assert_eq!(world.metrics().vanished.get(), count, "said once for each");
    confirm_loss(&world).await;
    for did in lost {
        let hidden = world.until_incomplete(did, "inactive").await;
        assert_eq!(hidden.account, "not_found");
        assert!(hidden.records > Some(0), "hidden, and still there");
    }
    world.until_swept(3).await;
    assert!(status(&world).await.hiding_suspended.is_empty());
    // Nor does a restart forget it.
    world.stop().await;
    world.begin().await;
    world.until_swept(2).await;
    assert!(status(&world).await.hiding_suspended.is_empty());
    assert_eq!(world.answer(&lost[0]).await.account, "not_found");
    // What was confirmed was that loss, and no other.
    lose(&world, later);
    suspended(&world).await;
    world.until_swept(2).await;
    assert_eq!(world.answer(&later[0]).await.account, "active");
    assert_eq!(world.fired("lost-account"), dids.len() as u64);
    world.stop().await;
}
