//! A way to a server that can be cut, and counts who took it and what a cut ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Way {
    pub url: String,
    pub open: watch::Sender<bool>,
    pub cuts: Arc<AtomicU64>,
    pub taken: Arc<AtomicU64>,
}

impl Way {
    pub async fn to(url: &str) -> Way {
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
        Way {
            url: format!("http://localhost:{port}"),
            open,
            cuts,
            taken,
        }
    }
}
