//! Tests the limits for each host: request rate, pauses, order of waiting requests, and
//! forgetting idle hosts.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(50);

fn limits(concurrency: usize, requests_per_second: f64, burst: u32) -> HostLimits {
    HostLimits {
        concurrency,
        requests_per_second,
        burst,
    }
}

#[test]
fn a_bucket_gives_a_burst_and_then_its_pace() {
    let limits = limits(1, 2.0, 3);
    let start = Instant::now();
    let mut pace = Pace::new(start);
    let waits: Vec<u128> = (0..6)
        .map(|_| (pace.take(start, &limits) - start).as_millis())
        .collect();
    assert_eq!(waits, [0, 0, 0, 500, 1000, 1500]);
    let rested = start + 100 * SECOND;
    let waits: Vec<u128> = (0..4)
        .map(|_| (pace.take(rested, &limits) - rested).as_millis())
        .collect();
    assert_eq!(
        waits,
        [0, 0, 0, 500],
        "rest does not pile up beyond a burst"
    );
}

#[tokio::test]
async fn no_more_than_so_many_at_once_and_in_order() {
    let hosts = Hosts::new(limits(1, 1000.0, 1000));
    let first = hosts.admit("a.com").await;
    let (sender, mut came) = tokio::sync::mpsc::channel(4);
    let mut waiting = Vec::new();
    for number in 0..3 {
        let (hosts, sender) = (hosts.clone(), sender.clone());
        waiting.push(tokio::spawn(async move {
            let _permit = hosts.admit("a.com").await;
            sender.send(number).await.unwrap();
        }));
        tokio::task::yield_now().await;
    }
    let early = tokio::time::timeout(SOON, came.recv()).await;
    assert!(early.is_err(), "{early:?} was let in beside the first");
    let _elsewhere = hosts.admit("b.com").await;
    drop(first);
    for number in 0..3 {
        assert_eq!(came.recv().await, Some(number));
    }
}

#[tokio::test]
async fn a_pause_holds_every_request_including_those_already_waiting() {
    let hosts = Hosts::new(limits(4, 20.0, 1));
    let start = Instant::now();
    drop(hosts.admit("a.com").await);
    let waiter = tokio::spawn({
        let hosts = hosts.clone();
        async move {
            let _permit = hosts.admit("a.com").await;
            Instant::now()
        }
    });
    tokio::task::yield_now().await;
    hosts.pause("a.com", 4 * SOON);
    let until = hosts.paused_until("a.com").unwrap();
    hosts.pause("a.com", SOON);
    assert_eq!(
        hosts.paused_until("a.com"),
        Some(until),
        "pauses do not shrink"
    );
    assert_eq!(hosts.paused_until("b.com"), None);
    assert!(waiter.await.unwrap() >= until);
    assert!(start.elapsed() >= 4 * SOON);
    assert_eq!(hosts.paused_until("a.com"), None);
}

#[test]
fn idle_hosts_are_forgotten_but_none_that_is_asked_or_paused() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let hosts = Hosts::new(HostLimits::default());
        let asked = hosts.admit("asked.com").await;
        drop(hosts.admit("idle.com").await);
        hosts.pause("paused.com", 3 * IDLE);
        let now = Instant::now();
        let mut places = hosts.places();
        places.make_room(now + TIDY_EVERY, 100);
        assert_eq!(places.of.len(), 3, "nothing was idle for long enough");
        places.make_room(now + IDLE + SECOND, 100);
        let left = |places: &Places, host: &str| places.of.contains_key(host);
        assert!(!left(&places, "idle.com"));
        assert!(left(&places, "asked.com") && left(&places, "paused.com"));
        drop(places);
        drop(asked);
        hosts
            .0
            .places
            .lock()
            .unwrap()
            .make_room(now + 2 * IDLE + 2 * SECOND, 100);
        assert_eq!(hosts.len(), 1, "the paused one");
    });
}

#[test]
fn when_places_run_out_the_pace_of_others_is_forgotten_first() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let hosts = Hosts::new(HostLimits::default());
        let _asked = hosts.admit("asked.com").await;
        drop(hosts.admit("rested.com").await);
        let mut places = hosts.places();
        let soon = places.tidied + TIDY_FULL_EVERY;
        places.make_room(soon, 3);
        assert_eq!(places.of.len(), 2, "there is room");
        places.make_room(soon, 2);
        assert_eq!(places.of.len(), 1);
        assert!(places.of.contains_key("asked.com"));
    });
}
