//! Tests the commands that report gaps: `gapless gaps`, `repo` and `verify`.

use std::sync::atomic::Ordering;

use gapless_mirror::api::{HostGap, HostReason};

use crate::commands::{ends, err, json, out};
use crate::fake::{BROKEN, COMPLETE, REPOS, Served, UNKNOWN, WEB};

#[test]
fn gaps_names_hosts_that_may_have_more_than_is_known() {
    let served = Served::start(false, true);
    served.fake.no_gaps.store(true, Ordering::Relaxed);
    let host = HostGap {
        since: Some("2026-01-02T03:04:05.000006Z".to_owned()),
        error: Some("status 500\u{1b}[2J".to_owned()),
        ..HostGap::new(
            "https://pds.example.com".to_owned(),
            &[HostReason::NotListed, HostReason::SweepFailing],
        )
    };
    *served.fake.host_gaps.lock().expect("no panic") = vec![host];
    let text = out(&ends(&served.url(), &["gaps"], 1));
    assert!(
        text.contains("https://pds.example.com  not_listed, sweep_failing"),
        "{text}"
    );
    assert!(text.contains("since   2026") && text.contains("error   status 500"));
    assert!(text.contains("1 host whose repositories may not all be known"));
    assert!(
        !text.contains("No gaps") && !text.contains('\u{1b}'),
        "{text}"
    );
    let all = json(&ends(&served.url(), &["gaps", "--json"], 1));
    assert_eq!(all["hosts"][0]["reasons"][0], "not_listed");
    assert_eq!(all["hosts_total"], 1);
    // Pages after the first say nothing of hosts.
    served.fake.no_gaps.store(false, Ordering::Relaxed);
    let limit = ["gaps", "--json", "--limit", "5000"];
    assert_eq!(json(&ends(&served.url(), &limit, 1))["hosts_total"], 1);
}

#[test]
fn gaps_are_read_page_by_page_up_to_the_limit() {
    let served = Served::start(false, true);
    let all = json(&ends(
        &served.url(),
        &["gaps", "--json", "--limit", "5000"],
        1,
    ));
    assert_eq!(
        all["gaps"].as_array().map(|gaps| gaps.len() as u64),
        Some(REPOS)
    );
    assert!(all["cursor"].is_null());
    let doing = all["gaps"][0]["doing"].as_str().unwrap_or_default();
    assert!(doing.ends_with("At last this."), "programs get all of it");
    let some = json(&ends(
        &served.url(),
        &["gaps", "--json", "--limit", "1500"],
        1,
    ));
    assert_eq!(some["gaps"].as_array().map(Vec::len), Some(1500));
    assert!(some["cursor"].is_u64());
    let text = out(&ends(&served.url(), &["gaps", "--limit", "2"], 1));
    assert!(
        text.contains("did:plc:0  no_snapshot") && text.contains("can do  Wait.\n"),
        "{text}"
    );
    assert!(text.contains("doing   First this. Then that.\n"), "{text}");
    assert!(text.contains("2 shown; there are more"), "{text}");
    assert!(
        !text.contains("hidden"),
        "not all of it was looked at: {text}"
    );
    let text = out(&ends(&served.url(), &["gaps", "--limit", "5000"], 1));
    assert!(text.contains("And 3 hidden"), "{text}");
    served.fake.no_gaps.store(true, Ordering::Relaxed);
    let text = out(&ends(&served.url(), &["gaps"], 0));
    assert!(
        text.contains("No gaps: every known repository") && text.contains("2 hidden"),
        "{text}"
    );
    // And whom that is about.
    let about = "2500 repositories that Gapless knows. Gapless has not read the whole listing of any \
                 host. The relay https://relay.example.com reports only active accounts.";
    assert!(text.contains(about), "{text}");
    let told = json(&ends(&served.url(), &["gaps", "--json"], 0));
    assert_eq!(told["reach"]["repos"], REPOS);
    assert_eq!(told["reach"]["relays"][0], "https://relay.example.com");
    // Nothing asked is nothing answered.
    ends(&served.url(), &["gaps", "--limit", "0"], 2);
}

#[test]
fn repo_says_whether_it_is_complete() {
    let served = Served::start(false, true);
    let text = out(&ends(&served.url(), &["repo", COMPLETE], 0));
    assert!(
        text.contains(COMPLETE) && text.contains("verdict       complete"),
        "{text}"
    );
    let text = out(&ends(&served.url(), &["repo", BROKEN], 1));
    assert!(text.contains("not complete: host_behind"), "{text}");
    assert_eq!(
        json(&ends(&served.url(), &["repo", BROKEN, "--json"], 1))["complete"],
        false
    );
    // A percent sign in a DID survives the way through a URL.
    assert_eq!(
        json(&ends(&served.url(), &["repo", WEB, "--json"], 0))["did"],
        WEB
    );
    let unknown = ends(&served.url(), &["repo", UNKNOWN], 1);
    assert!(
        err(&unknown).contains("gapless track add"),
        "{}",
        err(&unknown)
    );
    let wrong = ends(&served.url(), &["repo", "alice", "--json"], 2);
    assert!(json(&wrong)["error"].is_string());
}

#[test]
fn verify_finds_what_does_not_match() {
    let served = Served::start(false, true);
    let fine = out(&ends(&served.url(), &["verify", COMPLETE], 0));
    assert!(fine.contains("7 records hash to the root"), "{fine}");
    let broken = out(&ends(&served.url(), &["verify", BROKEN], 1));
    assert!(
        broken.contains("NOT verified") && broken.contains("bafycomputed"),
        "{broken}"
    );
    let all = out(&ends(&served.url(), &["verify", "--all"], 1));
    assert!(
        all.contains("1 that do not match") && all.contains(BROKEN),
        "{all}"
    );
    assert_eq!(
        json(&ends(&served.url(), &["verify", "--all", "--json"], 1))["mismatches"],
        1
    );
    served.fake.no_gaps.store(true, Ordering::Relaxed);
    ends(&served.url(), &["verify", "--all"], 0);
    // What cannot be proven is no proof, one by one or all at once.
    served.fake.not_recomputable.store(15, Ordering::Relaxed);
    let unproven = out(&ends(&served.url(), &["verify", "--all"], 1));
    assert!(unproven.contains("15 cannot be recomputed"), "{unproven}");
    served.fake.failing.store(true, Ordering::Relaxed);
    let failed = ends(&served.url(), &["verify", "--all"], 1);
    assert!(
        err(&failed).contains("the disk does not read"),
        "{}",
        err(&failed)
    );
    ends(&served.url(), &["verify"], 2);
    ends(&served.url(), &["verify", COMPLETE, "--all"], 2);
}
