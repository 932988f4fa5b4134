//! What tests do to a [`World`], and what they wait for: faults by name, writes,
//! held requests and desks, streams, epochs, and the state before the test begins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Tick, Time, UpstreamId, sweep};
use gapless_mirror::api::{Inspect as _, RepoAnswer, UpstreamAnswer};
use gapless_mirror::metrics::Metrics;
use gapless_store::change::Change;
use gapless_testnet::Config as NetConfig;
use gapless_testnet::{Fault, NewCommit, Place, Spec, Write, encode_record};
use tokio::sync::oneshot::{Receiver, channel};

use crate::common::World;

/// Makes every record key of a test run another one.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// An interval that no test outlives: sweeps happen when a rule asks for them.
const NEVER: &str = "1h";

pub const PDS: Place = Place::Pds(0);

/// A path that nobody has used.
pub fn new_path() -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("app.bsky.feed.post/test{number:06}")
}

/// A record that says something of its own.
pub fn record(text: &str) -> Vec<u8> {
    let json = serde_json::json!({ "$type": "app.bsky.feed.post", "text": text });
    encode_record(&json).expect("it is a record")
}

impl World {
    /// A network and no mirror yet; once begun, it follows all hosts and sweeps
    /// them only when a rule asks for it.
    pub async fn quiet(config: NetConfig) -> World {
        let mut world = World::network(config).await;
        for url in world.net.urls().pds.clone() {
            world.flags.upstream.push(format!("pds={url}"));
        }
        world.flags.sweep_every = Some(NEVER.to_owned());
        world
    }

    /// The same, begun, with everything complete and nothing left to do: what
    /// happens from here on is the test's doing.
    pub async fn settled(config: NetConfig) -> World {
        let mut world = World::quiet(config).await;
        world.begin().await;
        world.settle().await;
        world
    }

    /// Waits until everything is complete, every cursor has caught up, no sweep is
    /// due and nobody is at work.
    pub async fn settle(&self) {
        let hosts = self.net.urls().pds.len();
        for host in 0..hosts {
            let place = Place::Pds(host);
            self.until("connected", async |world: &World| {
                let upstream = world.upstream(place).await;
                said(upstream.connected, &upstream)
            })
            .await;
            // The first frame opens the epoch: nobody waits for the silence.
            let dids = self.net.truth().dids();
            let lives_here = |did: &&Did| {
                let head = self.net.truth().head(did);
                head.is_some_and(|head| head.host == host)
            };
            if let Some(did) = dids.iter().find(lives_here) {
                self.post(did);
                self.caught_up(place).await;
            }
        }
        self.all_complete().await;
        self.until("nothing left to do", async |world: &World| {
            let services = &world.mirror().services();
            let now = services.clock.glance();
            let due = services.decide(now, |context| {
                let mut hosts = services.hosts.all().into_iter();
                hosts.any(|(id, host)| sweep::is_due(context, id, &host))
            });
            let (owed, at_work) = (services.schedule.len(), services.schedule.at_work());
            said(
                !due && owed == 0 && at_work == 0,
                &(due, owed, at_work, "due, owed, at work"),
            )
        })
        .await;
    }

    /// The account with this number.
    pub fn did(&self, number: usize) -> Did {
        self.net.truth().dids()[number].clone()
    }

    /// One commit with one new record.
    pub fn post(&self, did: &Did) -> NewCommit {
        let path = new_path();
        let record = record(&path);
        self.write(did, &[Write::Create { path, record }])
    }

    pub fn write(&self, did: &Did, writes: &[Write]) -> NewCommit {
        self.net.write(did, writes).expect("it is written")
    }

    /// A path that the repository has.
    pub fn some_path(&self, did: &Did) -> String {
        let records = self.net.truth().records(did).expect("it exists");
        let mut paths = records.into_keys();
        paths.next().expect("it has a record")
    }

    /// Sets a fault; the number is for [`World::clear`], if it waits.
    pub fn set(&self, spec: Spec) -> Option<u64> {
        self.arm(spec).id
    }

    /// Takes a fault back, not before it has fired. What a reorder still holds is sent.
    pub async fn clear(&self, id: Option<u64>) {
        let id = id.expect("it waits for its moment");
        self.until("the fault fires", async |world: &World| {
            said(!world.unfired(id), &id)
        })
        .await;
        self.net.clear_fault(id);
    }

    pub fn fired(&self, fault: &str) -> u64 {
        self.net.faults().fired(fault)
    }

