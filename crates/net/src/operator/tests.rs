//! Tests the operator's HTTP client against a server that answers late, in pieces, or not at
//! all.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

use super::*;

const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
const SHORT_SILENCE: Duration = Duration::from_millis(300);

/// A client of a server that answers each path after a delay, or never, with this text.
fn client_of(delay: fn(&str) -> Option<Duration>, response: &'static str) -> OperatorClient {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                let read = stream.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or("").to_owned();
                match delay(&path) {
                    Some(after) => {
                        std::thread::sleep(after);
                        let _ = stream.write_all(response.as_bytes());
                    }
                    // Until the client has closed the connection.
                    None => while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {},
                }
            });
        }
    });
    let base = Url::parse(&format!("http://{address}")).expect("an address");
    let client = OperatorClient::new(base, None).expect("a client");
    OperatorClient {
        silence: SHORT_SILENCE,
        ..client
    }
}

async fn status_of(client: &OperatorClient) -> Result<String, OperatorError> {
    let url = client.url(&["v1", "status"], &[]);
    client.send(Method::GET, url, None).await?.text().await
}

#[tokio::test]
async fn a_port_that_says_nothing_is_given_up() {
    let client = client_of(|_| None, FINE);
    let began = Instant::now();
    assert_eq!(status_of(&client).await, Err(OperatorError::Silent));
    assert!(
        began.elapsed() < CONNECT_TIMEOUT * 2,
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn long_work_is_waited_for_while_the_mirror_is_alive() {
    let long = Duration::from_secs(1);
    assert!(long > SHORT_SILENCE);
    let client = client_of(
        |path| match path {
            "/health" => Some(Duration::ZERO),
            _ => Some(Duration::from_secs(1)),
        },
        FINE,
    );
    assert_eq!(status_of(&client).await.as_deref(), Ok("{}"));
}

#[tokio::test]
async fn lines_come_one_by_one_and_a_broken_last_line_is_dropped() {
    let response = "HTTP/1.1 200 OK\r\nconnection: close\r\nx-a: b\r\n\r\none\n\ntwo\nthr";
    let client = client_of(|_| Some(Duration::ZERO), response);
    let url = client.url(&["v1", "verify"], &[]);
    let mut response = client.send(Method::POST, url, None).await.expect("a head");
    assert_eq!(response.header("x-a"), Some("b"));
    let mut lines = Vec::new();
    while let Some(line) = response.next_line().await.expect("a line or the end") {
        lines.push(String::from_utf8(line).expect("text"));
    }
    assert_eq!(lines, ["one", "", "two"]);
}

#[tokio::test]
async fn a_status_that_is_not_a_success_is_an_error_with_its_text() {
    let response = "HTTP/1.1 404 Not Found\r\ncontent-length: 5\r\nconnection: close\r\n\r\nnone\n";
    let client = client_of(|_| Some(Duration::ZERO), response);
    let expected = OperatorError::Status {
        status: 404,
        text: "none".to_owned(),
    };
    assert_eq!(status_of(&client).await, Err(expected));
}

#[tokio::test]
async fn a_port_without_a_listener_is_not_connected() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound");
    drop(free);
    let base = Url::parse(&format!("http://{address}")).expect("an address");
    let client = OperatorClient::new(base, None).expect("a client");
    let error = status_of(&client).await.expect_err("no listener");
    assert!(matches!(error, OperatorError::NotConnected(_)), "{error}");
}
