//! Opens WebSockets to upstreams, with the rules of [`super::guard`].
//!
//! This module resolves the name, checks every address if another party named the host,
//! and connects only to the checked addresses. An HTTP refusal keeps its status and the
//! time to wait. Up to three redirects before the upgrade are followed, each with the
//! rules of the guard. A message larger than the protocol allows ends the connection
//! before the message is in memory.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gapless_atp::limits::FRAME_BYTES;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
pub use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::client::{Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
pub use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use url::{Host, Url};

use super::client::{CONNECT, MOST_REDIRECTS, Net, authority, is_redirect, parse, redirect_target};
use super::error::{AskClass, AskError, clean};
use super::guard::Trust;
use super::headers::retry_after;
use super::lookup::{Lookup, LookupError};

/// The timeout of a whole dial: names, connections, redirects, TLS and the upgrade.
const DIAL: Duration = Duration::from_secs(30);
/// The most bytes in a message: a frame of the protocol, and a margin for servers that count
/// differently.
const MESSAGE_BYTES: usize = FRAME_BYTES + 64 * 1024;
/// The size of the read buffer, which every open socket holds.
const READ_BYTES: usize = 64 * 1024;
/// The most bytes that wait to be sent: pongs and a close message.
const WRITE_BYTES: usize = 64 * 1024;

/// An open WebSocket.
pub type Socket = WebSocketStream<Stream>;

/// The connection below a WebSocket.
#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Why a WebSocket could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DialError {
    pub class: AskClass,
    /// The HTTP status with which the upgrade was refused.
    pub status: Option<u16>,
    pub retry_after: Option<Duration>,
    pub message: String,
}

impl From<AskError> for DialError {
    fn from(error: AskError) -> DialError {
        DialError {
            status: match error.class {
                AskClass::Http(status) => Some(status),
                _ => None,
            },
            class: error.class,
            retry_after: error.retry_after,
            message: error.message,
        }
    }
}

/// The result of a handshake.
enum Upgrade {
    Open(Box<Socket>),
    Redirect(Url),
}

impl Net {
    /// Opens a WebSocket. Treats `http` and `https` as `ws` and `wss`.
    pub async fn dial(&self, url: &str, trust: Trust) -> Result<Socket, DialError> {
        let url = socket_url(parse(url)?)?;
        let host = authority(&url);
        match timeout(DIAL, self.follow(url, trust)).await {
            Ok(dialled) => dialled,
            Err(_) => {
                let what = format!("no WebSocket within {DIAL:?}");
                Err(AskError::new(AskClass::Timeout, &host, what).into())
            }
        }
    }

    async fn follow(&self, mut url: Url, mut trust: Trust) -> Result<Socket, DialError> {
        for _ in 0..=MOST_REDIRECTS {
            self.check(&url, trust)?;
            let stream = self.connect(&url, trust).await?;
            match self.upgrade(&url, stream).await? {
                Upgrade::Open(socket) => return Ok(*socket),
                Upgrade::Redirect(next) => {
                    trust = trust.redirected(&url, &next);
                    url = next;
                }
            }
        }
        let what = format!("it redirects more than {MOST_REDIRECTS} times");
        Err(AskError::new(AskClass::Refused, &authority(&url), what).into())
    }

    async fn connect(&self, url: &Url, trust: Trust) -> Result<Stream, AskError> {
        let host = authority(url);
        let lookup = match trust {
            Trust::Configured => self.0.lookup.for_configured(),
            Trust::Named => self.0.lookup.clone(),
        };
        let addresses = addresses(&lookup, url).await.map_err(|error| match error {
            LookupError::Refused(refusal) => AskError::refused(&host, &refusal),
            LookupError::Failed(_) => AskError::new(AskClass::Unreachable, &host, error),
        })?;
        let connected = connect_any(&addresses).await;
        let connected = connected.map_err(|error| unreachable_by(&host, &error))?;
        // Without Nagle's algorithm, so that pongs are sent at once.
        let set = connected.set_nodelay(true);
        set.map_err(|error| unreachable_by(&host, &error))?;
        match url.scheme() {
            "wss" => self.secure(url, connected).await,
            _ => Ok(Stream::Plain(connected)),
        }
    }

