//! The server side of a WebSocket connection, without a library.
//!
//! A library answers pings by itself and hides the bytes. The test network must be able
//! to refuse pongs, to go silent during a handshake and to send prepared bytes. There are
//! no extensions and no fragments (firehose clients send none). A client that violates
//! the protocol is disconnected.

use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use data_encoding::BASE64;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use sha1::{Digest, Sha1};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

/// The longest message from a client: options of a Jetstream consumer.
const CLIENT_MESSAGE_BYTES: usize = 10_000_000;
/// The number of messages from a client that may wait to be handled.
const CLIENT_MESSAGES: usize = 64;
const PROTOCOL_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The close code for a client that broke a rule.
pub(crate) const CLOSE_POLICY: u16 = 1008;
pub(crate) const CLOSE_NORMAL: u16 = 1000;

/// A message from a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    Ping(Vec<u8>),
    Message(Vec<u8>),
    Close,
}

/// An open connection: a writer for bytes, and a receiver of messages.
pub(crate) struct Socket {
    pub out: WriteHalf<TokioIo<Upgraded>>,
    pub incoming: mpsc::Receiver<Incoming>,
}

/// An accepted handshake: the response, and the connection to come.
pub(crate) struct Handshake {
    pub response: Response<Body>,
    upgrade: OnUpgrade,
}

/// Accepts a handshake, or returns the response that refuses it.
pub(crate) fn accept(mut request: Request<Body>) -> Result<Handshake, Box<Response<Body>>> {
    let wants = |name, value: &str| has_token(request.headers(), name, value);
    let key = request.headers().get(header::SEC_WEBSOCKET_KEY).cloned();
    let (Some(key), true, true) = (
        key,
        wants(header::CONNECTION, "upgrade"),
        wants(header::UPGRADE, "websocket"),
    ) else {
        let mut refusal = Response::new(Body::from("this is a WebSocket endpoint\n"));
        *refusal.status_mut() = StatusCode::UPGRADE_REQUIRED;
        return Err(Box::new(refusal));
    };
    let upgrade = hyper::upgrade::on(&mut request);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, "Upgrade".parse().unwrap_or(key.clone()));
    headers.insert(header::UPGRADE, "websocket".parse().unwrap_or(key.clone()));
    if let Ok(accepted) = accept_key(key.as_bytes()).parse() {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
    }
    Ok(Handshake { response, upgrade })
}

fn accept_key(key: &[u8]) -> String {
    let digest = Sha1::new()
        .chain_update(key)
        .chain_update(PROTOCOL_GUID)
        .finalize();
    BASE64.encode(&digest)
}

fn has_token(headers: &HeaderMap, name: header::HeaderName, token: &str) -> bool {
    let values = headers.get_all(name);
    let mut texts = values.iter().filter_map(|value| value.to_str().ok());
    texts.any(|text| {
        text.split(',')
            .any(|part| part.trim().eq_ignore_ascii_case(token))
    })
}

impl Handshake {
    /// Responds to the client, and runs `serve` with the open socket in a task.
    pub(crate) fn run<F>(self, serve: impl FnOnce(Socket) -> F + Send + 'static) -> Response<Body>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let upgrade = self.upgrade;
        tokio::spawn(async move {
            // A client that leaves during the handshake is not an error.
            if let Ok(upgraded) = upgrade.await {
                let (read, out) = tokio::io::split(TokioIo::new(upgraded));
                let (sender, incoming) = mpsc::channel(CLIENT_MESSAGES);
                let reader = tokio::spawn(read_messages(read, sender));
                serve(Socket { out, incoming }).await;
                reader.abort();
            }
        });
        self.response
    }
}

impl Socket {
    pub(crate) async fn send(&mut self, opcode: u8, payload: &[u8]) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(payload.len() + 10);
        write_frame(&mut bytes, opcode, payload);
        self.out.write_all(&bytes).await
    }

    pub(crate) async fn pong(&mut self, payload: &[u8]) -> std::io::Result<()> {
        self.send(PONG, payload).await
    }

    pub(crate) async fn close(&mut self, code: u16, reason: &str) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        write_close(&mut bytes, code, reason);
        self.out.write_all(&bytes).await?;
        self.out.shutdown().await
    }
}

/// Appends one whole frame, unmasked, as servers send it.
pub(crate) fn write_frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    out.push(0x80 | opcode);
    match payload.len() {
        len @ 0..126 => out.push(len as u8),
        len @ 126..0x1_0000 => {
            out.push(126);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
        len => {
            out.push(127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

pub(crate) fn write_close(out: &mut Vec<u8>, code: u16, reason: &str) {
    let mut payload = code.to_be_bytes().to_vec();
    payload.extend_from_slice(reason.as_bytes());
    write_frame(out, CLOSE, &payload);
}

async fn read_messages(mut read: ReadHalf<TokioIo<Upgraded>>, sender: mpsc::Sender<Incoming>) {
    while let Ok(Some((opcode, payload))) = read_frame(&mut read).await {
        let message = match opcode {
            PING => Incoming::Ping(payload),
            PONG => continue,
            CLOSE => Incoming::Close,
            _ => Incoming::Message(payload),
        };
        if sender.send(message).await.is_err() {
            return;
        }
    }
    // The connection ended without a close frame: to the server it is closed.
    let _ = sender.send(Incoming::Close).await;
}

/// Reads one frame of a client; `None` if the frame violates the protocol.
async fn read_frame(
    read: &mut (impl AsyncReadExt + Unpin),
) -> std::io::Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 2];
    read.read_exact(&mut head).await?;
    let [first, second] = head;
    let (is_final, opcode) = (first & 0x80 != 0, first & 0x0f);
    if !is_final || second & 0x80 == 0 {
        return Ok(None);
    }
    let len = match second & 0x7f {
        126 => u64::from(read.read_u16().await?),
        127 => read.read_u64().await?,
        short => u64::from(short),
    };
    if len > CLIENT_MESSAGE_BYTES as u64 {
        return Ok(None);
    }
    let mut mask = [0; 4];
    read.read_exact(&mut mask).await?;
    let mut payload = vec![0; len as usize];
    read.read_exact(&mut payload).await?;
    for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
    Ok(Some((opcode, payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_key_is_the_one_of_the_standard() {
        // The example of RFC 6455, section 1.3.
        let key = accept_key(b"dGhlIHNhbXBsZSBub25jZQ==");
        assert_eq!(key, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[tokio::test]
    async fn client_frames_are_unmasked_and_bounded() {
        let ping = [0x89, 0x82, 1, 2, 3, 4, b'h' ^ 1, b'i' ^ 2];
        let frame = read_frame(&mut &ping[..]).await.unwrap();
        assert_eq!(frame, Some((PING, b"hi".to_vec())));
        let unmasked = [0x89, 0x02, b'h', b'i'];
        assert_eq!(read_frame(&mut &unmasked[..]).await.unwrap(), None);
        let huge = [0x82, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(read_frame(&mut &huge[..]).await.unwrap(), None);
        assert!(read_frame(&mut &ping[..5]).await.is_err());
    }
}
