//! Tests the HTTP interface over real sockets: access control, pages, errors, and requests that
//! are invalid or hostile.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::fake::{BROKEN, COMPLETE, REPOS, Served, TOKEN, UNKNOWN, WEB};
use gapless_mirror::api::Status;
use serde_json::{Value, json};

const WITHIN: Duration = Duration::from_secs(20);

struct Got {
    status: u16,
    head: String,
    body: String,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    fn name(&self) -> String {
        let body = self.json();
        assert!(
            body["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{body}"
        );
        body["error"].as_str().expect("a name").to_owned()
    }
}

/// Sends bytes as they are, and reads until the server closes.
fn raw(served: &Served, bytes: &[u8]) -> Got {
    let mut stream = TcpStream::connect(served.address).expect("it listens");
    stream.set_read_timeout(Some(WITHIN)).expect("set");
    // The server may close before it has read a body that is too long.
    let _ = stream.write_all(bytes);
    answer_on(stream)
}

fn answer_on(mut stream: TcpStream) -> Got {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    Got {
        status: status.unwrap_or(0),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        text.push_str("host: 127.0.0.1\r\n");
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    text.into_bytes()
}

fn get(served: &Served, path: &str) -> Got {
    raw(served, &request("GET", path, &[], ""))
}

fn post(served: &Served, path: &str, body: &Value) -> Got {
    raw(served, &request("POST", path, &[], &body.to_string()))
}

#[test]
fn who_may_ask_what() {
    let right = format!("Bearer {TOKEN}");
    let (here, there) = (("host", "localhost:7070"), ("host", "mirror.example.com"));
    let origin = ("origin", "https://evil.example");
    let token = ("authorization", right.as_str());
    let wrong = ("authorization", "Bearer a-long-secreT");
    let basic = ("authorization", "Basic a-long-secret");
    // (token configured, loopback, headers, GET, POST)
    type Row<'a> = (bool, bool, Vec<(&'a str, &'a str)>, u16, u16);
    let matrix: Vec<Row> = vec![
        (false, true, vec![here], 200, 200),
        (false, true, vec![there], 403, 403),
        (false, true, vec![here, origin], 200, 403),
        (false, true, vec![here, there], 403, 403),
        (true, true, vec![here], 200, 401),
        (true, true, vec![there], 403, 401),
        (true, true, vec![here, token], 200, 200),
        (true, true, vec![there, token, origin], 200, 200),
        (true, true, vec![here, wrong], 401, 401),
        (true, true, vec![here, basic], 200, 401),
        (true, false, vec![here], 401, 401),
        (true, false, vec![there, token], 200, 200),
        (true, false, vec![there, wrong], 401, 401),
        (false, false, vec![here], 401, 401),
        (false, false, vec![here, token], 401, 401),
    ];
    for (configured, loopback, headers, for_get, for_post) in matrix {
        let served = Served::start(configured, loopback);
        let what = format!("token {configured}, loopback {loopback}, {headers:?}");
        let got = raw(&served, &request("GET", "/v1/status", &headers, ""));
        assert_eq!(got.status, for_get, "GET, {what}: {}", got.body);
        let body = json!({ "url": "http://a.example" }).to_string();
        let path = "/v1/upstreams/confirm-loss";
        let got = raw(&served, &request("POST", path, &headers, &body));
        assert_eq!(got.status, for_post, "POST, {what}: {}", got.body);
        let orders = served.fake.orders();
        assert_eq!(
            orders.len(),
            usize::from(for_post == 200),
            "{what}: {orders:?}"
        );
        if for_post == 401 {
            assert!(got.head.contains("www-authenticate"), "{}", got.head);
        }
        // Even a path that does not exist is refused.
        let got = raw(&served, &request("DELETE", "/nowhere", &headers, ""));
        assert_eq!(got.status == 404, for_post == 200, "{what}: {}", got.status);
        let health = raw(&served, &request("GET", "/health", &headers, ""));
        assert_eq!(health.status, 200, "{what}");
    }
}

#[test]
fn a_request_that_names_another_machine_in_its_target_is_refused() {
    let served = Served::start(false, true);
    let got = get(&served, "http://evil.example/v1/status");
    assert_eq!(got.status, 403, "{}", got.body);
    let got = raw(&served, b"GET /v1/status HTTP/1.0\r\n\r\n");
    assert_eq!(got.status, 403, "no Host at all: {}", got.body);
}

#[test]
fn answers_have_the_promised_shapes() {
    let served = Served::start(false, true);
    let status = get(&served, "/v1/status").json();
    let expected = serde_json::to_value(Status::default()).expect("JSON");
    assert_eq!(status, expected);
    for field in [
        "repos",
        "log",
        "upstreams",
        "debt",
        "parked",
        "dead_letters",
        "consumers",
    ] {
        assert!(status.get(field).is_some(), "{field}");
    }
    let repo = get(&served, &format!("/v1/repos/{COMPLETE}")).json();
    assert_eq!(repo["complete"], true);
    assert_eq!(repo["host"], "pds.example.com");
    assert!(repo.get("debt").is_none() && repo.get("as_of").is_some_and(Value::is_null));
    let web = get(&served, "/v1/repos/did:web:localhost%253A8080");
    assert_eq!(web.json()["did"], WEB);
    let consumers = get(&served, "/v1/consumers").json();
    assert_eq!(
        (&consumers["head"], &consumers["first"]),
        (&json!(100), &json!(1))
    );
    assert_eq!(consumers["audit"][0]["what"], "removed at 7");
    let metrics = get(&served, "/metrics");
    assert!(metrics.head.contains("text/plain") && metrics.body.contains("gapless_repos 1"));
    assert_eq!(get(&served, "/ready").status, 200);
    served.fake.unready.store(true, Ordering::Relaxed);
    let ready = get(&served, "/ready");
    assert_eq!(
        (ready.status, ready.json()["reasons"][0].as_str()),
        (503, Some("an upstream is silent"))
    );
}

#[test]
fn pages_lead_to_every_entry_once() {
    let served = Served::start(false, true);
    for (path, list) in [("repos", "repos"), ("gaps", "gaps")] {
        let mut seen = Vec::new();
        let mut next = String::new();
        loop {
            let page = get(&served, &format!("/v1/{path}?limit=1000{next}")).json();
            let entries = page[list].as_array().expect("a list").clone();
            seen.extend(
                entries
                    .iter()
                    .map(|entry| entry["did"].as_str().expect("a DID").to_owned()),
            );
            match page["cursor"].as_u64() {
                Some(cursor) => next = format!("&cursor={cursor}"),
                None => break,
            }
        }
        assert_eq!(seen.len() as u64, REPOS);
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len() as u64, REPOS, "none twice");
    }
    let page = get(&served, "/v1/repos").json();
    assert_eq!(page["repos"].as_array().map(Vec::len), Some(100));
    let tracked = get(&served, "/v1/tracked").json();
    assert_eq!(tracked["cursor"], COMPLETE);
    let tracked = get(&served, &format!("/v1/tracked?cursor={COMPLETE}")).json();
    assert_eq!(tracked["tracked"], json!([WEB]));
}

#[test]
fn orders_reach_the_mirror_in_one_spelling() {
    let served = Served::start(false, true);
    let new = json!({ "kind": "pds", "url": "wss://PDS.example.com:443/", "host": "A.example" });
    assert_eq!(post(&served, "/v1/upstreams", &new).status, 200);
    let gone = "/v1/upstreams?url=https%3A%2F%2Fpds.example.com";
    assert_eq!(raw(&served, &request("DELETE", gone, &[], "")).status, 200);
    assert_eq!(
        post(&served, "/v1/tracked", &json!({ "dids": [COMPLETE] })).status,
        200
    );
    let gone = json!({ "dids": [WEB] }).to_string();
    assert_eq!(
        raw(&served, &request("DELETE", "/v1/tracked", &[], &gone)).status,
        200
    );
    let path = format!("/v1/repos/{BROKEN}/resync");
    assert_eq!(raw(&served, &request("POST", &path, &[], "")).status, 200);
    assert_eq!(
        post(&served, &path, &json!({ "accept_rollback": true })).status,
        200
    );
    let verified = raw(
        &served,
        &request("POST", &format!("/v1/repos/{BROKEN}/verify"), &[], ""),
    );
    assert_eq!(verified.json()["verified"], false);
    let expected = [
        "add pds https://pds.example.com Some(\"a.example\")".to_owned(),
        "remove https://pds.example.com".to_owned(),
        format!("track [{COMPLETE}]"),
        format!("untrack [{WEB}]"),
        format!("resync {BROKEN} false"),
        format!("resync {BROKEN} true"),
    ];
    assert_eq!(served.fake.orders(), expected);
}

#[test]
fn every_error_is_json_with_its_status() {
    let served = Served::start(false, true);
    let too_long = "x".repeat((1 << 20) + 1);
    let deep = "[".repeat(500_000);
    let unknown = format!("/v1/repos/{UNKNOWN}");
    let cases: Vec<(&str, &str, &str, u16, &str)> = vec![
        ("GET", "/", "", 404, "NotFound"),
        ("GET", "/v1/../etc", "", 404, "NotFound"),
        ("PUT", "/v1/status", "", 405, "MethodNotAllowed"),
        ("POST", "/v1/status", "", 405, "MethodNotAllowed"),
        ("GET", &unknown, "", 404, "NotFound"),
        ("GET", "/v1/repos/alice", "", 400, "InvalidRequest"),
        ("POST", "/v1/dead/x/resolve", "", 400, "InvalidRequest"),
        ("POST", "/v1/dead/7/resolve", "", 404, "NotFound"),
        ("GET", "/v1/repos/%ff%fe", "", 400, "InvalidRequest"),
        ("GET", "/v1/repos?limit=0", "", 400, "InvalidRequest"),
        ("GET", "/v1/repos?limit=1001", "", 400, "InvalidRequest"),
        ("GET", "/v1/gaps?limit=-1", "", 400, "InvalidRequest"),
        ("GET", "/v1/gaps?cursor=abc", "", 400, "InvalidRequest"),
        ("GET", "/v1/hosts?failing=yes", "", 400, "InvalidRequest"),
        ("DELETE", "/v1/consumers", "", 400, "InvalidRequest"),
        (
            "DELETE",
            "/v1/consumers?name=a&id=x",
            "",
            400,
            "InvalidRequest",
        ),
        (
            "DELETE",
            "/v1/consumers?name=a&id=-1",
            "",
            400,
            "InvalidRequest",
        ),
        ("DELETE", "/v1/consumers?name=a", "", 404, "NotFound"),
        (
            "GET",
            "/v1/repos?cursor=99999999999999999999",
            "",
            400,
            "InvalidRequest",
        ),
        (
            "GET",
            "/v1/tracked?cursor=nobody",
            "",
            400,
            "InvalidRequest",
        ),
        ("POST", "/v1/tracked", "", 400, "InvalidRequest"),
        (
            "POST",
            "/v1/tracked",
            "{\"dids\":[]}",
            400,
            "InvalidRequest",
        ),
        (
            "POST",
            "/v1/tracked",
            "{\"dids\":[\"did:plc:\"]}",
            400,
            "InvalidRequest",
        ),
        (
            "POST",
            "/v1/tracked",
            "{\"dids\":[7]}",
            400,
            "InvalidRequest",
        ),
        ("POST", "/v1/tracked", &deep, 400, "InvalidRequest"),
        ("POST", "/v1/tracked", "\u{0}\u{1}", 400, "InvalidRequest"),
        ("POST", "/v1/tracked", &too_long, 413, "PayloadTooLarge"),
        ("DELETE", "/v1/upstreams", "", 400, "InvalidRequest"),
        (
            "DELETE",
            "/v1/upstreams?url=file:///etc",
            "",
            400,
            "InvalidRequest",
        ),
        (
            "POST",
            "/v1/upstreams",
            "{\"kind\":\"pds\"}",
            400,
            "InvalidRequest",
        ),
        (
            "POST",
            "/v1/upstreams",
            "{\"kind\":\"jet\",\"url\":\"http://a\"}",
            400,
            "InvalidRequest",
        ),
        (
            "POST",
            "/v1/upstreams",
            "{\"kind\":\"pds\",\"url\":\"http://a/b\"}",
            400,
            "InvalidRequest",
        ),
        (
            "POST",
            "/v1/upstreams",
            "{\"kind\":\"relay\",\"url\":\"http://a\",\"host\":\"b\"}",
            400,
            "InvalidRequest",
        ),
        (
            "POST",
            "/v1/upstreams",
            "{\"kind\":\"pds\",\"url\":\"http://twice.example\"}",
            409,
            "Conflict",
        ),
    ];
    for (method, path, body, status, name) in cases {
        let got = raw(&served, &request(method, path, &[], body));
        let what = format!("{method} {path}: {} {}", got.status, got.body);
        assert_eq!(got.status, status, "{what}");
        assert_eq!(got.name(), name, "{what}");
    }
    assert_eq!(
        served.fake.orders(),
        [""; 0],
        "nothing wrong reaches the mirror"
    );
    served.fake.failing.store(true, Ordering::Relaxed);
    let got = get(&served, "/v1/status");
    assert_eq!((got.status, got.name().as_str()), (503, "Unavailable"));
}

#[test]
fn a_bug_in_an_answer_is_an_error_and_not_the_end() {
    let served = Served::start(false, true);
    served.fake.panicking.store(true, Ordering::Relaxed);
    let got = get(&served, "/v1/status");
    assert_eq!((got.status, got.name().as_str()), (500, "InternalError"));
    assert_eq!(get(&served, "/v1/repos").status, 200);
}

#[test]
fn bytes_that_are_no_request_do_no_harm() {
    let served = Served::start(false, true);
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET /v1/status HTTP/9.9\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"GET  HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /v1/tracked HTTP/1.1\r\nhost: localhost\r\ncontent-length: -5\r\n\r\n",
        b"GET /v1/status HTTP/1.1\r\nhost: \xff\xfe\r\nconnection: close\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(served.address).expect("it listens");
        stream.set_read_timeout(Some(WITHIN)).expect("set");
        // Nothing more comes: a server that waits for more gives up. One that has
        // closed already is as well.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let got = answer_on(stream);
        assert!(got.status == 0 || got.status >= 400, "{}", got.status);
    }
    assert_eq!(get(&served, "/v1/status").status, 200);
}

