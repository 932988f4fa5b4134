//! The task that follows one upstream: started, started again after a fault of ours, and
//! ended.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use gapless_core::ledger::{Followed, Upstream, UpstreamId};
use tokio::task::JoinHandle;

use super::{Followee, Following};
use crate::ingest::follow::Follower;
use crate::ingest::link::Link;
use crate::net::Trust;
use crate::shared::Shared;

/// How long a follower that ended by a fault of ours rests.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// How long followers have for their end, all together.
const STOP_WITHIN: Duration = Duration::from_secs(2);

impl Following {
    pub(super) fn start(self: &Arc<Self>, id: UpstreamId, row: Upstream) {
        let link = Arc::new(Mutex::new(Link {
            // For all we know: it may have been so before the start.
            down_since: Some(self.shared.clock.time()),
            ..Link::default()
        }));
        let host_name = row
            .host
            .and_then(|host| self.shared.hosts.get(host))
            .map(|host| host.name);
        let trust = match row.followed.is_operators() {
            true => Trust::Configured,
            false => Trust::Named,
        };
        let follower = Arc::new(Follower {
            shared: self.shared.clone(),
            desks: self.desks.clone(),
            net: self.net.clone(),
            id,
            kind: row.kind,
            url: row.url.clone(),
            trust,
            tracked_only: !row.followed.reads_all(),
            patient: row.followed == Followed::Discovered,
            link: link.clone(),
            tally: self.shared.sources.add(id, &row),
        });
        let (url, kind, host, followed) = (row.url.clone(), row.kind, row.host, row.followed);
        self.shared.upstreams.add(id, row);
        let task = self.runtime.spawn(supervise(self.shared.clone(), follower));
        let followee = Followee {
            url,
            kind,
            host,
            host_name,
            followed,
            link,
            task,
        };
        self.lock().insert(id, followee);
    }

    /// Stops following anything.
    pub async fn stop(&self) {
        let all: Vec<JoinHandle<()>> = {
            let mut followees = self.lock();
            let all = std::mem::take(&mut *followees).into_values();
            all.map(|followee| followee.task).collect()
        };
        end_all(all, STOP_WITHIN).await;
    }
}

/// Waits for tasks that were told to end, all of them together, and ends those that
/// do not.
pub(in crate::mirror) async fn end_all(mut tasks: Vec<JoinHandle<()>>, within: Duration) {
    let all = futures_util::future::join_all(&mut tasks);
    if tokio::time::timeout(within, all).await.is_err() {
        for task in tasks {
            task.abort();
        }
    }
}

/// Follows, and begins anew from the durable cursor after a fault of ours: what
/// was read and not handed on is read again.
async fn supervise(shared: Arc<Shared>, follower: Arc<Follower>) {
    loop {
        match AssertUnwindSafe(follower.run()).catch_unwind().await {
            Ok(()) => return,
            Err(_) if shared.end.is_ending() => return,
            Err(_) => {
                shared.metrics.restarts.inc();
                tracing::error!(upstream = %follower.url, "a follower ended unexpectedly; started again");
                if let Some(row) = shared.upstreams.remove(follower.id) {
                    shared.store.abandon(follower.id);
                    shared.upstreams.add(follower.id, row);
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
