//! HTTP requests to a server on this machine that may be killed in the middle of its answer.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends a request. Returns the status and the body; `None` if the response is not complete.
pub async fn ask(port: u16, method: &str, path: &str) -> Option<(u16, Vec<u8>)> {
    let (status, body) = begin(port, method, path).await?;
    Some((status, body?))
}

/// Sends a request like [`ask`], but also returns the status of a response whose body is not
/// complete, then with `None` as the body.
pub async fn begin(port: u16, method: &str, path: &str) -> Option<(u16, Option<Vec<u8>>)> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    // The bytes before an error are still evaluated.
    let _ = socket.read_to_end(&mut answer).await;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = answer.split_off(end + 4);
    let header = |wanted: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.trim().to_owned())
    };
    let body = if header("transfer-encoding").is_some_and(|how| how == "chunked") {
        from_chunks(&body)
    } else {
        let length: usize = header("content-length")?.parse().ok()?;
        (length == body.len()).then_some(body)
    };
    Some((status, body))
}

/// Joins the chunks of a body; `None` if the last chunk is missing.
pub fn from_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n")?;
        let length = std::str::from_utf8(&rest[..line]).ok()?;
        let length = usize::from_str_radix(length, 16).ok()?;
        rest = rest.get(line + 2..)?;
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..length)?);
        rest = rest.get(length + 2..)?;
    }
}
