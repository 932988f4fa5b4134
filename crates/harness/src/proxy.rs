//! Proxies in front of a server of the test network: one whose connections can be cut, and one
//! that silently drops frames of a relay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{accept_hdr_async, connect_async};

/// A proxy that forwards bytes while it is open.
pub struct Proxy {
    pub url: String,
    /// While false, all connections are cut, new ones included.
    pub open: watch::Sender<bool>,
    /// Connections that were cut.
    pub cuts: Arc<AtomicU64>,
    /// Connections that were accepted.
    pub taken: Arc<AtomicU64>,
}

impl Proxy {
    pub async fn to(url: &str) -> Proxy {
        let target = url.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (open, seen) = watch::channel(true);
        let (cuts, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (cut, took) = (cuts.clone(), taken.clone());
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                took.fetch_add(1, Ordering::Relaxed);
                let (mut seen, cut, target) = (seen.clone(), cut.clone(), target.clone());
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(&target).await else {
                        return;
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = seen.wait_for(|open| !open) => {
                            cut.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        Proxy {
            url: format!("http://localhost:{port}"),
            open,
            cuts,
            taken,
        }
    }
}

/// A proxy that drops every n-th frame of a relay.
pub struct LossyRelay {
    pub url: String,
    pub lost: Arc<AtomicU64>,
    /// One frame in this many is dropped; zero drops none.
    pub one_in: Arc<AtomicU64>,
}

impl LossyRelay {
    pub async fn before(url: &str) -> LossyRelay {
        let target = url.replacen("http://", "ws://", 1);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (lost, one_in) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (counted, rate) = (lost.clone(), one_in.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(pass(near, target.clone(), counted.clone(), rate.clone()));
            }
        });
        LossyRelay {
            url: format!("http://localhost:{port}"),
            lost,
            one_in,
        }
    }
}

async fn pass(near: TcpStream, target: String, lost: Arc<AtomicU64>, one_in: Arc<AtomicU64>) {
    let mut path = String::new();
    #[expect(clippy::result_large_err, reason = "tungstenite sets the error type")]
    let look = |request: &Request, response: Response| {
        path = request.uri().to_string();
        Ok(response)
    };
    let Ok(near) = accept_hdr_async(near, look).await else {
        return;
    };
    let Ok((far, _)) = connect_async(format!("{target}{path}")).await else {
        return;
    };
    let (mut to_near, mut from_near) = near.split();
    let (_to_far, mut from_far) = far.split();
    let mut passed = 0;
    loop {
        tokio::select! {
            message = from_far.next() => {
                let Some(Ok(message)) = message else {
                    return;
                };
                let one_in = one_in.load(Ordering::SeqCst);
                if message.is_binary() && one_in > 0 {
                    passed += 1;
                    if passed % one_in == 0 {
                        lost.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                }
                if to_near.send(message).await.is_err() {
                    return;
                }
            }
            message = from_near.next() => match message {
                Some(Ok(_)) => {}
                _ => return,
            },
        }
    }
}
