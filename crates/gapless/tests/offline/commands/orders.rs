//! Tests the commands that change a running mirror: `gapless resync`, `upstream`, `track` and
//! `dead`.

use serde_json::json;

use crate::commands::{ends, err, json, out};
use crate::fake::{BROKEN, COMPLETE, CONFIGURED, Served, WEB};

#[test]
fn orders_arrive() {
    let served = Served::start(false, true);
    let url = served.url();
    ends(&url, &["resync", BROKEN], 0);
    ends(&url, &["resync", BROKEN, "--accept-rollback", "--json"], 0);
    ends(
        &url,
        &[
            "upstream",
            "add",
            "pds",
            "https://a.example",
            "--host",
            "b.example",
        ],
        0,
    );
    let removed = ends(&url, &["upstream", "remove", "https://a.example"], 0);
    assert!(!out(&removed).contains("comes back"), "{}", out(&removed));
    ends(&url, &["upstream", "confirm-loss", "https://a.example"], 0);
    let added = out(&ends(&url, &["track", "add", COMPLETE, WEB], 0));
    assert!(added.starts_with("2 repositories added"), "{added}");
    assert!(!added.contains("already"), "{added}");
    let gone = json(&ends(&url, &["track", "remove", WEB, "--json"], 0));
    assert_eq!(gone, json!({ "changed": 0, "unchanged": 1 }));
    let expected = [
        format!("resync {BROKEN} false"),
        format!("resync {BROKEN} true"),
        "add pds https://a.example Some(\"b.example\")".to_owned(),
        "remove https://a.example".to_owned(),
        "confirm https://a.example".to_owned(),
        format!("track [{COMPLETE}, {WEB}]"),
        format!("untrack [{WEB}]"),
    ];
    assert_eq!(served.fake.orders(), expected);
    let list = out(&ends(&url, &["track", "list"], 0));
    assert_eq!(list, format!("{COMPLETE}\n{WEB}\n"));
    let twice = ends(&url, &["upstream", "add", "pds", "http://twice.example"], 1);
    assert!(err(&twice).contains("already followed"), "{}", err(&twice));
    ends(&url, &["track", "add"], 2);
    // The output does not claim something that was not done.
    let gone = out(&ends(&url, &["track", "remove", WEB], 0));
    assert_eq!(
        gone,
        "The repository was not tracked; nothing has changed.\n"
    );
    let gone = out(&ends(&url, &["track", "remove", WEB, COMPLETE], 0));
    assert!(
        gone.starts_with("None of the repositories was tracked"),
        "{gone}"
    );
    let host = [
        "upstream",
        "add",
        "relay",
        "https://a.example",
        "--host",
        "b",
    ];
    let relay = ends(&url, &host, 2);
    assert!(err(&relay).contains("stands for many"), "{}", err(&relay));
}

#[test]
fn an_upstream_of_the_configuration_is_said_to_come_back() {
    let served = Served::start(false, true);
    let remove = ["upstream", "remove", CONFIGURED];
    let words = "the configuration names the upstream, so Gapless follows";
    let text = out(&ends(&served.url(), &remove, 0));
    assert!(text.contains(words), "{text}");
    let told = json(&ends(
        &served.url(),
        &[&remove[..], &["--json"]].concat(),
        0,
    ));
    assert_eq!(told["configured"], true);
    assert!(
        told["note"]
            .as_str()
            .is_some_and(|note| note.contains(words))
    );
}

#[test]
fn dead_letters_are_listed_and_settled() {
    let served = Served::start(false, true);
    let url = served.url();
    assert!(out(&ends(&url, &["dead", "list"], 0)).contains("No dead letters"));
    *served.fake.dead.lock().expect("no panic") = (0..2500).collect();
    let all = json(&ends(
        &url,
        &["dead", "list", "--json", "--limit", "9000"],
        1,
    ));
    assert_eq!(all["dead"].as_array().map(Vec::len), Some(2500));
    let text = out(&ends(&url, &["dead", "list", "--limit", "2"], 1));
    assert!(
        text.contains("1  invalid") && text.contains("there are more"),
        "{text}"
    );
    ends(&url, &["dead", "resolve"], 2);
    ends(&url, &["dead", "resolve", "7", "--all"], 2);
    ends(&url, &["dead", "list", "--limit", "0"], 2);
    ends(&url, &["dead", "resolve", "7"], 0);
    let again = ends(&url, &["dead", "resolve", "7"], 1);
    assert!(err(&again).contains("no such letter"), "{}", err(&again));
    let rest = json(&ends(&url, &["dead", "resolve", "--all", "--json"], 0));
    assert_eq!(rest, json!({ "resolved": 2499 }));
    ends(&url, &["dead", "list"], 0);
}
