//! Tests the control of the test network over HTTP, and its program.

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use common::*;
use gapless_testnet::Config;
use serde_json::{Value as Json, json};

#[tokio::test]
async fn everything_can_be_done_over_http() {
    let testnet = start(Config {
        repos: 2,
        pds: 2,
        records: 3,
        ..Config::default()
    })
    .await;
    let control = testnet.urls().control.clone();
    let act =
        async |name: &str, body: Json| post_json(&format!("{control}/_control/{name}"), body).await;
    let (status, made) = act(
        "create-account",
        json!({ "host": 1, "curve": "p256", "records": 2 }),
    )
    .await;
    assert_eq!(status, 200, "{made}");
    let did = made["did"].as_str().unwrap().to_owned();
    let path = "com.example.note/one";
    let (status, written) = act(
        "write",
        json!({ "did": did, "writes": [
            { "action": "create", "path": path, "record": { "$type": "com.example.note", "n": 1 } },
        ] }),
    )
    .await;
    assert_eq!(status, 200, "{written}");

    let truth = async |path: &str| get_json(&format!("{control}/_truth/{path}")).await;
    let (_, repo) = truth(&format!("repo/{did}")).await;
    assert_eq!(repo["rev"], written["rev"]);
    assert_eq!(repo["commit"], written["commit"]);
    assert_eq!(
        (&repo["host"], &repo["status"]),
        (&json!(1), &json!("active"))
    );
    let commits = repo["commits"].as_array().unwrap();
    assert_eq!(commits.last().unwrap()["ops"][0]["path"], path);
    let (_, now) = truth(&format!("records/{did}")).await;
    let (_, first) = truth(&format!(
        "records/{did}?rev={}",
        commits[0]["rev"].as_str().unwrap()
    ))
    .await;
    assert_eq!(now.as_object().unwrap().len(), 3);
    assert_eq!(first, json!({}));
    assert_eq!(
        truth(&format!("records/{did}?rev=2222222222222")).await.0,
        404
    );
    assert_eq!(truth("repo/did:plc:aaaaaaaaaaaaaaaaaaaaaaaa").await.0, 404);
    assert_eq!(truth("dids").await.1["dids"].as_array().unwrap().len(), 3);

    // Every fault is an action, and a refused one says why.
    let (_, set) = act("list-empty", json!({ "host": "pds1", "count": 1 })).await;
    assert!(set["id"].is_u64());
    let (_, moved) = act("migrate", json!({ "did": did, "to": 0 })).await;
    assert_eq!(moved["fired"], 1);
    let (_, faults) = get_json(&format!("{control}/_control/faults")).await;
    assert_eq!(faults["fired"]["migrate"], 1);
    assert_eq!(faults["fired"]["list-empty"], 0);
    assert_eq!(faults["active"][0]["spec"]["host"], "pds1");
    let (_, cleared) = act("clear", json!({ "id": set["id"] })).await;
    assert_eq!(cleared["cleared"], true);
    let (_, stirred) = act("stir", json!({ "count": 5 })).await;
    assert_eq!(stirred["commits"], 5);
    for (name, body) in [
        ("migrate", json!({ "did": did, "to": 9 })),
        ("fault", json!({ "fault": "nonsense" })),
        ("write", json!({ "did": "alice" })),
        (
            "write",
            json!({ "did": did, "writes": [{ "action": "delete", "path": "a.b.c/no" }] }),
        ),
        ("rate", json!({ "commits_per_second": -1 })),
        ("rate", json!({ "commits_per_second": 1e17 })),
        ("seq-restart", json!({ "next": u64::MAX })),
        ("huge-repo", json!({ "records": u64::MAX })),
        ("deep-keys", json!({ "height": 99 })),
        ("create-account", json!({ "records": u64::MAX })),
        ("create-account", json!({ "host": 7 })),
        ("create-account", json!({ "curve": "rsa" })),
    ] {
        let (status, json) = act(name, body).await;
        assert_eq!(
            (status, &json["error"]),
            (400, &json!("InvalidRequest")),
            "{name}"
        );
    }
    assert_eq!(act("nonsense", json!({})).await.0, 404);
    let (_, status) = get_json(&format!("{control}/_control/status")).await;
    assert_eq!(status["repos"], 3);
}

