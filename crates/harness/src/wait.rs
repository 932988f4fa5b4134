//! Waits of a test in a [`World`]. Each wait is for a condition and has a deadline; none is for a
//! length of time.

use std::time::{Duration, Instant};

use gapless_atp::syntax::Did;
use gapless_core::ledger::sweep;
use gapless_mirror::api::{Inspect as _, RepoAnswer};
use gapless_mirror::metrics::Metrics;
use gapless_testnet::Place;

use crate::{PATIENCE, Program, World};

/// The interval at which a condition is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The result of a condition for [`World::until`]; if `holds` is false, the error shows `seen`.
pub fn condition(holds: bool, seen: &impl std::fmt::Debug) -> Result<(), String> {
    if holds {
        Ok(())
    } else {
        Err(format!("{seen:?}"))
    }
}

impl World {
    /// Waits until a condition holds. Fails after [`PATIENCE`] and reports what was last seen.
    pub async fn until(
        &self,
        what: &str,
        mut holds: impl AsyncFnMut(&World) -> Result<(), String>,
    ) {
        let began = Instant::now();
        loop {
            let seen = holds(self).await;
            match seen {
                Ok(()) => return,
                Err(seen) if began.elapsed() > PATIENCE => panic!("{what}: {seen}"),
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Waits until everything is complete, every cursor has caught up, no sweep is due and
    /// no work is left.
    pub async fn settle(&self) {
        let hosts = self.net.urls().pds.len();
        for host in 0..hosts {
            let place = Place::Pds(host);
            self.until_connected(place).await;
            // A frame opens the epoch at once, so the world need not wait for silence.
            let dids = self.net.truth().dids();
            let lives_here = |did: &&Did| {
                let head = self.net.truth().head(did);
                head.is_some_and(|head| head.host == host)
            };
            if let Some(did) = dids.iter().find(lives_here) {
                self.post(did);
                self.until_caught_up(place).await;
            }
        }
        self.until_all_complete().await;
        self.until("nothing left to do", async |world: &World| {
            let services = world.mirror().services();
            let now = services.clock.last_tick_now();
            let due = services.decide(now, |context| {
                let mut hosts = services.hosts.all().into_iter();
                hosts.any(|(id, host)| sweep::is_due(context, id, &host))
            });
            let (owed, at_work) = (services.schedule.len(), services.schedule.at_work());
            condition(
                !due && owed == 0 && at_work == 0,
                &(due, owed, at_work, "due, owed, at work"),
            )
        })
        .await;
    }

    /// Waits until the mirror's answer about a repository is as wanted. Returns the answer.
    pub async fn until_repo(
        &self,
        did: &Did,
        what: &str,
        wanted: impl Fn(&RepoAnswer) -> bool,
    ) -> RepoAnswer {
        let mut found = None;
        self.until(&format!("{did}: {what}"), async |world: &World| {
            let answer = world.answer(did).await;
            let told = condition(wanted(&answer), &answer);
            found = Some(answer);
            told
        })
        .await;
        found.expect("it was seen")
    }

    /// Waits until a repository is complete at the truth's head.
    pub async fn until_complete(&self, did: &Did) {
        self.until(&format!("{did} complete"), async |world: &World| {
            world.is_complete(did).await
        })
        .await;
    }

    pub async fn until_all_complete(&self) {
        for did in self.net.truth().dids() {
            self.until_complete(&did).await;
        }
    }

    /// Waits until a repository is complete at the truth's head, at a time when the mirror
    /// must know that any other state is old; see [`World::never_stale`].
    pub async fn until_complete_never_stale(&self, did: &Did) -> RepoAnswer {
        let mut found = None;
        self.until(&format!("{did} complete"), async |world: &World| {
            let answer = world.never_stale(did).await;
            let told = condition(answer.complete, &answer);
            found = Some(answer);
            told
        })
        .await;
        found.expect("it was seen")
    }

    /// Waits until this is one of the reasons why a repository is not complete.
    pub async fn until_incomplete(&self, did: &Did, reason: &str) -> RepoAnswer {
        self.until_incomplete_for(did, &[reason]).await
    }

    /// Waits until all of these are among the reasons why a repository is not complete.
    pub async fn until_incomplete_for(&self, did: &Did, reasons: &[&str]) -> RepoAnswer {
        let has =
            |answer: &RepoAnswer, reason: &str| answer.reasons.iter().any(|one| one == reason);
        let all = |answer: &RepoAnswer| reasons.iter().all(|reason| has(answer, reason));
        let answer = self.until_repo(did, &format!("{reasons:?}"), all).await;
        assert!(!answer.complete, "{answer:?}");
        answer
    }

    /// [`World::until_incomplete`] for every repository of the network.
    pub async fn until_all_incomplete(&self, reason: &str) {
        for did in self.net.truth().dids() {
            self.until_incomplete(&did, reason).await;
        }
    }

    /// Waits until faults of this name have fired at least `times` times.
    pub async fn until_fired(&self, fault: &str, times: u64) {
        self.until(&format!("{fault} fires"), async |world: &World| {
            let fired = world.fired(fault);
            condition(fired >= times, &fired)
        })
        .await;
    }

    /// Waits until a counter is at least `least`.
    pub async fn until_counted(&self, what: &str, of: fn(&Metrics) -> u64, least: u64) {
        self.until(what, async |world: &World| {
            let counted = of(world.metrics());
            condition(counted >= least, &(counted, "of", least))
        })
        .await;
    }

    /// Waits until `more` further sweeps have succeeded.
    pub async fn until_swept(&self, more: u64) {
        let least = self.metrics().sweeps.get() + more;
        self.until_counted("sweeps", |metrics| metrics.sweeps.get(), least)
            .await;
    }

    /// Waits until the desks have applied at least this many events, durable or not.
    pub async fn until_applied(&self, least: u64) {
        self.until_counted(
            "it is applied",
            |metrics| metrics.events_applied.get(),
            least,
        )
        .await;
    }

    /// Waits until no repair is running, then returns how many snapshots were written. The counter
    /// has only durable snapshots.
    pub async fn snapshots(&self) -> u64 {
        self.until("no repair is running", async |world: &World| {
            let at_work = world.mirror().services().schedule.at_work();
            condition(at_work == 0, &at_work)
        })
        .await;
        self.metrics().snapshots_written.get()
    }

    /// Waits until the mirror is connected to an upstream.
    pub async fn until_connected(&self, place: Place) {
        self.until("connected", async |world: &World| {
            let upstream = world.upstream(place).await;
            condition(upstream.connected, &upstream)
        })
        .await;
    }

    /// Waits until the epoch of an upstream is open.
    pub async fn until_open(&self, url: &str) {
        self.until("open", async |world: &World| {
            let all = world.ask(|mirror| mirror.inspector().upstreams()).await;
            let all = all.expect("an answer");
            let open = all.iter().any(|one| one.url == url && one.open);
            condition(open, &all)
        })
        .await;
    }

    pub async fn until_epoch_above(&self, place: Place, before: u64) {
        self.until("a new epoch", async |world: &World| {
            let epoch = world.epoch(place);
            condition(epoch > before, &epoch)
        })
        .await;
    }

    /// Waits until the effects of every event that a host has sequenced are durable.
    pub async fn until_caught_up(&self, place: Place) {
        self.until("the cursor catches up", async |world: &World| {
            let last = world.net.last_seq(place);
            let upstream = world.upstream(place).await;
            condition(upstream.cursor == last && upstream.open, &(upstream, last))
        })
        .await;
    }

    /// Waits until the mirror has read every event of a host, durable or not.
    pub async fn until_all_read(&self, place: Place) {
        let last = self.net.last_seq(place);
        self.until("all of it is read", async |world: &World| {
            let read = world.read(place);
            condition(read == last, &(read, last))
        })
        .await;
    }

    /// Posts `events` events of another account, each after the one before it was read. This gives
    /// an unwanted effect the time to show.
    pub async fn meanwhile(&self, did: &Did, place: Place, events: u32) {
        for _ in 0..events {
            self.post(did);
            self.until_all_read(place).await;
        }
    }

    /// Waits until at least `changes` changes wait for the store.
    pub async fn until_queued(&self, changes: usize) {
        self.until("it waits for the store", async |world: &World| {
            let (waiting, _) = world.mirror().services().store.queue_depth();
            condition(waiting >= changes, &waiting)
        })
        .await;
    }

    /// Waits until no change waits for the store.
    pub async fn until_none_queued(&self) {
        self.until("nothing waits for the store", async |world: &World| {
            let (waiting, _) = world.mirror().services().store.queue_depth();
            condition(waiting == 0, &waiting)
        })
        .await;
    }

    /// Waits until the mirror is not ready and a reason contains these words.
    pub async fn until_unready(&self, words: &str) {
        self.until(words, async |world: &World| {
            let ready = world.ready().await;
            let because = ready.reasons.iter().any(|reason| reason.contains(words));
            condition(!ready.ready && because, &ready)
        })
        .await;
    }

    /// Waits until the mirror lists no repository and no host as a gap.
    pub async fn until_no_gaps(&self) {
        self.until("no gaps", async |world: &World| {
            let page = world.gaps().await;
            condition(page.gaps.is_empty() && page.hosts.is_empty(), &page)
        })
        .await;
    }

    /// Waits until a program has logged these words.
    pub async fn until_logged(&self, program: &Program, words: &str) {
        self.until(words, async |_: &World| {
            let log = program.log();
            condition(log.contains(words), &log)
        })
        .await;
    }
}
