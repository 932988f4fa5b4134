//! Tests hosts whose listing cannot be read: their repositories are not all known, so the
//! mirror reports the host as a gap.

use gapless_core::ledger::UpstreamKind;
use gapless_harness::{World, condition, listed, swept, unswept};
use gapless_mirror::api::{HostGap, Inspect as _};
use gapless_testnet::{Fault, Place, SetFault, Spec};

async fn sweep_age(world: &World, host: usize) -> Option<f64> {
    let name = "gapless_upstream_sweep_age_seconds";
    let name = format!("{name}{{upstream=\"{}\"}}", world.host_url(host));
    world.measure(&name).await
}

/// Waits until a host is in doubt for exactly these reasons.
async fn until_in_doubt(world: &World, host: usize, reasons: &[&str]) -> HostGap {
    let mut found = None;
    world
        .until(&format!("{reasons:?}"), async |world: &World| {
            let page = world.gaps().await;
            assert_eq!(page.hosts.len() as u64, page.hosts_total);
            let url = world.host_url(host);
            found = page.hosts.iter().find(|one| one.host == url).cloned();
            let told = found.as_ref().map(|one| one.reasons.clone());
            condition(told.unwrap_or_default() == reasons, &page)
        })
        .await;
    found.expect("it was seen")
}

fn no_listing(world: &World, host: usize) -> SetFault {
    let error = Fault::HttpError {
        status: 500,
        retry_after: None,
        route: Some("listRepos".to_owned()),
    };
    world.inject(Spec::new(error).on(Place::Pds(host)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_listing_fails_from_the_start_is_not_passed_over() {
    let mut world = World::network(listed(9, 3)).await;
    for url in world.net.urls().pds.clone() {
        world.flags.upstream.push(format!("pds={url}"));
    }
    world.adjust = swept;
    let failing = no_listing(&world, 1);
    world.begin().await;
    for host in [0, 2] {
        for number in 0..3 {
            world.until_complete(&world.account(host, number)).await;
        }
    }
    let told = until_in_doubt(&world, 1, &["not_listed", "sweep_failing"]).await;
    assert!(told.error.is_some_and(|error| error.contains("500")));
    assert!(told.since.is_some() && told.can_do.contains("listRepos"));
    world
        .until("the others are listed", async |world: &World| {
            let page = world.gaps().await;
            let only = page.hosts_total == 1 && page.gaps.is_empty();
            only.then_some(()).ok_or(format!("{page:?}"))
        })
        .await;
    let second = world
        .ask(|mirror| mirror.inspector().gaps(Some(0), 100))
        .await;
    assert!(second.expect("an answer").hosts.is_empty(), "told once");
    let ready = world.ready().await;
    let url = world.host_url(1);
    let because = |reason: &String| reason.contains(&url) && reason.contains("500");
    assert!(
        !ready.ready && ready.reasons.iter().any(because),
        "{ready:?}"
    );
    let upstream = world.upstream(Place::Pds(1)).await;
    assert!(upstream.connected && upstream.followed == "configured");
    assert!(upstream.sweep.failures > 0 && upstream.sweep.failing_since.is_some());
    let error = upstream.sweep.error.as_deref();
    assert!(error.is_some_and(|error| error.contains("500")));
    assert_eq!(world.measure("gapless_hosts_failing").await, Some(1.0));
    assert_eq!(sweep_age(&world, 1).await, None);
    assert!(sweep_age(&world, 0).await.is_some());
    world.clear(failing).await;
    world.until_all_complete().await;
    world.until_no_gaps().await;
    let upstream = world.upstream(Place::Pds(1)).await;
    assert_eq!((upstream.sweep.failures, upstream.sweep.error), (0, None));
    assert_eq!(world.measure("gapless_hosts_failing").await, Some(0.0));
    assert!(sweep_age(&world, 1).await.is_some());
    let ready = world.ready().await;
    assert!(ready.ready, "{ready:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_whose_later_sweeps_fail_is_named_and_then_ends_readiness() {
    let mut world = World::settled(listed(4, 2))
        .with(|config| {
            swept(config);
            config.mirror.ready.max_sweep_age = std::time::Duration::from_secs(3);
        })
        .await;
    world.until_no_gaps().await;
    assert!(world.ready().await.ready);
    let failing = no_listing(&world, 0);
    let told = until_in_doubt(&world, 0, &["sweep_failing"]).await;
    let since = told.since;
    world
        .until("too old", async |world: &World| {
            let ready = world.ready().await;
            let told = ready.reasons.iter().any(|one| one.contains("last swept"));
            (!ready.ready && told)
                .then_some(())
                .ok_or(format!("{ready:?}"))
        })
        .await;
    let told = until_in_doubt(&world, 0, &["sweep_failing"]).await;
    assert_eq!(told.since, since, "since the first of them");
    world.clear(failing).await;
    world.until_no_gaps().await;
    assert!(world.ready().await.ready);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_host_was_asked_about_by_name_is_not_its_listing() {
    let mut world = World::network(listed(3, 1)).await;
    let did = world.account(0, 0);
    world.name(&[&did]);
    world.adjust = unswept;
    world.begin().await;
    world.until_complete(&did).await;
    world
        .until_counted("a sweep", |metrics| metrics.sweeps.get(), 1)
        .await;
    world.until_no_gaps().await;
    assert_eq!(world.upstream(Place::Pds(0)).await.followed, "for_tracked");
    // Now the whole host is wanted, and its repositories are not known yet.
    let stalled = world.stall(0, "listRepos", None);
    world.add(UpstreamKind::Pds, world.host_url(0), None).await;
    let told = until_in_doubt(&world, 0, &["not_listed"]).await;
    assert_eq!(told.error, None);
    world.until_fired("stall", 1).await;
    until_in_doubt(&world, 0, &["not_listed"]).await;
    world.clear(stalled).await;
    world.until_all_complete().await;
    world.until_no_gaps().await;
    world.stop().await;
}
