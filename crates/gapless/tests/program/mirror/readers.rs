//! Tests the readers of streams: what must be durable before they go on, and what moves their
//! cursors.

use gapless_harness::{PDS, World, condition, network};
use gapless_testnet::{Fault, Place, Spec};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_epoch_is_durable_before_what_came_after_it_is_used() {
    let mut world = World::settled(network(4, 2)).await;
    let (a, elsewhere) = (world.account(0, 0), world.account(1, 0));
    let (id, epoch) = (world.upstream_id(PDS), world.epoch(PDS));
    let listing = world.guard("listRepos");
    let store = world.block_store().await;
    let (name, message) = ("OutdatedCursor".to_owned(), None);
    world.inject(Spec::new(Fault::Info { name, message }).on(PDS));
    world.until_epoch_above(PDS, epoch).await;
    let read = world.read(PDS);
    world.post(&a);
    world.meanwhile(&elsewhere, Place::Pds(1), 25).await;
    assert_eq!(world.read(PDS), read, "nobody would know of the gap");
    let row = world.mirror().services().store.view().upstream(id);
    let row = row.expect("it can be read").expect("it is followed");
    assert_eq!(row.epoch.0, epoch, "it was held all the while");
    drop(store);
    world.until_caught_up(PDS).await;
    world.clear(listing).await;
    world.until_all_complete().await;
    assert_eq!(world.fired("info"), 1);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_others_move_the_cursor() {
    // One repository is wanted, and its host is followed for it alone.
    let mut world = World::network(network(3, 1)).await;
    world.flags.sweep_every = Some("1h".to_owned());
    let dids = world.net.truth().dids();
    world.name(&[&dids[0]]);
    world.begin().await;
    world
        .until("its host is followed", async |world: &World| {
            let followed = {
                let covers = world.mirror().services().upstreams.read();
                covers.iter().count()
            };
            match followed {
                0 => Err("not yet".to_owned()),
                _ => {
                    let upstream = world.upstream(PDS).await;
                    condition(upstream.connected, &upstream)
                }
            }
        })
        .await;
    world.post(&dids[0]);
    world.until_complete(&dids[0]).await;
    world.until_caught_up(PDS).await;
    let skipped = world.metrics().events_skipped.get();
    for _ in 0..5 {
        world.post(&dids[1]);
    }
    world.until_caught_up(PDS).await;
    assert_eq!(world.metrics().events_skipped.get(), skipped + 5);
    assert!(world.repo(&dids[1]).await.is_none(), "it is not wanted");
    world.assert_complete(&dids[0]).await;
    world.stop().await;
}
