//! The task that follows one upstream: starts it, restarts it after a panic, and ends it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use gapless_core::ledger::{FollowReason, Upstream, UpstreamId};
use tokio::task::JoinHandle;

use crate::following::{Followee, Following};
use crate::ingest::follow::Follower;
use crate::services::Services;
use crate::upstreams::connection::ConnectionState;
use gapless_net::Trust;
use gapless_store::sync::Mutex;

/// The pause before a follower is restarted after a panic.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// How long all followers together have to end.
const STOP_WITHIN: Duration = Duration::from_secs(2);

impl Following {
    /// Starts the task that follows an upstream.
    pub(crate) fn start(self: &Arc<Self>, id: UpstreamId, row: Upstream) {
        let connection = Arc::new(Mutex::new(ConnectionState {
            // Whether the connection was down before the start is not known.
            down_since: Some(self.services.clock.time()),
            ..ConnectionState::default()
        }));
        let host_name = row
            .host
            .and_then(|host| self.services.hosts.get(host))
            .map(|host| host.name);
        let trust = if row.followed.is_by_operator() {
            Trust::Configured
        } else {
            Trust::Named
        };
        let follower = Arc::new(Follower {
            services: self.services.clone(),
            desks: self.desks.clone(),
            net: self.net.clone(),
            id,
            kind: row.kind,
            url: row.url.clone(),
            trust,
            tracked_only: !row.followed.reads_all(),
            patient: row.followed == FollowReason::Discovered,
            connection: connection.clone(),
            tally: self.services.upstreams.sources.add(id, &row),
        });
        let (url, kind, host, followed) = (row.url.clone(), row.kind, row.host, row.followed);
        self.services.upstreams.add(id, row);
        let task = self
            .runtime
            .spawn(supervise(self.services.clone(), follower));
        let followee = Followee {
            url,
            kind,
            host,
            host_name,
            followed,
            connection,
            task,
        };
        self.lock().insert(id, followee);
    }

    /// Stops all followers.
    pub async fn stop(&self) {
        let all: Vec<JoinHandle<()>> = {
            let mut followees = self.lock();
            let all = std::mem::take(&mut *followees).into_values();
            all.map(|followee| followee.task).collect()
        };
        end_all(all, STOP_WITHIN).await;
    }
}

/// Waits for all tasks together, and aborts those that have not ended in time.
pub(crate) async fn end_all(mut tasks: Vec<JoinHandle<()>>, within: Duration) {
    let all = futures_util::future::join_all(&mut tasks);
    if tokio::time::timeout(within, all).await.is_err() {
        for task in tasks {
            task.abort();
        }
    }
}

/// Follows an upstream, and begins again at the durable cursor after a panic: frames that
/// were read and not dispatched are read again.
async fn supervise(services: Arc<Services>, follower: Arc<Follower>) {
    loop {
        match AssertUnwindSafe(follower.run()).catch_unwind().await {
            Ok(()) => return,
            Err(_) if services.shutdown.has_begun() => return,
            Err(_) => {
                services.metrics.restarts.inc();
                tracing::error!(upstream = %follower.url, "a follower ended unexpectedly; Gapless restarts it");
                if let Some(row) = services.upstreams.remove(follower.id) {
                    services.store.abandon(follower.id);
                    services.upstreams.add(follower.id, row);
                }
                tokio::time::sleep(RESTART_AFTER).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[tokio::test]
    async fn those_that_do_not_end_are_waited_for_together() {
        let within = Duration::from_millis(200);
        let tasks = (0..20).map(|_| tokio::spawn(std::future::pending()));
        let began = Instant::now();
        end_all(tasks.collect(), within).await;
        assert!(began.elapsed() < within * 10, "{:?}", began.elapsed());
    }
}