#[test]
fn verifying_everything_streams_and_ends_with_the_report() {
    let served = Served::start(false, true);
    let got = raw(&served, &request("POST", "/v1/verify", &[], ""));
    assert!(got.head.contains("application/x-ndjson"), "{}", got.head);
    let lines: Vec<Value> = got
        .body
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(Value::is_object)
        .collect();
    assert_eq!(
        lines[0]["progress"],
        json!({ "done": 1, "of": 3, "mismatches": 0 })
    );
    let last = lines.last().expect("a report");
    assert_eq!(last["report"]["mismatches"], 1);
    served.fake.failing.store(true, Ordering::Relaxed);
    let got = raw(&served, &request("POST", "/v1/verify", &[], ""));
    assert!(
        got.body.contains("\"failed\":{\"error\":\"InternalError\""),
        "{}",
        got.body
    );
}

/// Starts a verification without an end; returns once it is under way.
fn endless(served: &Served) -> BufReader<TcpStream> {
    served.fake.endless.store(true, Ordering::Relaxed);
    let mut stream = TcpStream::connect(served.address).expect("it listens");
    stream.set_read_timeout(Some(WITHIN)).expect("set");
    stream
        .write_all(&request("POST", "/v1/verify", &[], ""))
        .expect("sent");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !line.contains("progress") {
        line.clear();
        assert!(
            reader.read_line(&mut line).expect("an answer") > 0,
            "ended early"
        );
    }
    reader
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + WITHIN;
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::yield_now();
    }
}

