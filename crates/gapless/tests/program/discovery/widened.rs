//! Tests a filter that is widened between two starts: only repositories that lack wanted
//! records are fetched.

use gapless_harness::{World, network, new_path};
use gapless_testnet::{Write, encode_record};

const POSTS: &str = "app.bsky.feed.post";
const THINGS: &str = "com.example.thing";

fn thing() -> Write {
    let key = new_path().replace("app.bsky.feed.post/", "");
    let json = serde_json::json!({ "$type": THINGS, "text": "a thing" });
    Write::Create {
        path: format!("{THINGS}/{key}"),
        record: encode_record(&json).expect("it is a record"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wider_filter_fetches_only_where_something_is_missing() {
    let mut world = World::quiet(network(5, 1)).await;
    world.flags.collections = Some(POSTS.to_owned());
    let has = world.did(0);
    world.write(&has, &[thing()]);
    world.begin().await;
    world.settle().await;
    world.stop().await;
    world.flags.collections = Some(format!("{POSTS},{THINGS}"));
    world.widened = true;
    let fetches = world.stall(0, "getRepo", None);
    world.begin().await;
    // Its key is held and its bytes are not; the others need nothing.
    world.until_incomplete(&has, "filter_changed").await;
    for number in 1..5 {
        world.until_complete(&world.did(number)).await;
    }
    world.until_fired("stall", 1).await;
    world.until_incomplete(&has, "filter_changed").await;
    world.clear(fetches).await;
    world.settle().await;
    assert_eq!(world.snapshots().await, 1, "only one was fetched");
    // What comes now is kept as the new filter wants it.
    let other = world.did(1);
    world.write(&other, &[thing()]);
    world.until_complete(&other).await;
    world.stop().await;
}
