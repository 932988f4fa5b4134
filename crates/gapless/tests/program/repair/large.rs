//! Tests repositories that are larger than `max_repo_bytes`: they are reported as too large,
//! and fetched once the limit is raised.

use gapless_atp::syntax::Did;
use gapless_harness::{World, listed, next_number};
use gapless_mirror::api::{Gap, Inspect as _};
use gapless_testnet::{Write, encode_record};

/// What `gaps` says of a repository.
pub(crate) async fn gap_of(world: &World, did: &Did) -> Option<Gap> {
    let mirror = world.mirror().clone();
    let asked = tokio::task::spawn_blocking(move || mirror.inspector().gaps(None, 100));
    let page = asked.await.expect("no panic").expect("an answer");
    page.gaps.into_iter().find(|gap| gap.did == did.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_larger_than_is_taken_says_so_and_waits_until_more_is_taken() {
    let mut world = World::network(listed(1, 1)).await;
    world.expect("larger than fetch.max_repo_bytes");
    let did = world.account(0, 0);
    for _ in 0..20 {
        let text = format!("{} {}", next_number(), "a".repeat(2_000));
        let record = serde_json::json!({ "$type": "app.bsky.feed.post", "text": text });
        let write = Write::Create {
            path: format!("app.bsky.feed.post/large{}", next_number()),
            record: encode_record(&record).expect("a record"),
        };
        world.net.write(&did, &[write]).expect("it is written");
    }
    world
        .flags
        .upstream
        .push(format!("pds={}", world.host_url(0)));
    world.flags.sweep_every = Some("1s".to_owned());
    world.adjust = |config| config.mirror.fetch.max_repo_bytes = 20_000;
    world.begin().await;
    world
        .until_counted("too large", |metrics| metrics.fetches_too_large.get(), 1)
        .await;
    let sweeps = world.metrics().sweeps.get();
    world
        .until_counted("swept", |metrics| metrics.sweeps.get(), sweeps + 4)
        .await;
    let gap = gap_of(&world, &did).await.expect("it is a gap");
    assert_eq!(gap.reasons[0], "too_large", "{gap:?}");
    assert!(gap.doing.contains("20000 bytes"), "{gap:?}");
    assert!(gap.can_do.contains("fetch.max_repo_bytes"), "{gap:?}");
    // Sweeps ask for it, and it is not fetched for that.
    assert_eq!(world.metrics().fetches_too_large.get(), 1);
    assert_eq!(world.metrics().snapshots_refused.get(), 0);
    world.stop().await;
    // A start with the same limit, or less, does not try it.
    world.begin().await;
    let sweeps = world.metrics().sweeps.get();
    world
        .until_counted("swept", |metrics| metrics.sweeps.get(), sweeps + 2)
        .await;
    assert_eq!(world.metrics().fetches_too_large.get(), 0);
    let gap = gap_of(&world, &did).await.expect("it is a gap");
    assert_eq!(gap.reasons[0], "too_large", "{gap:?}");
    world.stop().await;
    // One with more does at once.
    world.adjust = |config| config.mirror.fetch.max_repo_bytes = 2_000_000;
    world.begin().await;
    world.until_complete_never_stale(&did).await;
    world.stop().await;
}
