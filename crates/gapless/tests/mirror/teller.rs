//! A Jetstream that says what a test wants, true or not; and a relay that loses what
//! a test wants, without a word.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value as Json, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{accept_hdr_async, connect_async};

/// What it would say, and was asked.
#[derive(Default)]
struct Kept {
    lines: Vec<(u64, String)>,
    /// The cursors that it was asked for.
    asked: Vec<Option<u64>>,
}

pub struct Teller {
    pub url: String,
    kept: Arc<Mutex<Kept>>,
    changed: watch::Sender<u64>,
    /// Raised to cut all connections.
    cut: watch::Sender<u64>,
}

fn cursor_of(request: &Request) -> Option<u64> {
    let query = request.uri().query()?;
    let cursor = query.split('&').find_map(|one| one.strip_prefix("cursor="));
    cursor.and_then(|cursor| cursor.parse().ok())
}

impl Teller {
    pub async fn start() -> Teller {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let kept = Arc::new(Mutex::new(Kept::default()));
        let (changed, cut) = (watch::Sender::new(0), watch::Sender::new(0));
        let (all, news, cuts) = (kept.clone(), changed.clone(), cut.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (all, news, cuts) = (all.clone(), news.subscribe(), cuts.subscribe());
                tokio::spawn(serve(near, all, news, cuts));
            }
        });
        Teller {
            url: format!("http://localhost:{port}"),
            kept,
            changed,
            cut,
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says something under a time.
    pub fn say(&self, time_us: u64, text: impl Into<String>) {
        self.kept().lines.push((time_us, text.into()));
        self.changed.send_modify(|count| *count += 1);
    }

    /// Says that a commit did something.
    pub fn say_commit(&self, time_us: u64, did: &str, commit: &Json) {
        let line = json!({"did": did, "time_us": time_us, "kind": "commit", "commit": commit});
        self.say(time_us, line.to_string());
    }

    /// Forgets what it said before a time: who asks for it gets what comes after.
    pub fn forget_before(&self, time_us: u64) {
        self.kept().lines.retain(|(time, _)| *time >= time_us);
    }

    pub fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }

    pub fn asked(&self) -> Vec<Option<u64>> {
        self.kept().asked.clone()
    }
}

async fn serve(
    near: TcpStream,
    all: Arc<Mutex<Kept>>,
    mut news: watch::Receiver<u64>,
    mut cuts: watch::Receiver<u64>,
) {
    let lock = || all.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cursor = None;
    #[allow(clippy::result_large_err)]
    let look = |request: &Request, response: Response| {
        cursor = cursor_of(request);
        Ok(response)
    };
    let Ok(mut socket) = accept_hdr_async(near, look).await else {
        return;
    };
    let mut next = {
        let mut kept = lock();
        kept.asked.push(cursor);
        match cursor {
            Some(cursor) => kept.lines.partition_point(|(time, _)| *time < cursor),
            None => kept.lines.len(),
        }
    };
    loop {
        news.mark_unchanged();
        let lines: Vec<String> = {
            let kept = lock();
            let new = kept.lines.get(next..).unwrap_or_default();
            new.iter().map(|(_, text)| text.clone()).collect()
        };
        next += lines.len();
        for line in lines {
            if socket.send(Message::text(line)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            _ = news.changed() => {}
            _ = cuts.changed() => return,
            message = socket.next() => match message {
                Some(Ok(_)) => {}
                _ => return,
            },
        }
    }
}

/// Stands before a relay and loses every so-manieth frame of it.
pub struct Lossy {
    pub url: String,
    pub lost: Arc<AtomicU64>,
    /// It loses nothing while this is zero.
    pub one_in: Arc<AtomicU64>,
}

impl Lossy {
    pub async fn before(url: &str) -> Lossy {
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
        Lossy {
            url: format!("http://localhost:{port}"),
            lost,
            one_in,
        }
    }
}

async fn pass(near: TcpStream, target: String, lost: Arc<AtomicU64>, one_in: Arc<AtomicU64>) {
    let mut path = String::new();
    #[allow(clippy::result_large_err)]
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
