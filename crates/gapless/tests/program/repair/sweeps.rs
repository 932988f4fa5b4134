//! Tests sweeps: what a listing proves, and what it does not (T16, T17, T19, T46, T58, T59).

use std::time::Duration;

use gapless_core::ledger::Tick;
use gapless_harness::{World, listed, swept, unswept};
use gapless_mirror::api::Operate as _;
use gapless_testnet::{Fault, Place, Spec, Status};

#[tokio::test(flavor = "multi_thread")]
async fn t16_a_listing_from_before_a_reset_vouches_for_nothing_after_it() {
    let mut world = World::settled(listed(5, 1)).with(swept).await;
    let did = world.account(0, 1);
    world.drip(0, "listRepos", 200);
    world.until_fired("drip", 1).await;
    // The listing is on its way, and names the head that we have.
    let (sweeps, written) = (
        world.metrics().sweeps.get(),
        world.metrics().snapshots_written.get(),
    );
    world.lose_commit(&did);
    world.reset(0).await;
    let answer = world.until_incomplete(&did, "epoch_changed").await;
    assert_eq!(
        world.metrics().sweeps.get(),
        sweeps,
        "still on its way: {answer:?}"
    );
    world
        .until("the listing has come", async |world: &World| {
            let answer = world.never_stale(&did).await;
            assert!(!answer.complete, "{answer:?}");
            if world.metrics().sweeps.get() > sweeps {
                Ok(())
            } else {
                Err("not yet".to_owned())
            }
        })
        .await;
    world.until_complete_never_stale(&did).await;
    assert_eq!(
        world.metrics().snapshots_written.get(),
        written + 1,
        "and only that one was fetched"
    );
    for other in world.net.truth().dids() {
        world.until_complete_never_stale(&other).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t17_a_a_listing_that_is_newer_than_the_stream_is_asked_about_and_fetched() {
    let mut world = World::settled(listed(4, 1)).with(swept).await;
    let did = world.account(0, 1);
    let (suspects, written, replayed) = (
        world.metrics().suspects.get(),
        world.metrics().snapshots_written.get(),
        world.metrics().events_replayed.get(),
    );
    let delay = Spec::new(Fault::Delay { ms: 8_000 });
    world.inject(delay.of(&did).times(1));
    let made = world.post(&did);
    assert_eq!(world.fired("delay"), 1);
    world.until_complete(&did).await;
    let answer = world.answer(&did).await;
    assert_eq!(answer.last_indexed_rev, Some(made.rev.to_string()));
    assert_eq!(world.metrics().snapshots_written.get(), written + 1);
    assert!(world.metrics().suspects.get() > suspects);
    // The event comes at last, and is nothing new.
    world
        .until_counted(
            "the replay",
            |metrics| metrics.events_replayed.get(),
            replayed + 1,
        )
        .await;
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.metrics().snapshots_written.get(), written + 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t17_b_a_listing_that_is_ahead_of_our_stream_costs_a_fetch_at_most() {
    let mut world = World::settled(listed(4, 1)).with(swept).await;
    let before = (
        world.metrics().suspects.get(),
        world.metrics().snapshots_written.get(),
    );
    // A busy host: some page is read before the events that it speaks of.
    world
        .until("a suspect", async |world: &World| {
            world.net.stir(100);
            if world.metrics().suspects.get() > before.0 {
                Ok(())
            } else {
                Err("none yet".to_owned())
            }
        })
        .await;
    world.until_all_complete().await;
    world.until_swept(2).await;
    world.until_all_complete().await;
    // Where the host's own answer came before the event, a fetch is right; where
    // the event came first, nothing is owed.
    let suspects = world.metrics().suspects.get() - before.0;
    let fetched = world.metrics().snapshots_written.get() - before.1;
    assert!(
        fetched <= suspects,
        "{fetched} fetched for {suspects} suspects"
    );
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t19_a_listing_before_the_first_connection_makes_nothing_complete() {
    let mut world = World::network(listed(4, 1)).await;
    world
        .flags
        .upstream
        .push(format!("pds={}", world.host_url(0)));
    world.adjust = unswept;
    let refused = world.inject(Spec::new(Fault::DialError { status: 503 }));
    world.begin().await;
    let did = world.account(0, 1);
    // Listed and fetched without a stream.
    world
        .until("held", async |world: &World| {
            for did in world.net.truth().dids() {
                match world.repo(&did).await {
                    Some(answer) if answer.rev.is_some() => {
                        assert!(!answer.complete, "{answer:?}");
                    }
                    other => return Err(format!("{other:?}")),
                }
            }
            Ok(())
        })
        .await;
    world
        .until_counted("a sweep", |metrics| metrics.sweeps.get(), 1)
        .await;
    let answer = world.until_incomplete(&did, "cover_down").await;
    assert_eq!(answer.evidence.swept.as_deref(), Some("head"));
    // The mirror is not connected and does not read this commit.
    world.post(&did);
    assert!(world.fired("dial-error") >= 1);
    let sweeps = world.metrics().sweeps.get();
    world.clear(refused).await;
    world.until_complete_never_stale(&did).await;
    assert!(
        world.metrics().sweeps.get() >= sweeps,
        "the first connection asks for a sweep"
    );
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t46_a_a_stale_listing_with_another_head_is_asked_about_once() {
    let mut world = World::settled(listed(4, 1)).with(swept).await;
    let did = world.account(0, 1);
    world.post(&did);
    world.until_complete(&did).await;
    let asked = world.metrics().heads_asked.get();
    let written = world.metrics().snapshots_written.get();
    let stale = world.inject(Spec::new(Fault::ListStale { commits: 1 }).of(&did));
    world.until_fired("list-stale", 1).await;
    world.until_swept(2).await;
    let once = world.metrics().heads_asked.get();
    assert_eq!(once, asked + 1, "the host decides");
    world.until_swept(4).await;
    assert!(world.fired("list-stale") >= 4);
    assert_eq!(
        world.metrics().heads_asked.get(),
        once,
        "the stale value is remembered"
    );
    world.until_complete_never_stale(&did).await;
    // But it vouches for nothing: after a reset the host itself is asked.
    world.clear(stale).await;
    world.inject(Spec::new(Fault::ListStale { commits: 2 }).of(&did));
    world.lose_commit(&did);
    world.reset(0).await;
    world.until_incomplete(&did, "epoch_changed").await;
    world.until_complete_never_stale(&did).await;
    assert_eq!(world.metrics().snapshots_written.get(), written + 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t46_b_a_stale_listing_with_our_head_is_found_when_the_head_is_confirmed() {
    let mut world = World::settled(listed(4, 1))
        .with(|config| {
            config.mirror.sweep_every = Duration::from_secs(1);
            config.mirror.confirm_every = Duration::from_secs(12);
        })
        .await;
    let did = world.account(0, 1);
    let written = world.metrics().snapshots_written.get();
    world.inject(Spec::new(Fault::ListStale { commits: 1 }).of(&did));
    world.lose_commit(&did);
    world.until_fired("list-stale", 1).await;
    world.until_complete(&did).await;
    assert!(world.fired("list-stale") >= 1);
    let answer = world.answer(&did).await;
    assert_eq!(answer.evidence.swept.as_deref(), Some("head"));
    assert_eq!(world.metrics().snapshots_written.get(), written + 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t58_a_a_sweep_noted_before_the_marker_was_unset_does_not_raise_it() {
    let mut world = World::settled(listed(5, 1)).with(swept).await;
    let did = world.account(0, 1);
    world.drip(0, "listRepos", 200);
    world.until_fired("drip", 1).await;
    let sweeps = world.metrics().sweeps.get();
    // The listing on its way names our head; then something that is not signed
    // takes the place of a commit.
    let stalled = world.stall(0, "getLatestCommit", Some(&did));
    let forged = Spec::new(Fault::WrongSignature {}).of(&did);
    world.inject(forged.times(1));
    world.post(&did);
    assert_eq!(world.fired("wrong-signature"), 1);
    world
        .until("unset", async |world: &World| {
            match world.row(&did).marker {
                None => Ok(()),
                some => Err(format!("{some:?}")),
            }
        })
        .await;
    assert_eq!(world.metrics().sweeps.get(), sweeps, "still on its way");
    world
        .until("the listing has come", async |world: &World| {
            assert_eq!(world.row(&did).marker, None);
            assert!(!world.never_stale(&did).await.complete);
            if world.metrics().sweeps.get() > sweeps {
                Ok(())
            } else {
                Err("not yet".to_owned())
            }
        })
        .await;
    assert_eq!(world.row(&did).marker, None);
    world.until_fired("stall", 1).await;
    world.clear(stalled).await;
    world.until_complete_never_stale(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t58_b_a_fetch_noted_before_the_marker_was_unset_does_not_raise_it() {
    let mut world = World::settled(listed(4, 1)).with(unswept).await;
    let did = world.account(0, 1);
    let written = world.metrics().snapshots_written.get();
    world.drip(0, "getRepo", 300);
    let fetched = world.too_big(&did);
    world.until_fired("drip", 1).await;
    let stalled = world.stall(0, "getLatestCommit", Some(&did));
    let forged = Spec::new(Fault::WrongSignature {}).of(&did);
    world.inject(forged.times(1));
    world.post(&did);
    assert_eq!(world.fired("wrong-signature"), 1);
    world.until_incomplete(&did, "compare_owed").await;
    assert_eq!(
        world.metrics().snapshots_written.get(),
        written,
        "the fetch is still under way"
    );
    world
        .until_counted(
            "the fetch has ended",
            |metrics| metrics.snapshots_written.get(),
            written + 1,
        )
        .await;
    let answer = world
        .until_repo(&did, "progress", |answer| {
            answer.last_indexed_rev == Some(fetched.rev.to_string())
        })
        .await;
    assert!(!answer.complete);
    assert!(answer.reasons.contains(&"compare_owed".to_owned()));
    assert_eq!(world.row(&did).marker, None);
    world.until_fired("stall", 1).await;
    assert_eq!(world.row(&did).marker, None);
    world.clear(stalled).await;
    world.until_complete_never_stale(&did).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t59_a_newer_head_is_named_while_the_fetch_fails_and_an_older_commit_chains() {
    let mut world = World::settled(listed(4, 1)).with(swept).await;
    let did = world.account(0, 1);
    let route = Some("getRepo".to_owned());
    let broken = Fault::HttpError {
        status: 503,
        retry_after: None,
        route,
    };
    let broken = world.inject(Spec::new(broken).on(Place::Pds(0)).of(&did));
    // The first is late, and of the second the stream says nothing.
    let delay = Spec::new(Fault::Delay { ms: 8_000 });
    world.inject(delay.of(&did).times(1));
    let late = world.post(&did);
    assert_eq!(world.fired("delay"), 1);
    world.lose_commit(&did);
    world.until_fired("http-error", 1).await;
    let owing = world.until_incomplete(&did, "fetch_owed").await;
    assert!(owing.rev < Some(late.rev.to_string()));
    let chained = world
        .until_repo(&did, "the late one chains", |answer| {
            answer.rev == Some(late.rev.to_string())
        })
        .await;
    assert!(!chained.complete, "the named head is still owed");
    assert!(chained.reasons.contains(&"fetch_owed".to_owned()));
    let sweeps = world.metrics().sweeps.get();
    world
        .until("a while", async |world: &World| {
            assert!(!world.never_stale(&did).await.complete);
            if world.metrics().sweeps.get() > sweeps + 1 {
                Ok(())
            } else {
                Err("no sweep".to_owned())
            }
        })
        .await;
    world.clear(broken).await;
    world.until_complete_never_stale(&did).await;
    assert!(world.fired("http-error") >= 1);
    world.stop().await;
}

fn is_suspended(world: &World) -> bool {
    let hosts = world.mirror().services().hosts.all();
    hosts.iter().any(|(_, host)| host.hiding_suspended)
}

async fn until_suspended(world: &World, wanted: bool) {
    world
        .until("the sweep has told", async |world: &World| {
            if is_suspended(world) == wanted {
                Ok(())
            } else {
                Err(format!("it should be {wanted}"))
            }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hiding_is_allowed_again_when_all_repositories_are_listed_again() {
    let mut world = World::settled(listed(12, 1)).with(unswept).await;
    world.expect("too many repositories vanished at once");
    let empty = world.inject(Spec::new(Fault::ListEmpty {}).on(Place::Pds(0)));
    world.reset(0).await;
    until_suspended(&world, true).await;
    world.clear(empty).await;
    world.reset(0).await;
    until_suspended(&world, false).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_host_hides_no_repository_until_the_loss_is_confirmed() {
    const REPOS: usize = 12;
    let mut world = World::settled(listed(REPOS, 1)).with(unswept).await;
    world.expect("too many repositories vanished at once");
    let dids = world.net.truth().dids();
    let vanished = world.metrics().vanished.get();
    // A sweep that sees all of it at once.
    let listing = world.stall(0, "listRepos", None);
    world.reset(0).await;
    world.until_fired("stall", 1).await;
    for did in &dids {
        world.inject(Spec::new(Fault::LostAccount {}).of(did).times(1));
        let gone = world.net.set_status(did, Status::Deleted);
        gone.expect("it is active");
    }
    assert_eq!(world.fired("lost-account"), REPOS as u64);
    let sweeps = world.metrics().sweeps.get();
    world.clear(listing).await;
    let all = vanished + REPOS as u64;
    world
        .until_counted("asked", |metrics| metrics.vanished.get(), all)
        .await;
    world
        .until_counted("swept", |metrics| metrics.sweeps.get(), sweeps + 1)
        .await;
    assert!(is_suspended(&world));
    for did in &dids {
        let answer = world.answer(did).await;
        assert_eq!(answer.account, "active", "nobody said otherwise");
        assert!(!answer.complete && answer.records > Some(0), "{answer:?}");
    }
    let (mirror, url) = (world.mirror().clone(), world.host_url(0));
    let confirm = tokio::task::spawn_blocking(move || mirror.control().confirm_loss(&url));
    confirm.await.expect("no panic").expect("it is suspended");
    for did in &dids {
        world.try_now(did).await;
        let hidden = world.until_incomplete(did, "inactive").await;
        assert_eq!(hidden.account, "not_found");
    }
    // What is known to be gone is not lost once more.
    let sweeps = world.metrics().sweeps.get();
    world.reset(0).await;
    world
        .until_counted("swept again", |metrics| metrics.sweeps.get(), sweeps + 1)
        .await;
    assert!(!is_suspended(&world));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_breaks_off_is_no_sweep() {
    let mut world = World::settled(listed(4, 1)).with(swept).await;
    let did = world.account(0, 1);
    let failures = world.metrics().sweep_failures.get();
    let broken = Fault::HttpError {
        status: 502,
        retry_after: None,
        route: Some("listRepos".to_owned()),
    };
    let broken = world.inject(Spec::new(broken).on(Place::Pds(0)));
    world.until_fired("http-error", 1).await;
    world.lose_commit(&did);
    world
        .until_counted(
            "it is told",
            |metrics| metrics.sweep_failures.get(),
            failures + 1,
        )
        .await;
    world.clear(broken).await;
    world.until_complete(&did).await;
    world.stop().await;
}

/// How often a host was swept: its sweeps have different beginnings.
fn swept_tick(world: &World, host: usize) -> Option<Tick> {
    let name = world.host_url(host);
    let hosts = world.mirror().services().hosts.all();
    let mut named = hosts.into_iter().filter(|(_, row)| row.name == name);
    named
        .next()
        .and_then(|(_, row)| row.swept)
        .map(|swept| swept.tick)
}

/// Waits until a host was swept again so often.
async fn swept_again(world: &World, host: usize, times: u32) {
    let mut last = swept_tick(world, host);
    for _ in 0..times {
        world
            .until("swept again", async |world: &World| {
                if swept_tick(world, host) > last {
                    Ok(())
                } else {
                    Err(format!("{last:?}"))
                }
            })
            .await;
        last = swept_tick(world, host);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_are_silent_keep_no_other_from_being_swept() {
    const SILENT: usize = 6;
    let mut world = World::settled(listed(2 * (SILENT + 1), SILENT + 1))
        .with(swept)
        .await;
    let failures = world.metrics().sweep_failures.get();
    let silent: Vec<_> = (0..SILENT)
        .map(|host| world.stall(host, "listRepos", None))
        .collect();
    // More than could be swept at a time if each were waited for.
    world.until_fired("stall", 4).await;
    swept_again(&world, SILENT, 3).await;
    world.until_fired("stall", SILENT as u64).await;
    swept_again(&world, SILENT, 1).await;
    assert_eq!(
        world.metrics().sweep_failures.get(),
        failures,
        "and nobody has given up waiting"
    );
    for host in silent {
        world.clear(host).await;
    }
    world.until_all_complete().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_stalls_keeps_no_host_from_being_swept() {
    let mut world = World::settled(listed(4, 1)).with(swept).await;
    let did = world.account(0, 1);
    let stalled = world.stall(0, "getRepo", Some(&did));
    world.lose_commit(&did);
    world.until_fired("stall", 1).await;
    let failures = world.metrics().request_failures.get();
    swept_again(&world, 0, 2).await;
    assert!(!world.never_stale(&did).await.complete);
    assert_eq!(
        world.metrics().request_failures.get(),
        failures,
        "it is still under way"
    );
    world.clear(stalled).await;
    world.until_complete_never_stale(&did).await;
    world.stop().await;
}