    pub async fn until_fired(&self, fault: &str, times: u64) {
        self.until(&format!("{fault} fires"), async |world: &World| {
            let fired = world.fired(fault);
            said(fired >= times, &fired)
        })
        .await;
    }

    /// Requests of this kind to the first host get no answer until it is cleared.
    pub fn hold(&self, route: &str) -> Option<u64> {
        let route = Some(route.to_owned());
        self.set(Spec::new(Fault::Stall { ms: None, route }).on(PDS))
    }

    /// The same, as a guard: nothing that the test sees came by such a request,
    /// whether or not one was made.
    pub fn guard(&self, route: &str) -> Option<u64> {
        let held = self.hold(route);
        self.need_not_fire(held);
        held
    }

    /// The same as [`World::hold`], for one repository.
    pub fn hold_of(&self, route: &str, did: &Did) -> Option<u64> {
        let route = Some(route.to_owned());
        self.set(Spec::new(Fault::Stall { ms: None, route }).on(PDS).of(did))
    }

    /// The next commit of a repository gets a number and is never sent.
    pub fn lose_commit(&self, did: &Did) -> NewCommit {
        let fired = self.fired("drop");
        self.set(
            Spec::new(Fault::Drop { unnumbered: false })
                .of(did)
                .times(1),
        );
        let made = self.post(did);
        assert_eq!(self.fired("drop"), fired + 1);
        made
    }

    /// One commit that says `tooBig`: only a fetch brings it.
    pub fn too_big(&self, did: &Did) -> NewCommit {
        let fired = self.fired("too-big");
        self.set(Spec::new(Fault::TooBig {}).of(did).times(1));
        let made = self.post(did);
        assert_eq!(self.fired("too-big"), fired + 1);
        made
    }

    pub fn metrics(&self) -> &Metrics {
        &self.mirror().services().metrics
    }

    /// How many snapshots were written, once nobody is at work: they are counted
    /// when they are durable already.
    pub async fn snapshots(&self) -> u64 {
        self.until("nobody is at work", async |world: &World| {
            let at_work = world.mirror().services().schedule.at_work();
            said(at_work == 0, &at_work)
        })
        .await;
        self.metrics().snapshots_written.get()
    }

    /// The log's next number: it stays while nothing is applied.
    pub fn log_next(&self) -> u64 {
        self.mirror().services().store.durable_head().next_seq
    }

    pub fn url(&self, place: Place) -> String {
        match place {
            Place::Pds(index) => self.net.urls().pds[index].clone(),
            Place::Relay => self.net.urls().relay.clone().expect("there is one"),
            Place::Jetstream => self.net.urls().jetstream.clone().expect("there is one"),
            other => panic!("nobody follows {other}"),
        }
    }

    pub async fn upstream(&self, place: Place) -> UpstreamAnswer {
        let (mirror, url) = (self.mirror().clone(), self.url(place));
        let asked = tokio::task::spawn_blocking(move || mirror.inspector().upstreams());
        let all = asked.await.expect("no panic").expect("an answer");
        let mut ours = all.into_iter().filter(|one| one.url == url);
        ours.next().expect("it is followed")
    }

    pub fn upstream_id(&self, place: Place) -> UpstreamId {
        let url = self.url(place);
        let covers = self.mirror().services().upstreams.read();
        let mut ours = covers.iter().filter(|(_, source)| source.row.url == url);
        ours.next().expect("it is followed").0
    }

    /// The number of the event that was last read, durable or not.
    pub fn read(&self, place: Place) -> Option<u64> {
        let id = self.upstream_id(place);
        let covers = self.mirror().services().upstreams.read();
        let stream = &covers.get(id).expect("it is followed").stream;
        stream.read().map(|cursor| cursor.seq)
    }

    pub fn epoch(&self, place: Place) -> u64 {
        let id = self.upstream_id(place);
        let covers = self.mirror().services().upstreams.read();
        covers.get(id).expect("it is followed").row.epoch.0
    }

    /// When the last sweep began that went through.
    pub fn swept(&self) -> Option<Tick> {
        let hosts = self.mirror().services().hosts.all();
        let swept = hosts.into_iter().map(|(_, host)| host.swept);
        swept.flatten().map(|swept| swept.tick).max()
    }

    pub async fn epoch_above(&self, place: Place, before: u64) {
        self.until("a new epoch", async |world: &World| {
            let epoch = world.epoch(place);
            said(epoch > before, &epoch)
        })
        .await;
    }

