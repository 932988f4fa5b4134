//! A Jetstream that sends whatever lines a test gives it, true or not.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value as Json, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

/// The lines to send, each with its time, and the requested cursors.
#[derive(Default)]
struct State {
    lines: Vec<(u64, String)>,
    /// The cursor of each subscription, in order; `None` for one without a cursor.
    asked: Vec<Option<u64>>,
}

pub struct FakeJetstream {
    pub url: String,
    state: Arc<Mutex<State>>,
    changed: watch::Sender<u64>,
    /// Raised to cut all connections.
    cut: watch::Sender<u64>,
}

fn cursor_of(request: &Request) -> Option<u64> {
    let query = request.uri().query()?;
    let cursor = query.split('&').find_map(|one| one.strip_prefix("cursor="));
    cursor.and_then(|cursor| cursor.parse().ok())
}

impl FakeJetstream {
    pub async fn start() -> FakeJetstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(Mutex::new(State::default()));
        let (changed, cut) = (watch::Sender::new(0), watch::Sender::new(0));
        let (all, news, cuts) = (state.clone(), changed.clone(), cut.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (all, news, cuts) = (all.clone(), news.subscribe(), cuts.subscribe());
                tokio::spawn(serve(near, all, news, cuts));
            }
        });
        FakeJetstream {
            url: format!("http://localhost:{port}"),
            state,
            changed,
            cut,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line with a time, and sends it to the connected consumers.
    pub fn say(&self, time_us: u64, text: impl Into<String>) {
        self.state().lines.push((time_us, text.into()));
        self.changed.send_modify(|count| *count += 1);
    }

    /// Sends a `commit` event of an account.
    pub fn say_commit(&self, time_us: u64, did: &str, commit: &Json) {
        let line = json!({"did": did, "time_us": time_us, "kind": "commit", "commit": commit});
        self.say(time_us, line.to_string());
    }

    /// Removes the lines before a time. A consumer with an older cursor gets only later lines.
    pub fn forget_before(&self, time_us: u64) {
        self.state().lines.retain(|(time, _)| *time >= time_us);
    }

    pub fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }

    pub fn asked(&self) -> Vec<Option<u64>> {
        self.state().asked.clone()
    }
}

async fn serve(
    near: TcpStream,
    all: Arc<Mutex<State>>,
    mut news: watch::Receiver<u64>,
    mut cuts: watch::Receiver<u64>,
) {
    let lock = || all.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cursor = None;
    #[expect(clippy::result_large_err, reason = "tungstenite sets the error type")]
    let look = |request: &Request, response: Response| {
        cursor = cursor_of(request);
        Ok(response)
    };
    let Ok(mut socket) = accept_hdr_async(near, look).await else {
        return;
    };
    let mut next = {
        let mut state = lock();
        state.asked.push(cursor);
        match cursor {
            Some(cursor) => state.lines.partition_point(|(time, _)| *time < cursor),
            None => state.lines.len(),
        }
    };
    loop {
        news.mark_unchanged();
        let lines: Vec<String> = {
            let state = lock();
            let new = state.lines.get(next..).unwrap_or_default();
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
