//! The commands as people and scripts call them: the real binary against the real
//! HTTP interface, with a mirror that answers what the test wants.

mod fake;

use std::process::{Command, Output};
use std::sync::atomic::Ordering;

use fake::{BROKEN, COMPLETE, CONFIGURED, REPOS, Served, TOKEN, UNKNOWN, WEB};
use gapless::api::{
    HostGap, HostReason, RepoCounts, SourceAnswer, Status, StoreStatus, SweepAnswer, UpstreamAnswer,
};
use serde_json::{Value, json};

fn gapless(url: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gapless"))
        .args(arguments)
        .env_remove("GAPLESS_TOKEN")
        .env("GAPLESS_URL", url)
        // A proxy of the machine is none of ours.
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .output()
        .expect("it starts")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it ended by itself")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}{}", out(output), err(output)))
}

/// Runs it, and expects an end with this code.
fn ends(url: &str, arguments: &[&str], expected: i32) -> Output {
    let output = gapless(url, arguments);
    let text = format!("{}{}", out(&output), err(&output));
    assert_eq!(code(&output), expected, "{arguments:?}: {text}");
    output
}

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

fn status(connected: bool) -> Status {
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
    assert!(!fine.contains("needs a person"), "{fine}");
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
        down.contains("needs a person") && down.contains("is down: refused"),
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
    let nobody = out(&ends(&served.url(), &["status"], 1));
    assert!(nobody.contains("  no upstream is followed"), "{nobody}");
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
    let needs = "may not all be known: status 500";
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
    let refused = "4 of them named by the relay https://relay.example.com, which named 30000";
    assert!(text.contains(refused), "{text}");
    let failing = json(&ends(&served.url(), &["hosts", "--failing", "--json"], 1));
    assert_eq!(failing["hosts"][0]["failures"], 7);
    assert_eq!(failing["hosts"][1], serde_json::Value::Null);
    let two = ["hosts", "--json", "--limit", "2"];
    let two = json(&ends(&served.url(), &two, 0));
    assert_eq!((&two["cursor"], &two["total"]), (&2.into(), &3.into()));
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
    assert!(text.contains("2 shown, and there are more"), "{text}");
    assert!(
        !text.contains("hidden"),
        "not all of it was looked at: {text}"
    );
    let text = out(&ends(&served.url(), &["gaps", "--limit", "5000"], 1));
    assert!(text.contains("And 3 hidden"), "{text}");
    served.fake.no_gaps.store(true, Ordering::Relaxed);
    let text = out(&ends(&served.url(), &["gaps"], 0));
    assert!(
        text.contains("No gaps") && text.contains("2 hidden"),
        "{text}"
    );
    // Nothing asked is nothing answered.
    ends(&served.url(), &["gaps", "--limit", "0"], 2);
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
    assert!(added.starts_with("2 followed by name"), "{added}");
    assert!(!added.contains("before"), "{added}");
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
    assert!(err(&twice).contains("followed already"), "{}", err(&twice));
    ends(&url, &["track", "add"], 2);
    // Nobody is told that something was done which was not.
    let gone = out(&ends(&url, &["track", "remove", WEB], 0));
    assert_eq!(gone, "It was not tracked: nothing has changed.\n");
    let gone = out(&ends(&url, &["track", "remove", WEB, COMPLETE], 0));
    assert!(gone.starts_with("None of them was tracked"), "{gone}");
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
    let words = "it is in the configuration, and comes back at the next start";
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
fn the_token_is_asked_for_and_taken() {
    let served = Served::start(true, false);
    *served.fake.status.lock().expect("no panic") = status(true);
    let without = ends(&served.url(), &["status"], 2);
    assert!(err(&without).contains("GAPLESS_TOKEN"), "{}", err(&without));
    ends(&served.url(), &["status", "--token", "another-secret"], 2);
    ends(&served.url(), &["status", "--token", TOKEN], 0);
    let by_variable = Command::new(env!("CARGO_BIN_EXE_gapless"))
        .args(["status", "--url", &served.url()])
        .env("GAPLESS_TOKEN", TOKEN)
        .env("GAPLESS_URL", "http://127.0.0.1:1")
        .output()
        .expect("it starts");
    assert_eq!(code(&by_variable), 0, "{}", err(&by_variable));
}

#[test]
fn nobody_there_is_said_with_how_to_start() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("bound").port()
    };
    let url = format!("http://127.0.0.1:{port}");
    for arguments in [
        &["status"][..],
        &["gaps"],
        &["verify", "--all"],
        &["track", "list"],
    ] {
        let output = ends(&url, arguments, 3);
        assert!(
            err(&output).contains("gapless run --upstream"),
            "{}",
            err(&output)
        );
        assert!(err(&output).contains(&url), "{}", err(&output));
    }
    assert!(json(&ends(&url, &["status", "--json"], 3))["error"].is_string());
    ends("not a url", &["status"], 2);
}

