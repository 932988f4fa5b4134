//! Tests which server a command talks to: one that wants a token, an address without a server,
//! and a server that is not Gapless.

use std::process::Command;

use crate::commands::status::status;
use crate::commands::{code, ends, err, json};
use crate::fake::{Served, TOKEN};

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
fn an_address_without_a_server_is_reported_with_how_to_start_one() {
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
fn a_server_that_is_not_gapless_is_reported_as_such() {
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
        assert!(
            text.contains("Gapless mirror of this version") || text.contains("did not arrive"),
            "{answer}: {text}"
        );
        assert!(text.contains(&url), "{answer}: {text}");
    }
    thread.join().expect("no panic");
}
