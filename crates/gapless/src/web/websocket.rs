//! The server side of a WebSocket. It is our own, so that the bytes of many messages leave
//! in one write and the pace of the reader can be measured.
//!
//! There are no extensions. Of the frames that a reader sends, pings are answered and a
//! close frame ends the connection; other messages are ignored. A close frame is answered
//! with its own code, and a breach of the protocol with the code that names it (RFC 6455,
//! 5.5.1 and 7.4). Every wait for a reader has a time limit.

mod inbound;

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use data_encoding::BASE64;
use hyper::upgrade::{OnUpgrade, Parts};
use hyper_util::rt::TokioIo;
use sha1::{Digest, Sha1};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::listener::Connection;
use super::response::HttpError;
use inbound::{InboundError, InboundFrame, InboundFrames};

pub(crate) use inbound::CloseFrame;

/// Messages of a reader that wait to be handled.
const BUFFERED_MESSAGES: usize = 8;
const PROTOCOL_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const VERSION: &str = "13";

pub(crate) const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// The server is stopping.
pub(crate) const CLOSE_AWAY: u16 = 1001;
/// The reader broke a rule of the method, or is cut.
pub(crate) const CLOSE_POLICY: u16 = 1008;
/// A fault of the server.
pub(crate) const CLOSE_FAULT: u16 = 1011;

/// A message of a reader that needs an answer. When the channel ends, the reader is gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReaderMessage {
    Ping(Vec<u8>),
    /// The reader closes the connection; later bytes are ignored.
    Close(CloseFrame),
}

/// A handshake that may be accepted.
pub(crate) struct Handshake {
    key: HeaderValue,
    upgrade: OnUpgrade,
}

impl Handshake {
    /// Checks the request; the error names what is wrong.
    pub(crate) fn read(request: &mut Request) -> Result<Handshake, HttpError> {
        let headers = request.headers();
        let key = headers.get(header::SEC_WEBSOCKET_KEY).cloned();
        let wants = has_token(headers, header::CONNECTION, "upgrade")
            && has_token(headers, header::UPGRADE, "websocket");
        let (Some(key), true) = (key, wants) else {
            let words = "this is a WebSocket: ask for it with `Upgrade: websocket`";
            let status = StatusCode::UPGRADE_REQUIRED;
            return Err(HttpError::new(status, "InvalidRequest", words));
        };
        if !has_token(headers, header::SEC_WEBSOCKET_VERSION, VERSION) {
            let words = "only version 13 of the WebSocket protocol is supported";
            let status = StatusCode::UPGRADE_REQUIRED;
            return Err(HttpError::new(status, "InvalidRequest", words));
        }
        let upgrade = hyper::upgrade::on(request);
        Ok(Handshake { key, upgrade })
    }

    /// Returns the response, and the socket that opens after it.
    pub(crate) fn accept(self) -> (Response, PendingSocket) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        let put = [
            (header::CONNECTION, HeaderValue::from_static("Upgrade")),
            (header::UPGRADE, HeaderValue::from_static("websocket")),
        ];
        headers.extend(put);
        // Base64 is always a value of a header.
        if let Ok(accepted) = accept_key(self.key.as_bytes()).parse() {
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
        }
        (response, PendingSocket(self.upgrade))
    }
}

/// A socket that opens when the response has been sent.
pub(crate) struct PendingSocket(OnUpgrade);

impl PendingSocket {
    /// Opens the socket; `None` if the reader disconnected meanwhile.
    pub(crate) async fn open(self) -> Option<ServerSocket> {
        let upgraded = self.0.await.ok()?;
        let Parts { io, read_buf, .. } = upgraded.downcast::<TokioIo<Connection>>().ok()?;
        let (read, out) = tokio::io::split(io.into_inner().without_idle_limit());
        // hyper may have read the first frames together with the request.
        let read = Cursor::new(read_buf).chain(read);
        let (sender, messages) = mpsc::channel(BUFFERED_MESSAGES);
        let began = Instant::now();
        let heard = Arc::new(AtomicU64::new(0));
        let reader = tokio::spawn(read_messages(
            BufReader::new(read),
            sender,
            began,
            heard.clone(),
        ));
        Some(ServerSocket {
            out,
            messages,
            began,
            heard,
            reader,
        })
    }
}

/// An open connection: bytes go out, messages come in.
pub(crate) struct ServerSocket {
    out: WriteHalf<Connection>,
    pub(crate) messages: mpsc::Receiver<ReaderMessage>,
    began: Instant,
    /// When the last frame was received, in milliseconds after `began`.
    heard: Arc<AtomicU64>,
    reader: tokio::task::JoinHandle<()>,
}

impl Drop for ServerSocket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl ServerSocket {
    /// When the last frame of the reader was received.
    pub(crate) fn last_heard(&self) -> Instant {
        self.began + Duration::from_millis(self.heard.load(Ordering::Relaxed))
    }