#[test]
fn nonsense_is_named_before_anybody_is_asked() {
    let nobody = "http://127.0.0.1:1";
    let refused = |arguments: &[&str], words: &[&str]| {
        let text = err(&ends(nobody, arguments, 2));
        for word in words {
            assert!(text.contains(word), "{arguments:?}, {word}: {text}");
        }
    };
    refused(&["repo", "alice.example"], &["alice.example", "did:"]);
    refused(&["verify", "did:web:"], &["did:web:", "DID"]);
    refused(&["resync", "did:plc:a b"], &["did:plc:a b", "DID"]);
    refused(&["track", "add", UNKNOWN, "x"], &["\"x\""]);
    refused(
        &["upstream", "add", "jet", "https://a"],
        &["jet", "pds URL"],
    );
    refused(&["upstream", "add", "pds", "a b"], &["a b", "http(s)://"]);
    refused(&["verify"], &["DID|--all"]);
    refused(&["verify", UNKNOWN, "--all"], &["cannot be used with"]);
    refused(&["dead", "resolve"], &["NUMBER|--all"]);
}

#[test]
fn only_an_ordinary_file_is_written_over_or_read() {
    let nobody = "http://127.0.0.1:1";
    let folder = tempfile::tempdir().expect("a folder");
    let (link, target) = (folder.path().join("link"), folder.path().join("target"));
    std::fs::write(&target, "precious").expect("a file");
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    for place in [link.as_path(), folder.path()] {
        let place = place.display().to_string();
        let refused = ends(nobody, &["export", COMPLETE, "--out", &place], 2);
        assert!(
            err(&refused).contains("no ordinary file"),
            "{}",
            err(&refused)
        );
    }
    let kept = std::fs::read_to_string(&link).expect("it is there");
    assert_eq!(kept, "precious");
    let place = folder.path().display().to_string();
    let refused = ends(nobody, &["import", &place], 2);
    assert!(err(&refused).contains("is no file"), "{}", err(&refused));
}

#[test]
fn somebody_else_there_is_named_as_such() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let asked = [
        (
            &["status"][..],
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        ),
        (&["status"], "HTTP/1.1 502 Bad\r\ncontent-length: 0\r\n\r\n"),
        (
            &["verify", "--all"],
            "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello\n",
        ),
        (
            &["upstream", "add", "pds", "https://a.example"],
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        ),
        (&["status"], "SSH-2.0-x\r\n"),
    ];
    let answers = asked.map(|(_, answer)| answer);
    let thread = std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().expect("a caller");
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    for (arguments, answer) in asked {
        let text = err(&ends(&url, arguments, 3));
        assert!(text.contains("of a gapless"), "{answer}: {text}");
        assert!(text.contains(&url), "{answer}: {text}");
    }
    thread.join().expect("no panic");
}

#[test]
fn config_show_and_run_read_the_same_configuration() {
    let here = tempfile::tempdir().expect("a folder");
    let gapless = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_gapless"))
            .args(arguments)
            .current_dir(here.path())
            .env("GAPLESS_LIVE_GRACE", "5s")
            .output()
            .expect("it starts")
    };
    std::fs::write(here.path().join("gapless.toml"), "contact = \"me\"").expect("written");
    let shown = gapless(&["config", "show", "--token", TOKEN]);
    assert_eq!(code(&shown), 0, "{}", err(&shown));
    let text = out(&shown);
    assert!(
        text.contains("contact = \"me\"  # ./gapless.toml"),
        "{text}"
    );
    assert!(
        text.contains("live_grace = \"5s\"  # environment GAPLESS_LIVE_GRACE"),
        "{text}"
    );
    assert!(
        text.contains("token = \"(redacted)\"  # flag --token"),
        "{text}"
    );
    let shown = gapless(&["config", "show", "--json", "--upstream", "pds=http://a"]);
    assert_eq!(json(&shown)["upstream"]["value"][0]["url"], "http://a");
    let nothing = gapless(&["run"]);
    assert_eq!(code(&nothing), 2);
    assert!(
        err(&nothing).contains("--upstream") && err(&nothing).contains("--dids"),
        "{}",
        err(&nothing)
    );
    for command in ["run", "config show"] {
        let arguments: Vec<&str> = command.split(' ').chain(["--bind", "0.0.0.0:1"]).collect();
        let open = gapless(&arguments);
        assert_eq!(code(&open), 2);
        assert!(err(&open).contains("no token is set"), "{}", err(&open));
    }
}

#[test]
fn help_says_what_the_codes_mean() {
    let help = gapless("", &["status", "--help"]);
    assert_eq!(code(&help), 0);
    let text = out(&help);
    assert!(
        text.contains("dead letters") && text.contains("or an upstream that is"),
        "{text}"
    );
    let help = out(&gapless("", &["--help"]));
    assert!(help.contains("3 no server"), "{help}");
}
