//! Tests events that cannot be applied as they are: other keys, forgeries, false revs, missing
//! operations, owners that cannot be resolved (T29, T47, T50, T55).

use gapless_harness::{World, listed, new_post, unswept};
use gapless_testnet::{Fault, Place, Spec};

#[tokio::test(flavor = "multi_thread")]
async fn t29_a_a_key_that_changed_between_commit_and_check_needs_no_fetch() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let (written, resolutions) = (
        world.metrics().snapshots_written.get(),
        world.metrics().resolutions.get(),
    );
    let set = world.inject(Spec::new(Fault::RotateKey { quiet: true }).of(&did));
    assert_eq!(set.fired, 1);
    let made = world.post(&did);
    world.until_complete(&did).await;
    let answer = world.until_complete_never_stale(&did).await;
    assert_eq!(answer.last_firehose_rev, Some(made.rev.to_string()));
    assert_eq!(answer.evidence.key, "present");
    assert!(world.metrics().resolutions.get() > resolutions);
    assert_eq!(world.metrics().snapshots_written.get(), written);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t29_b_a_forged_commit_raises_nothing_and_is_asked_about() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let before = world.answer(&did).await;
    let forged = world.metrics().unauthenticated.get();
    let stalled = world.stall(0, "getLatestCommit", Some(&did));
    let wrong = Spec::new(Fault::WrongSignature {}).of(&did);
    world.inject(wrong.times(1));
    world.post(&did);
    assert_eq!(world.fired("wrong-signature"), 1);
    let owing = world.until_incomplete(&did, "compare_owed").await;
    assert_eq!(owing.rev, before.rev);
    assert_eq!(owing.first_rev_since_reset, before.first_rev_since_reset);
    // Judged once the document was read again, and before the host is asked.
    world.until_fired("stall", 1).await;
    assert!(world.metrics().unauthenticated.get() > forged);
    world.clear(stalled).await;
    world.until_complete_never_stale(&did).await;
    // And one from the far future, of which there is no true one.
    let forged = world.metrics().unauthenticated.get();
    for signed in [false, true] {
        let set = world.inject(Spec::new(Fault::ForgedRev { signed }).of(&did));
        assert_eq!(set.fired, 1);
    }
    world
        .until_counted(
            "both are seen",
            |metrics| metrics.unauthenticated.get(),
            forged + 2,
        )
        .await;
    world.until_complete_never_stale(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t29_c_a_snapshot_may_be_signed_by_the_key_before() {
    let mut world = World::settled(listed(4, 2)).with(unswept).await;
    let did = world.account(0, 1);
    let written = world.metrics().snapshots_written.get();
    // Imported by another host, which serves the old key's commit under a rev of
    // its own; and that commit we do not have.
    world.lose_commit(&did);
    let import = Fault::Migrate {
        to: Some(1),
        import: true,
    };
    assert_eq!(world.inject(Spec::new(import).of(&did)).fired, 1);
    let head = world.net.truth().head(&did).expect("it exists");
    assert!(head.host_rev > head.rev);
    world
        .until_repo(&did, "moved", |answer| {
            answer.host == Some(world.host_url(1))
        })
        .await;
    let answer = world.until_complete_never_stale(&did).await;
    assert_eq!(answer.evidence.key, "previous");
    assert_eq!(world.metrics().snapshots_written.get(), written + 1);
    world.post(&did);
    world.until_complete(&did).await;
    let answer = world.until_complete_never_stale(&did).await;
    assert_eq!(
        answer.evidence.key, "present",
        "the next one is the new key's"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t47_a_a_commit_counts_by_its_signed_rev_and_not_by_its_envelope() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    world.inject(Spec::new(Fault::EnvelopeRev {}).of(&did).times(1));
    world.post(&did);
    assert_eq!(world.fired("envelope-rev"), 1);
    let head = world.net.truth().head(&did).expect("it exists").rev;
    world.until_complete(&did).await;
    let answer = world.until_complete_never_stale(&did).await;
    assert!(answer.first_rev_since_reset <= Some(head.to_string()));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t47_b_a_sync_counts_by_its_signed_rev_and_not_by_its_envelope() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let before = world.answer(&did).await;
    let false_sync = || {
        world.inject(Spec::new(Fault::EnvelopeRev {}).of(&did).times(1));
        world.inject(Spec::new(Fault::Sync {}).of(&did));
    };
    // About what we have: nothing new, whatever it calls it.
    false_sync();
    let last = world.net.last_seq(Place::Pds(0));
    world
        .until("it is read", async |world: &World| {
            let cursor = world.cursor(0);
            (cursor == last)
                .then_some(())
                .ok_or(format!("{cursor:?} {last:?}"))
        })
        .await;
    let after = world.until_complete_never_stale(&did).await;
    assert_eq!(after.first_rev_since_reset, before.first_rev_since_reset);
    // About what we have not: the signed rev is what counts.
    let made = world.lose_commit(&did);
    let stalled = world.stall(0, "getRepo", Some(&did));
    false_sync();
    let owing = world.until_incomplete(&did, "newer_commit_known").await;
    assert_eq!(owing.first_rev_since_reset, Some(made.rev.to_string()));
    world.until_fired("stall", 1).await;
    world.clear(stalled).await;
    world.until_complete_never_stale(&did).await;
    assert_eq!((world.fired("envelope-rev"), world.fired("sync")), (2, 2));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t50_a_signed_commit_with_one_operation_left_out_is_not_applied() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let before = world.answer(&did).await.rev;
    let written = world.metrics().snapshots_written.get();
    let stalled = world.stall(0, "getRepo", Some(&did));
    world.inject(Spec::new(Fault::OmitOp {}).of(&did).times(1));
    let writes = [new_post(), new_post(), new_post()];
    world.net.write(&did, &writes).expect("it is written");
    assert_eq!(world.fired("omit-op"), 1);
    let owing = world.until_incomplete(&did, "newer_commit_known").await;
    assert_eq!(owing.rev, before, "none of it");
    world.until_fired("stall", 1).await;
    world.clear(stalled).await;
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.metrics().snapshots_written.get(), written + 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t55_one_did_that_cannot_be_resolved_does_not_hold_the_cursor() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let (did, other) = (world.account(0, 1), world.account(0, 2));
    let written = world.metrics().snapshots_written.get();
    let failures = world.metrics().resolution_failures.get();
    let down = Fault::HttpError {
        status: 503,
        retry_after: None,
        route: None,
    };
    let down = world.inject(Spec::new(down).on(Place::Plc).of(&did));
    world
        .net
        .rotate_key(&did, true)
        .expect("it has a directory entry");
    let made = world.post(&did);
    world.until_incomplete(&did, "resolve_owed").await;
    for _ in 0..20 {
        world.post(&other);
    }
    world.until_complete(&other).await;
    let last = world.net.last_seq(Place::Pds(0));
    world
        .until("the cursor moves on", async |world: &World| {
            let seq = world.cursor(0);
            (seq == last)
                .then_some(())
                .ok_or(format!("{seq:?} {last:?}"))
        })
        .await;
    world
        .until_counted(
            "tried again",
            |metrics| metrics.resolution_failures.get(),
            failures + 3,
        )
        .await;
    assert!(!world.never_stale(&did).await.complete);
    assert!(world.fired("http-error") >= 3);
    world.clear(down).await;
    let answer = world.until_complete_never_stale(&did).await;
    assert_eq!(answer.last_firehose_rev, Some(made.rev.to_string()));
    assert_eq!(
        world.metrics().snapshots_written.get(),
        written,
        "the frame had waited"
    );
    world.stop().await;
}