#[test]
fn one_verification_at_a_time_and_it_ends_with_its_client() {
    let served = Served::start(false, true);
    let reader = endless(&served);
    let second = raw(&served, &request("POST", "/v1/verify", &[], ""));
    assert_eq!((second.status, second.name().as_str()), (409, "Conflict"));
    drop(reader);
    wait_until("the end of what nobody reads", || {
        served.fake.stopped.load(Ordering::SeqCst)
    });
}

#[test]
fn a_server_that_stops_ends_a_verification() {
    let mut served = Served::start(false, true);
    let mut reader = endless(&served);
    drop(served.stop.take());
    // Without a reader the stream stays full.
    let mut rest = String::new();
    let _ = reader.read_to_string(&mut rest);
    assert!(rest.contains("\"stopped\":true"), "the report still comes");
    let thread = served.done.take().expect("running");
    wait_until("the end of the server", || thread.is_finished());
}

/// Connections that never finish a request must not keep other clients out.
#[test]
fn silent_connections_keep_no_client_out() {
    let served = Served::start(true, false);
    let silent: Vec<TcpStream> = (0..256)
        .map(|_| {
            let mut stream = TcpStream::connect(served.address).expect("it listens");
            stream.write_all(b"GET /health HTTP/1.1\r\n").expect("sent");
            stream
        })
        .collect();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(40) {
        let mut stream = TcpStream::connect(served.address).expect("it listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("set");
        stream
            .write_all(&request("GET", "/health", &[], ""))
            .expect("sent");
        if answer_on(stream).status == 200 {
            return;
        }
    }
    panic!("{} silent connections keep everybody out", silent.len());
}

/// Opens as many connections as there are places. Each is answered and then sends `then`. Other
/// clients must still be answered.
fn answered_and_kept(then: &[u8]) {
    let served = Served::start(true, false);
    let kept: Vec<TcpStream> = (0..256)
        .map(|_| {
            let mut stream = TcpStream::connect(served.address).expect("it listens");
            let asked = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
            stream.write_all(asked).expect("sent");
            let mut first = [0; 12];
            stream.read_exact(&mut first).expect("an answer");
            assert_eq!(&first, b"HTTP/1.1 200");
            stream.write_all(then).expect("sent");
            stream
        })
        .collect();
    let mut stream = TcpStream::connect(served.address).expect("it listens");
    let patience = Some(Duration::from_secs(40));
    stream.set_read_timeout(patience).expect("set");
    let asked = request("GET", "/health", &[], "");
    stream.write_all(&asked).expect("sent");
    assert_eq!(answer_on(stream).status, 200, "{} are kept", kept.len());
}

#[test]
fn connections_that_are_kept_alive_keep_no_client_out() {
    answered_and_kept(b"");
}

#[test]
fn connections_that_send_a_second_request_slowly_keep_no_client_out() {
    answered_and_kept(b"G");
}
