//! Tests `gapless status` and `gapless hosts`: which states are findings, and which hosts are
//! reported as failing.

use gapless_mirror::api::{
    RepoCounts, SourceAnswer, Status, StoreStatus, SweepAnswer, UpstreamAnswer,
};

use crate::commands::{ends, json, out};
use crate::fake::{Served, reach};

fn upstream(connected: bool) -> UpstreamAnswer {
    UpstreamAnswer {
        url: "https://pds.example.com".to_owned(),
        kind: "pds".to_owned(),
        connected,
        open: connected,
        cursor: Some(42),
        lag_seconds: Some(0.25),
        error: (!connected).then(|| "refused\u{1b}[2J".to_owned()),
        ..UpstreamAnswer::default()
    }
}

pub(super) fn status(connected: bool) -> Status {
    Status {
        repos: RepoCounts {
            total: 5,
            complete: 3,
            proven: 2,
            incomplete: 2,
            hidden: 0,
            not_recomputable: 0,
        },
        upstreams: vec![upstream(connected)],
        ..Status::default()
    }
}

#[test]
fn status_is_a_finding_only_when_a_person_is_needed() {
    let served = Served::start(false, true);
    let set = |status: Status| *served.fake.status.lock().expect("no panic") = status;
    set(status(true));
    let fine = out(&ends(&served.url(), &["status"], 0));
    assert!(
        fine.contains("3 of 5 complete, 2 proven, 2 incomplete"),
        "{fine}"
    );
    assert!(
        fine.contains("https://pds.example.com") && fine.contains("open"),
        "{fine}"
    );
    assert!(!fine.contains("need a person"), "{fine}");
    set(Status {
        reach: reach(),
        ..status(true)
    });
    let told = out(&ends(&served.url(), &["status"], 0));
    let about = "reach         This answer covers the 2500 repositories that Gapless knows.";
    assert!(told.contains(about), "{told}");
    assert!(
        !fine.contains("LOSSY SINCE") && !fine.contains("claimed"),
        "{fine}"
    );
    let mut lossy = status(true);
    lossy.claims = 12;
    lossy.upstreams[0].source = Some(SourceAnswer {
        first: 70,
        late: 20,
        missed: 9,
        lossy_since: Some("2026-01-02T03:04:05Z".to_owned()),
        late_p99_seconds: Some(0.25),
        ..SourceAnswer::default()
    });
    set(lossy);
    let told = out(&ends(&served.url(), &["status"], 0));
    let row = told.lines().find(|line| line.contains("2026-01-02"));
    let row: Vec<&str> = row.expect("it is told").split_whitespace().collect();
    assert_eq!(
        row[1..],
        ["70", "20", "0.250s", "-", "9", "2026-01-02T03:04:05Z"]
    );
    assert!(told.contains("12 records, not proven yet"), "{told}");
    set(status(true));
    assert_eq!(
        json(&ends(&served.url(), &["status", "--json"], 0))["repos"]["complete"],
        3
    );
    set(status(false));
    let down = out(&ends(&served.url(), &["status"], 1));
    assert!(
        down.contains("need a person") && down.contains("is down: refused"),
        "{down}"
    );
    assert!(
        !down.contains('\u{1b}'),
        "an escape of a stranger reached the terminal"
    );
    set(Status {
        dead_letters: 4,
        ..status(true)
    });
    assert!(out(&ends(&served.url(), &["status"], 1)).contains("4 dead letters"));
    set(Status {
        store: StoreStatus {
            writes: false,
            since: Some("2026-01-02T03:04:05.000006Z".to_owned()),
            error: Some("the disk is full".to_owned()),
        },
        ..status(true)
    });
    let full = out(&ends(&served.url(), &["status"], 1));
    assert!(
        full.contains("nothing is written since 2026") && full.contains("the disk is full"),
        "{full}"
    );
    set(Status {
        hiding_suspended: vec!["lossy.example".to_owned()],
        ..status(true)
    });
    assert!(out(&ends(&served.url(), &["status"], 1)).contains("confirm-loss"));
    ends(&served.url(), &["status", "--json"], 1);
    set(Status {
        upstreams: vec![],
        ..status(true)
    });
    let empty = out(&ends(&served.url(), &["status"], 1));
    assert!(empty.contains("  no upstream is followed"), "{empty}");
    set(status(true));
    let list = out(&ends(&served.url(), &["upstream", "list"], 0));
    assert!(list.contains("42") && list.contains("0.2s"), "{list}");
}

#[test]
fn a_host_whose_sweeps_fail_needs_a_person_if_all_of_it_is_wanted() {
    let served = Served::start(false, true);
    let set = |followed: &str| {
        let mut status = status(true);
        status.upstreams[0].followed = followed.to_owned();
        status.upstreams[0].sweep = SweepAnswer {
            failures: 3,
            error: Some("status 500\u{1b}[2J".to_owned()),
            failing_since: Some("2026-01-02T03:04:05.000006Z".to_owned()),
            ..SweepAnswer::default()
        };
        *served.fake.status.lock().expect("no panic") = status;
    };
    set("configured");
    let text = out(&ends(&served.url(), &["status"], 1));
    let needs = "may be unknown: status 500";
    assert!(
        text.contains(needs) && text.contains("since 2026"),
        "{text}"
    );
    assert!(text.contains("sweep: status 500"), "in the table: {text}");
    assert!(!text.contains('\u{1b}'));
    set("for_tracked");
    let text = out(&ends(&served.url(), &["status"], 0));
    assert!(text.contains("sweep: status 500"), "{text}");
}

#[test]
fn hosts_are_listed_and_those_that_fail_are_a_finding() {
    let served = Served::start(false, true);
    let text = out(&ends(&served.url(), &["hosts"], 0));
    assert!(text.contains("3 hosts, 2 swept, 1 failing."), "{text}");
    assert!(text.contains("https://pds1.example.com"), "{text}");
    assert!(text.contains("nobody is there") && !text.contains('\u{1b}'));
    assert!(
        text.contains("failing, never reached since 2026-01-01"),
        "{text}"
    );
    let refused =
        "4 of the refused hosts named by the relay https://relay.example.com, which named 30000";
    assert!(text.contains(refused), "{text}");
    let failing = json(&ends(&served.url(), &["hosts", "--failing", "--json"], 1));
    assert_eq!(failing["hosts"][0]["failures"], 7);
    assert_eq!(failing["hosts"][1], serde_json::Value::Null);
    let two = ["hosts", "--json", "--limit", "2"];
    let two = json(&ends(&served.url(), &two, 0));
    assert_eq!((&two["cursor"], &two["total"]), (&2.into(), &3.into()));
}