#[tokio::test]
async fn the_network_answers_while_it_is_stirred() {
    let testnet = start(Config::default()).await;
    let (before, _) = testnet.counts();
    std::thread::scope(|scope| {
        let stirring = scope.spawn(|| testnet.stir(500));
        let seen = loop {
            let (commits, _) = testnet.counts();
            if commits > before {
                break commits;
            }
        };
        assert!(seen < before + 500, "only after the last");
        assert_eq!(stirring.join().unwrap(), 500);
    });
}

/// Kills the program when the test is over, however it ends.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gapless-testnet"));
    command
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[tokio::test]
async fn the_program_serves_and_says_where() {
    let arguments = [
        "--repos",
        "20",
        "--pds",
        "3",
        "--records",
        "10",
        "--json",
        "--rate",
        "20",
        "--fault",
        "list-empty=host:pds2",
    ];
    let mut child = Program(program(&arguments).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let first: Json = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let urls = &first["urls"];
    assert_eq!(urls["pds"].as_array().unwrap().len(), 3);
    assert!(urls["relay"].is_string() && urls["jetstream"].is_string());
    let list = |at: usize| xrpc(urls["pds"][at].as_str().unwrap(), "listRepos", "");
    assert_eq!(
        get_json(&list(0)).await.1["repos"]
            .as_array()
            .unwrap()
            .len(),
        7
    );
    assert_eq!(get_json(&list(2)).await.1["repos"], json!([]));
    // With a rate there is a line of progress now and then.
    let progress: Json = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(progress["repos"], 20);
    assert!(
        progress["commits_per_s"].as_f64().unwrap() > 5.0,
        "{progress}"
    );
}

#[test]
fn the_program_ends_well_when_told_to() {
    for signal in ["-INT", "-TERM"] {
        let mut child = Program(program(&["--repos", "3", "--json"]).spawn().unwrap());
        let mut output = BufReader::new(child.0.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        let id = child.0.id().to_string();
        Command::new("kill").args([signal, &id]).status().unwrap();
        assert_eq!(child.0.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn bad_arguments_are_refused_with_a_reason() {
    for (arguments, says) in [
        (&["--pds", "0"][..], "1 to 200 PDSs"),
        (&["--rate", "-1"], "unexpected argument"),
        (&["--rate=-1"], "zero or more"),
        (&["--fault", "drap"], "unknown variant `drap`"),
        (&["--fault", "drop=host:pds9"], "no such host"),
        (&["--port", "65535"], "end above 65535"),
        (&["--load", "0"], "1 to 50000000 commits"),
        (
            &["--load", "1", "--repos", "1", "--port", "65535"],
            "two ports from 65535 on",
        ),
        (&["--rate", "1e17"], "at most 100000"),
        (&["--fault", "drop=host:relay"], "drop cannot fire on relay"),
        (
            &["--fault", "seq-restart=next:9007199254740992"],
            "seq-restart: next must be 1 to",
        ),
    ] {
        let output = program(arguments).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(says), "{arguments:?}: {error}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = program(&["--port", &port]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains(&format!("cannot listen on port {port}")),
        "{error}"
    );
    let output = program(&["--list-faults"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("car-minus-leaf") && text.contains("--fault drop="));
}

#[tokio::test]
async fn the_program_sends_prepared_load() {
    let arguments = ["--load", "50", "--repos", "5", "--records", "10"];
    let mut child = Program(program(&arguments).spawn().unwrap());
    let mut said = String::new();
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    while !said.contains("Ctrl-C") {
        let mut line = String::new();
        assert!(output.read_line(&mut line).unwrap() > 0, "{said}");
        said.push_str(&line);
    }
    let pds = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("pds0"));
    let pds = pds.unwrap().trim();
    let mut consumer = Consumer::connect(pds, Some(0)).await;
    let (_, released) = post_json(&format!("{pds}/_load/release"), json!({})).await;
    assert_eq!(released["of"], 50);
    assert_eq!(consumer.until(50).await.len(), 50);
    let _ = child.0.kill();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
}