    /// Waits until the effects of all that a host has sent are durable.
    pub async fn caught_up(&self, place: Place) {
        self.until("the cursor catches up", async |world: &World| {
            let last = world.net.last_seq(place);
            let upstream = world.upstream(place).await;
            said(upstream.cursor == last && upstream.open, &(upstream, last))
        })
        .await;
    }

    pub async fn answer(&self, did: &Did) -> RepoAnswer {
        self.repo(did).await.expect("it is known")
    }

    pub async fn reasons(&self, did: &Did) -> Vec<String> {
        self.answer(did).await.reasons
    }

    /// Waits until it is not complete for these reasons, among others.
    pub async fn doubted(&self, did: &Did, reasons: &[&str]) -> RepoAnswer {
        let mut seen = None;
        self.until(&format!("{did}: {reasons:?}"), async |world: &World| {
            let answer = world.answer(did).await;
            let has = |reason: &&str| answer.reasons.iter().any(|one| one == reason);
            let all = reasons.iter().all(has);
            let told = said(all, &answer);
            seen = all.then_some(answer);
            told
        })
        .await;
        seen.expect("it was seen")
    }

    /// The same for every repository there is.
    pub async fn all_doubted(&self, reasons: &[&str]) {
        for did in self.net.truth().dids() {
            self.doubted(&did, reasons).await;
        }
    }

    /// Whether it is complete at the truth's head, now.
    pub async fn assert_complete(&self, did: &Did) {
        let complete = self.is_complete(did).await;
        assert_eq!(complete, Ok(()), "{did}");
    }

    /// Keeps the desk of a repository busy until the other end is dropped.
    pub async fn hold_desk(&self, did: &Did) -> SyncSender<()> {
        let (hold, held) = sync_channel::<()>(1);
        let (enter, entered) = channel();
        let (desks, did) = (self.mirror().desks().clone(), did.clone());
        tokio::spawn(async move {
            let visit = desks.visit(&did, move |_| {
                let _ = enter.send(());
                // Ends when the other end is dropped.
                let _ = held.recv();
            });
            visit.await
        });
        entered.await.expect("the desk is held");
        hold
    }
}

impl World {
    /// Lets the store write nothing more until the other end is dropped; what is
    /// decided meanwhile waits for it.
    pub async fn hold_store(&self) -> SyncSender<()> {
        let (hold, entered) = self.hold_store_here();
        entered.await.expect("the store is held");
        hold
    }

    /// The same, once the store has come to this place in its queue; the receiver
    /// says when.
    pub fn hold_store_here(&self) -> (SyncSender<()>, Receiver<()>) {
        let (hold, held) = sync_channel::<()>(1);
        let (enter, entered) = channel();
        let store = &self.mirror().services().store;
        store.submit(Change::default(), move |_| {
            let _ = enter.send(());
            // Ends when the other end is dropped.
            let _ = held.recv();
        });
        (hold, entered)
    }

    /// Waits until a host's events are read, durable or not.
    pub async fn all_read(&self, place: Place) {
        let last = self.net.last_seq(place);
        self.until("all of it is read", async |world: &World| {
            let read = world.read(place);
            said(read == last, &(read, last))
        })
        .await;
    }

    /// So many events of another host are read, one after the other: what should
    /// not happen has had its time.
    pub async fn meanwhile(&self, did: &Did, place: Place, events: u32) {
        for _ in 0..events {
            self.post(did);
            self.all_read(place).await;
        }
    }

    /// An account that lives on a host, by its number there.
    pub fn account(&self, host: usize, number: usize) -> Did {
        let truth = self.net.truth();
        let there = truth.dids().into_iter();
        let mut there = there.filter(|did| truth.head(did).is_some_and(|head| head.host == host));
        there.nth(number).expect("it has so many")
    }

    /// Waits until so many commits were applied at their desks, durable or not.
    pub async fn applied(&self, least: u64) {
        self.until("it is applied", async |world: &World| {
            let applied = world.metrics().events_applied.get();
            said(applied >= least, &applied)
        })
        .await;
    }

    /// What is owed to a repository is tried now, as if the time for it had come.
    pub async fn try_now(&self, did: &Did) {
        let visit = self.mirror().desks().visit(did, |turn| {
            if let Some(tx) = turn.tx.as_mut() {
                tx.repo.debt.next_try = Time(0);
            }
        });
        visit.await.expect("it is written");
    }
}

/// A condition for [`World::until`], with what was seen if it does not hold.
pub fn said(holds: bool, seen: &impl std::fmt::Debug) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(format!("{seen:?}")),
    }
}