    async fn secure(&self, url: &Url, connected: TcpStream) -> Result<Stream, AskError> {
        let host = authority(url);
        let name = match url.host() {
            Some(Host::Domain(name)) => ServerName::try_from(name.to_owned()).ok(),
            Some(Host::Ipv4(address)) => Some(ServerName::from(std::net::IpAddr::V4(address))),
            Some(Host::Ipv6(address)) => Some(ServerName::from(std::net::IpAddr::V6(address))),
            None => None,
        };
        let name = name.ok_or_else(|| {
            let what = "no certificate can have this name";
            AskError::new(AskClass::Unreachable, &host, what)
        })?;
        let connector = TlsConnector::from(Arc::clone(&self.0.tls));
        let secured = connector.connect(name, connected).await;
        let secured = secured.map_err(|error| unreachable_by(&host, &error))?;
        Ok(Stream::Tls(Box::new(secured)))
    }

    async fn upgrade(&self, url: &Url, stream: Stream) -> Result<Upgrade, DialError> {
        let host = authority(url);
        let request = self.request(url)?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES))
            .max_frame_size(Some(MESSAGE_BYTES))
            .read_buffer_size(READ_BYTES)
            .write_buffer_size(0)
            .max_write_buffer_size(WRITE_BYTES);
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(Upgrade::Open(Box::new(socket))),
            Err(SocketError::Http(answer)) => refused(url, &answer),
            Err(SocketError::Io(error)) => Err(unreachable_by(&host, &error).into()),
            Err(error) => {
                let what = format!("it does not speak WebSocket: {error}");
                Err(AskError::malformed(&host, clean(&what)).into())
            }
        }
    }

    fn request(&self, url: &Url) -> Result<Request, AskError> {
        let unusable = |error: &dyn std::fmt::Display| {
            let what = format!("cannot connect to this address: {error}");
            AskError::new(AskClass::Refused, &authority(url), what)
        };
        let request = url.as_str().into_client_request();
        let mut request = request.map_err(|error| unusable(&error))?;
        let agent = HeaderValue::from_str(&self.0.agent).map_err(|error| unusable(&error))?;
        request.headers_mut().insert("user-agent", agent);
        Ok(request)
    }
}

/// Handles a response other than an upgrade: a redirect or a refusal.
fn refused(url: &Url, answer: &Response) -> Result<Upgrade, DialError> {
    let status = answer.status().as_u16();
    if is_redirect(status) {
        let next = redirect_target(url, answer.headers())?;
        return Ok(Upgrade::Redirect(socket_url(next)?));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    // Only the part of the body that arrived with the head; the handshake bounds it.
    let body = answer.body().as_deref().unwrap_or_default();
    let said = clean(&String::from_utf8_lossy(body));
    let what = format!("the WebSocket was refused with {status}: {said}");
    let error = AskError::new(AskClass::Http(status), &authority(url), what);
    Err(error.after(retry_after(answer.headers(), now)).into())
}

/// Converts `http` to `ws` and `https` to `wss`, and removes the fragment, which is not sent.
fn socket_url(mut url: Url) -> Result<Url, AskError> {
    let scheme = match url.scheme() {
        "http" | "ws" => "ws",
        "https" | "wss" => "wss",
        _ => "",
    };
    if scheme.is_empty() || !url.has_host() || url.set_scheme(scheme).is_err() {
        let what = "Gapless connects only to http, https, ws and wss addresses";
        return Err(AskError::new(AskClass::Refused, &authority(&url), what));
    }
    url.set_fragment(None);
    Ok(url)
}

async fn addresses(lookup: &Lookup, url: &Url) -> Result<Vec<SocketAddr>, LookupError> {
    // Both schemes have a port of their own.
    let port = url.port_or_known_default().unwrap_or(443);
    match url.host() {
        Some(Host::Domain(name)) => {
            let found = timeout(CONNECT, lookup.addresses(name, port)).await;
            found.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        }
        Some(Host::Ipv4(address)) => Ok(vec![SocketAddr::from((address, port))]),
        Some(Host::Ipv6(address)) => Ok(vec![SocketAddr::from((address, port))]),
        None => Err(io::Error::from(io::ErrorKind::InvalidInput).into()),
    }
}

/// Connects to the first address that accepts. Returns the error of the last one if none does.
async fn connect_any(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::Error::from(io::ErrorKind::TimedOut),
        }
    }
    Err(failure)
}

fn unreachable_by(host: &str, error: &io::Error) -> AskError {
    let class = match error.kind() {
        io::ErrorKind::TimedOut => AskClass::Timeout,
        _ => AskClass::Unreachable,
    };
    let what = format!("cannot connect: {error}");
    AskError::new(class, host, clean(&what))
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
