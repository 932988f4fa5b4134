//! Tests cursors of the firehose: cursors inside the window, outdated ones, future ones and
//! malformed ones, and the limit on connections.

use gapless_harness::{World, network, new_path, record};
use gapless_testnet::Write;
use tokio_tungstenite::tungstenite::Error;

use crate::firehose::strict::{Served, Strict, dial};

/// The status and body with which a dial was refused.
async fn refused(served: &Served, query: &str) -> (u16, serde_json::Value, Option<String>) {
    match dial(served.address, query).await {
        Err(Error::Http(response)) => {
            let again = response.headers().get("retry-after");
            let again = again.map(|value| value.to_str().expect("text").to_owned());
            let body = response.body().as_deref().unwrap_or_default();
            let json = serde_json::from_slice(body).unwrap_or_default();
            (response.status().as_u16(), json, again)
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was taken in"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_where_it_goes_on() {
    let mut world = World::settled(network(2, 1)).await;
    let served = Served::start(&world).await;
    let did = world.did(0);
    // Of several operations each: a row has as many numbers, and is named by the first.
    for _ in 0..5 {
        let writes = [(); 3].map(|()| {
            let path = new_path();
            let record = record(&path);
            Write::Create { path, record }
        });
        world.write(&did, &writes);
    }
    world.until_complete(&did).await;
    let mut all = Strict::new(&world);
    all.connect(served.address, Some(0)).await;
    all.until_true().await;
    let numbers: Vec<u64> = all.seen().frames.keys().copied().collect();
    let middle = numbers[numbers.len() - 3];
    // After it, and no further back.
    let mut rest = Strict::new(&world);
    rest.seen().held = all.seen().held.clone();
    rest.connect(served.address, Some(middle)).await;
    rest.until("the last two", |seen| match seen.frames.len() {
        2 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    assert_eq!(
        rest.seen().frames.keys().next(),
        Some(&numbers[numbers.len() - 2])
    );
    assert!(rest.seen().infos.is_empty());
    // Nor does the row that it has count as one whose frame is gone.
    assert_eq!(world.metrics().firehose_frames_missing.get(), 0);
    // Without one: what is new, and nothing else.
    let mut live = Strict::new(&world);
    live.seen().held = all.seen().held.clone();
    live.connect(served.address, None).await;
    world.post(&did);
    live.until("the new one", |seen| match seen.frames.len() {
        1 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_cursor_is_an_error_and_closes_the_connection() {
    let mut world = World::settled(network(1, 1)).await;
    let served = Served::start(&world).await;
    let next = world.log_next();
    for cursor in [next, next + 1, u64::MAX] {
        let mut strict = Strict::new(&world);
        strict.connect(served.address, Some(cursor)).await;
        strict.ended().await;
        let seen = strict.seen();
        assert_eq!(seen.errors, ["FutureCursor"], "{cursor}");
        assert_eq!(seen.closed, Some(1008));
        assert!(seen.frames.is_empty());
    }
    for wrong in [
        "?cursor=-1",
        "?cursor=x",
        "?cursor=1.5",
        "?cursor=99999999999999999999",
    ] {
        let (status, body, _) = refused(&served, wrong).await;
        assert_eq!(
            (status, &body["error"]),
            (400, &"InvalidRequest".into()),
            "{wrong}"
        );
    }
    // The last number that was given is no future.
    let mut strict = Strict::new(&world);
    strict.connect(served.address, Some(next - 1)).await;
    world.post(&world.did(0));
    strict
        .until("the next one", |seen| match seen.frames.len() {
            1 => Ok(()),
            _ => Err(format!("{:?}", seen.errors)),
        })
        .await;
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_makes_it_impossible() {
    let mut world = World::quiet(network(1, 1)).await;
    world.flags.collections = Some("app.bsky.feed.*".to_owned());
    world.begin().await;
    world.until_all_complete().await;
    let served = Served::start(&world).await;
    let (status, body, _) = refused(&served, "").await;
    assert_eq!((status, &body["error"]), (400, &"InvalidRequest".into()));
    let words = body["message"].as_str().expect("words");
    assert!(words.contains("only some collections"), "{words}");
    served.stop().await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_at_a_time_and_a_place_is_free_again() {
    let mut world = World::quiet(network(1, 1)).await;
    world.adjust = |config| config.serve.firehose.consumers = 2;
    world.begin().await;
    world.settle().await;
    let served = Served::start(&world).await;
    let first = dial(served.address, "").await.expect("there is room");
    let _second = dial(served.address, "").await.expect("there is room");
    let (status, _, again) = refused(&served, "").await;
    assert_eq!((status, again.as_deref()), (503, Some("30")));
    assert_eq!(world.metrics().firehose_turned_away.get(), 1);
    drop(first);
    world
        .until("a place is free", async |_: &World| {
            match dial(served.address, "").await {
                Ok(_) => Ok(()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await;
    let http = reqwest::Client::builder().no_proxy().build().expect("one");
    let metrics = format!("http://{}/metrics", served.address);
    let answer = http.get(metrics).send().await.expect("it answers");
    let text = answer.text().await.expect("the whole of it");
    assert!(text.contains("gapless_firehose_consumers "), "{text}");
    served.stop().await;
    world.stop().await;
}