    /// Writes some of the bytes within a time limit, unless a message arrives first.
    pub(crate) async fn write_or_receive(&mut self, bytes: &[u8], within: Duration) -> SocketEvent {
        tokio::select! {
            wrote = timeout(within, self.out.write(bytes)) => match wrote {
                Err(_) => SocketEvent::Stalled,
                Ok(Ok(count)) if count > 0 => SocketEvent::Wrote(count),
                Ok(_) => SocketEvent::Gone,
            },
            message = self.messages.recv() => message.map_or(SocketEvent::Gone, SocketEvent::Received),
        }
    }

    pub(crate) async fn ping(&mut self, within: Duration) -> bool {
        self.control(PING, &[], within).await
    }

    pub(crate) async fn pong(&mut self, payload: &[u8], within: Duration) -> bool {
        self.control(PONG, payload, within).await
    }

    /// Sends a control frame. Returns whether it was sent in full.
    async fn control(&mut self, opcode: u8, payload: &[u8], within: Duration) -> bool {
        let mut bytes = Vec::with_capacity(payload.len() + 10);
        write_message(&mut bytes, opcode, &[payload]);
        let sent = timeout(within, self.out.write_all(&bytes)).await;
        matches!(sent, Ok(Ok(())))
    }

    /// Sends the last bytes and the close frame, within a time limit.
    pub(crate) async fn close(mut self, last: &[u8], close: CloseFrame, within: Duration) {
        let mut bytes = last.to_vec();
        let code = close.code.map(u16::to_be_bytes);
        let code = code.as_ref().map_or(&[][..], |code| &code[..]);
        write_message(&mut bytes, CLOSE, &[code, close.reason.as_bytes()]);
        let ended = async {
            self.out.write_all(&bytes).await?;
            let mut heard = !close.waits;
            while !heard {
                let message = self.messages.recv().await;
                heard = !matches!(message, Some(ReaderMessage::Ping(_)));
            }
            self.out.shutdown().await?;
            // Closing with unread input would reset the connection and discard the last
            // bytes, so this waits for the end of the input.
            while self.messages.recv().await.is_some() {}
            Ok::<_, std::io::Error>(())
        };
        // The connection ends in any case.
        let _ = timeout(within, ended).await;
    }
}

/// What happened first on a socket: a write, a message, or neither.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SocketEvent {
    /// This many bytes were accepted.
    Wrote(usize),
    Received(ReaderMessage),
    /// No byte was accepted within the time limit.
    Stalled,
    Gone,
}

/// Appends one whole message as a server sends it.
pub(crate) fn write_message(out: &mut Vec<u8>, opcode: u8, parts: &[&[u8]]) {
    out.push(0x80 | opcode);
    match parts.iter().map(|part| part.len()).sum() {
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
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn accept_key(key: &[u8]) -> String {
    let digest = Sha1::new()
        .chain_update(key)
        .chain_update(PROTOCOL_GUID)
        .finalize();
    BASE64.encode(&digest)
}

fn has_token(headers: &HeaderMap, name: HeaderName, token: &str) -> bool {
    let values = headers.get_all(name);
    let mut texts = values.iter().filter_map(|value| value.to_str().ok());
    texts.any(|text| {
        text.split(',')
            .any(|part| part.trim().eq_ignore_ascii_case(token))
    })
}

/// Reads the frames of a reader until the connection ends.
async fn read_messages(
    read: BufReader<impl AsyncRead + Unpin>,
    sender: mpsc::Sender<ReaderMessage>,
    began: Instant,
    heard: Arc<AtomicU64>,
) {
    let mut frames = InboundFrames::new(read);
    let close = loop {
        let frame = match frames.next().await {
            Ok(frame) => frame,
            Err(InboundError::Gone) => return,
            Err(InboundError::Violation(close)) => break close,
        };
        heard.store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
        match frame {
            InboundFrame::Ping(payload) => {
                if sender.send(ReaderMessage::Ping(payload)).await.is_err() {
                    return;
                }
            }
            InboundFrame::Close(payload) => break CloseFrame::answer(&payload),
            InboundFrame::Other => {}
        }
    };
    if sender.send(ReaderMessage::Close(close)).await.is_err() {
        return;
    }
    // Unread bytes would reset the connection before our last message is read. A reader
    // that keeps sending is cut by the time limit of `Socket::close`.
    let mut passed = [0; 4096];
    while matches!(frames.read.read(&mut passed).await, Ok(1..)) {}
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

    #[test]
    fn a_message_says_how_long_it_is() {
        for (len, head) in [
            (0usize, vec![0x82, 0]),
            (125, vec![0x82, 125]),
            (126, vec![0x82, 126, 0, 126]),
            (65_535, vec![0x82, 126, 0xff, 0xff]),
            (65_536, vec![0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let payload = vec![7; len];
            let (one, two) = payload.split_at(len / 3);
            let mut out = Vec::new();
            write_message(&mut out, BINARY, &[one, two]);
            assert_eq!(out, [head, payload].concat(), "{len}");
        }
    }
}
