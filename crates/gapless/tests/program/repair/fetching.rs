//! Tests fetches of snapshots that are refused, overtaken, interrupted or spoiled (T24, T28,
//! T37, T38, T51, T62).

use std::time::Duration;

use gapless_atp::crypto::Curve;
use gapless_harness::{Program, World, listed, next_number, swept, unswept};
use gapless_mirror::api::{Inspect as _, Operate as _, RefusedAnswer};
use gapless_testnet::{Fault, NewAccount, Spec, Status, Write, encode_record};

use crate::EXE;
use crate::repair::large::gap_of;

#[tokio::test(flavor = "multi_thread")]
async fn t24_a_difference_that_brings_nothing_is_followed_by_the_whole_at_once() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let (written, differences) = (
        world.metrics().snapshots_written.get(),
        world.metrics().differences_written.get(),
    );
    // First, that differences are asked for at all.
    let made = world.too_big(&did);
    world.until_complete(&did).await;
    assert_eq!(world.metrics().differences_written.get(), differences + 1);
    assert_eq!(
        world.answer(&did).await.last_indexed_rev,
        Some(made.rev.to_string())
    );
    let failures = world.metrics().request_failures.get();
    let refused = world.metrics().snapshots_refused.get();
    let heads = world.metrics().heads_asked.get();
    world.inject(Spec::new(Fault::SinceEmpty {}).of(&did).times(1));
    let stalled = world.stall(0, "getLatestCommit", Some(&did));
    world.too_big(&did);
    world.until_incomplete(&did, "fetch_owed").await;
    world.clear(stalled).await;
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.fired("since-empty"), 1);
    assert_eq!(world.metrics().snapshots_written.get(), written + 2);
    assert_eq!(world.metrics().differences_written.get(), differences + 1);
    assert_eq!(
        world.metrics().request_failures.get(),
        failures,
        "held against nobody"
    );
    assert_eq!(world.metrics().snapshots_refused.get(), refused);
    assert_eq!(refused_by_host(&world).await, None);
    assert_eq!(
        world.metrics().heads_asked.get(),
        heads + 1,
        "one try, and no wait before another"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t28_a_a_state_that_forbids_the_fetch_is_a_state_and_no_failure() {
    let mut world = World::settled(listed(5, 1)).with(unswept).await;
    for (number, (state, name)) in [
        (Status::Deactivated, "deactivated"),
        (Status::Takendown, "takendown"),
        (Status::Suspended, "suspended"),
        (Status::Deleted, "not_found"),
    ]
    .into_iter()
    .enumerate()
    {
        let did = world.account(0, number);
        let failures = world.metrics().request_failures.get();
        let stalls = world.fired("stall");
        let stalled = world.stall(0, "getRepo", Some(&did));
        world.too_big(&did);
        world.until_fired("stall", stalls + 1).await;
        world.until_incomplete(&did, "fetch_owed").await;
        world.inject(Spec::new(Fault::LostAccount {}).of(&did).times(1));
        world.net.set_status(&did, state).expect("it is active");
        world.clear(stalled).await;
        let hidden = world.until_incomplete(&did, "inactive").await;
        assert_eq!(hidden.account, name);
        // Where it lives now is looked up, and then there is nothing to try again.
        world
            .until_repo(&did, "nothing is owed", |answer| answer.debt.is_none())
            .await;
        assert_eq!(world.metrics().request_failures.get(), failures);
        world
            .net
            .set_status(&did, Status::Active)
            .expect("it is there");
        world.until_complete_never_stale(&did).await;
    }
    assert_eq!(world.fired("lost-account"), 4);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t28_b_every_error_of_get_repo_leaves_the_debt_and_is_tried_again() {
    const STATUSES: [u16; 7] = [400, 401, 403, 404, 500, 502, 503];
    let mut world = World::settled(listed(STATUSES.len(), 1))
        .with(unswept)
        .await;
    let failures = world.metrics().request_failures.get();
    let written = world.metrics().snapshots_written.get();
    let differences = world.metrics().differences_written.get();
    for (number, status) in STATUSES.into_iter().enumerate() {
        let did = world.account(0, number);
        let error = Fault::HttpError {
            status,
            retry_after: None,
            route: Some("getRepo".to_owned()),
        };
        world.inject(Spec::new(error).of(&did).times(1));
        world.too_big(&did);
    }
    for number in 0..STATUSES.len() {
        let owing = world
            .until_incomplete(&world.account(0, number), "fetch_owed")
            .await;
        assert_eq!(owing.account, "active");
    }
    world.until_fired("http-error", STATUSES.len() as u64).await;
    for number in 0..STATUSES.len() {
        world
            .until_complete_never_stale(&world.account(0, number))
            .await;
    }
    let count = STATUSES.len() as u64;
    assert_eq!(world.metrics().request_failures.get(), failures + count);
    assert_eq!(world.metrics().snapshots_written.get(), written + count);
    assert_eq!(
        world.metrics().differences_written.get(),
        differences,
        "what is new was asked for once, and then the whole"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t28_c_a_host_that_limits_is_asked_again_when_it_said() {
    let mut world = World::settled(listed(3, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let limited = Fault::HttpError {
        status: 429,
        retry_after: Some(6),
        route: Some("getRepo".to_owned()),
    };
    world.inject(Spec::new(limited).of(&did).times(1));
    world.too_big(&did);
    world.until_fired("http-error", 1).await;
    let told = tokio::time::Instant::now();
    world.until_incomplete(&did, "fetch_owed").await;
    world.until_complete_never_stale(&did).await;
    assert!(told.elapsed() >= Duration::from_secs(5), "not before");
    assert_eq!(world.fired("http-error"), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t28_d_a_spoiled_repository_is_refused_whole_and_asked_for_again() {
    let spoils = [
        ("car-cut", Fault::CarCut {}),
        ("car-minus-node", Fault::CarMinusNode {}),
        ("car-minus-leaf", Fault::CarMinusLeaf {}),
        ("car-non-canonical", Fault::CarNonCanonical {}),
    ];
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let refused = world.metrics().snapshots_refused.get();
    let discarded = world.metrics().snapshots_discarded.get();
    for (number, (_, spoil)) in spoils.iter().enumerate() {
        let did = world.account(0, number);
        // What is new, and then the whole.
        world.inject(Spec::new(spoil.clone()).of(&did).times(2));
        world.too_big(&did);
    }
    for (number, (name, _)) in spoils.iter().enumerate() {
        let did = world.account(0, number);
        world.until_fired(name, 2).await;
        world.until_complete_never_stale(&did).await;
    }
    assert_eq!(world.metrics().snapshots_refused.get(), refused + 4);
    assert_eq!(
        world.metrics().snapshots_discarded.get(),
        discarded,
        "the whole was asked for instead"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t37_a_whole_repository_signed_by_another_key_is_refused() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let (written, refused) = (
        world.metrics().snapshots_written.get(),
        world.metrics().snapshots_refused.get(),
    );
    let before = world.answer(&did).await.rev;
    world.inject(Spec::new(Fault::CarOtherKey {}).of(&did).times(2));
    world.too_big(&did);
    world
        .until_counted(
            "refused",
            |metrics| metrics.snapshots_refused.get(),
            refused + 1,
        )
        .await;
    let owing = world.until_incomplete(&did, "fetch_owed").await;
    assert_eq!(owing.rev, before);
    assert_eq!(world.metrics().snapshots_written.get(), written);
    // The repository says why, and its host is marked.
    let told = last_error(&world, &did).await.expect("it is a gap");
    assert!(told.contains("not signed by its owner"), "{told}");
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.fired("car-other-key"), 2);
    assert_eq!(world.metrics().snapshots_refused.get(), refused + 2);
    assert_eq!(world.metrics().refused_by_reason.get("signature"), 2);
    assert_eq!(world.metrics().snapshots_written.get(), written + 1);
    let marked = refused_by_host(&world).await.expect("the host is marked");
    assert_eq!(
        (marked.did, marked.reason),
        (did.to_string(), "signature".to_owned())
    );
    assert!(marked.at.is_some());
    assert_eq!(last_error(&world, &did).await, None, "no gap any more");
    world.stop().await;
}

/// What `gaps` says of the last failure for a repository.
async fn last_error(world: &World, did: &gapless_atp::syntax::Did) -> Option<String> {
    let gap = gap_of(world, did).await;
    gap.and_then(|gap| gap.last_error).map(|last| last.error)
}

/// What the first upstream is marked with.
async fn refused_by_host(world: &World) -> Option<RefusedAnswer> {
    let mirror = world.mirror().clone();
    let asked = tokio::task::spawn_blocking(move || mirror.inspector().upstreams());
    let all = asked.await.expect("no panic").expect("an answer");
    all.into_iter().next().and_then(|one| one.refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_ours_that_takes_nothing_is_not_held_against_the_host() {
    let mut world = World::network(listed(1, 1)).await;
    world.expect("could not be kept on the local disk");
    let did = world.account(0, 0);
    // More than stays in memory.
    for _ in 0..12 {
        let number = next_number();
        let text = format!("{number} {}", "a".repeat(900_000));
        let record = serde_json::json!({ "$type": "app.bsky.feed.post", "text": text });
        let write = Write::Create {
            path: format!("app.bsky.feed.post/large{number}"),
            record: encode_record(&record).expect("a record"),
        };
        world.net.write(&did, &[write]).expect("it is written");
    }
    world
        .flags
        .upstream
        .push(format!("pds={}", world.host_url(0)));
    world.adjust = unswept;
    let stalled = world.stall(0, "getRepo", None);
    world.begin().await;
    world.until_fired("stall", 1).await;
    let temp = world.folder.path().join("data").join("tmp");
    std::fs::remove_dir(&temp).expect("it is empty");
    world.clear(stalled).await;
    world
        .until_counted(
            "failed here",
            |metrics| metrics.fetches_failed_here.get(),
            1,
        )
        .await;
    let told = last_error(&world, &did).await.expect("it is a gap");
    assert!(told.contains("cannot be written to"), "{told}");
    let gap = gap_of(&world, &did).await.expect("it is a gap");
    assert!(gap.doing.contains("the local disk"), "{gap:?}");
    assert!(!gap.can_do.contains("host is up"), "{gap:?}");
    assert_eq!(world.metrics().snapshots_refused.get(), 0);
    assert_eq!(refused_by_host(&world).await, None);
    std::fs::create_dir(&temp).expect("it is gone");
    world.until_complete_never_stale(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t38_an_older_snapshot_than_the_named_head_is_progress_and_still_owed() {
    let mut world = World::settled(listed(2, 1)).with(swept).await;
    let stale = world.metrics().snapshots_stale.get();
    // An account that only the listing tells of, and of which the host serves an
    // earlier state.
    let silent = world.inject(Spec::new(Fault::Drop { unnumbered: true }));
    world.inject(Spec::new(Fault::CarOld { commits: 1 }).times(3));
    let new = NewAccount {
        host: 0,
        curve: Curve::K256,
        web: false,
        records: 30,
    };
    let did = world.net.create_account(new).expect("it is new");
    assert!(world.fired("drop") > 0);
    world.clear(silent).await;
    world
        .until_counted("stale", |metrics| metrics.snapshots_stale.get(), stale + 1)
        .await;
    let head = world.net.truth().head(&did).expect("it exists").rev;
    let old = world
        .until_repo(&did, "an old state is held", |answer| answer.rev.is_some())
        .await;
    assert!(old.rev < Some(head.to_string()));
    assert!(old.records > Some(0) && !old.complete, "{old:?}");
    assert!(old.reasons.contains(&"fetch_owed".to_owned()), "{old:?}");
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.fired("car-old"), 3);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t51_a_a_commit_that_is_heard_of_while_a_fetch_ends_is_fetched_too() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let written = world.metrics().snapshots_written.get();
    world.drip(0, "getRepo", 300);
    let first = world.too_big(&did);
    world.until_fired("drip", 1).await;
    let stalled = world.stall(0, "getLatestCommit", Some(&did));
    let second = world.too_big(&did);
    world
        .until_repo(&did, "the second is heard of", |answer| {
            answer.first_rev_since_reset == Some(second.rev.to_string())
        })
        .await;
    assert_eq!(world.metrics().snapshots_written.get(), written);
    let progress = world
        .until_repo(&did, "the first is fetched", |answer| {
            answer.last_indexed_rev == Some(first.rev.to_string())
        })
        .await;
    assert!(!progress.complete);
    assert!(
        progress.reasons.contains(&"fetch_owed".to_owned()),
        "{progress:?}"
    );
    world.until_fired("stall", 1).await;
    world.clear(stalled).await;
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.metrics().snapshots_written.get(), written + 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t51_b_a_reason_that_no_commit_tells_of_outlives_the_fetch_under_way() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let written = world.metrics().snapshots_written.get();
    world.drip(0, "getRepo", 300);
    let fetched = world.too_big(&did);
    world.until_fired("drip", 1).await;
    let stalled = world.stall(0, "getLatestCommit", Some(&did));
    let (mirror, asked) = (world.mirror().clone(), did.clone());
    let resync = tokio::task::spawn_blocking(move || mirror.control().resync(&asked, false));
    resync.await.expect("no panic").expect("it is known");
    assert_eq!(world.metrics().snapshots_written.get(), written);
    let progress = world
        .until_repo(&did, "fetched", |answer| {
            answer.last_indexed_rev == Some(fetched.rev.to_string())
        })
        .await;
    assert_eq!(progress.reasons, ["fetch_owed"], "only that is left");
    world.until_fired("stall", 1).await;
    world.clear(stalled).await;
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.metrics().snapshots_written.get(), written + 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_whose_answer_comes_after_the_end_ends_too() {
    let mut world = World::settled(listed(3, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let stalled = world.stall(0, "getRepo", Some(&did));
    world.too_big(&did);
    world.until_fired("stall", 1).await;
    let services = std::sync::Arc::downgrade(world.mirror().services());
    world.stop().await;
    world.clear(stalled).await;
    // The repair that still runs holds it.
    world
        .until("nobody is at work", async |_: &World| {
            let held = services.strong_count();
            (held == 0).then_some(()).ok_or(format!("{held} hold it"))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_from_before_a_reset_vouches_for_nothing_after_it() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let written = world.metrics().snapshots_written.get();
    let listing = world.stall(0, "listRepos", None);
    world.need_not_fire(listing);
    let account = |state| Spec::new(Fault::Account { state }).of(&did);
    world.inject(account(Status::Takendown));
    world.until_incomplete(&did, "inactive").await;
    world.drip(0, "getLatestCommit", 30);
    world.inject(account(Status::Active));
    world.until_fired("drip", 1).await;
    // The answer is on its way, and names the head that we have.
    world.lose_commit(&did);
    world.reset(0).await;
    world.until_incomplete(&did, "compare_owed").await;
    world
        .until("the answer has come", async |world: &World| {
            let answer = world.never_stale(&did).await;
            if answer.debt.is_none() {
                Ok(())
            } else {
                Err(format!("{answer:?}"))
            }
        })
        .await;
    let answer = world.never_stale(&did).await;
    assert_eq!(answer.reasons, ["epoch_changed"], "{answer:?}");
    world.clear(listing).await;
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.metrics().snapshots_written.get(), written + 1);
    world.stop().await;
}

/// Enough for many batches.
const MANY: usize = 30_000;

#[tokio::test(flavor = "multi_thread")]
async fn t62_a_live_commits_while_a_large_snapshot_is_written_wait_for_it() {
    let mut world = large().await;
    world.begin().await;
    let did = world.account(0, 0);
    world
        .until("known", async |world: &World| {
            let seen = world.repo(&did).await;
            seen.map(drop).ok_or_else(|| "unknown".to_owned())
        })
        .await;
    world.until_incomplete(&did, "applying").await;
    let parked = world.metrics().events_parked.get();
    let made = world.post(&did);
    world
        .until_counted(
            "parked",
            |metrics| metrics.events_parked.get() + metrics.events_applied.get(),
            parked + 1,
        )
        .await;
    world.until_complete_never_stale(&did).await;
    let answer = world.answer(&did).await;
    assert_eq!(answer.rev, Some(made.rev.to_string()));
    assert_eq!(world.metrics().events_parked.get(), parked + 1);
    assert_eq!(
        world.metrics().snapshots_written.get(),
        1,
        "it chained onto it"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t62_b_a_crash_while_a_large_snapshot_is_written_is_not_complete_and_begins_again() {
    let mut world = large().await;
    let did = world.account(0, 0);
    let mut program = Program::start(&world, EXE);
    program
        .until_repo(&did, "applying", |answer| {
            answer.reasons.contains(&"applying".to_owned())
        })
        .await;
    let made = world.post(&did);
    // No signal that it could heed.
    program.kill();
    let broken = world.stall(0, "getRepo", Some(&did));
    world.begin().await;
    let torn = world.until_incomplete(&did, "applying").await;
    assert_eq!(torn.rev, None, "what is held is no state");
    world.until_fired("stall", 1).await;
    world.clear(broken).await;
    let answer = world.until_complete_never_stale(&did).await;
    assert_eq!(answer.rev, Some(made.rev.to_string()));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t62_c_a_reset_while_a_large_snapshot_is_written_is_made_good_without_a_further_sweep() {
    let mut world = large().await;
    world.adjust = unswept;
    world.begin().await;
    let did = world.account(0, 0);
    world
        .until("known", async |world: &World| {
            let seen = world.repo(&did).await;
            seen.map(drop).ok_or_else(|| "unknown".to_owned())
        })
        .await;
    world.until_incomplete(&did, "applying").await;
    world.reset(0).await;
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.metrics().snapshots_written.get(), 1);
    world.stop().await;
}

/// One host with one large repository, and no mirror yet.
async fn large() -> World {
    let mut world = World::network(listed(1, 1)).await;
    let did = world.account(0, 0);
    let huge = Spec::new(Fault::HugeRepo { records: MANY }).of(&did);
    assert_eq!(world.inject(huge).fired, 1);
    world
        .flags
        .upstream
        .push(format!("pds={}", world.host_url(0)));
    world
}
