//! What a test does to a [`World`]: injects faults, writes records, holds back requests and
//! threads, and fills the disk.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use gapless_atp::syntax::Did;
use gapless_core::ledger::{Time, UpstreamKind};
use gapless_mirror::api::{NewUpstream, Operate as _};
use gapless_mirror::failpoints;
use gapless_store::change::Change;
use gapless_store::space::pretended;
use gapless_testnet::{Fault, NewCommit, Place, SetFault, Spec, Write};
use tokio::sync::oneshot::{Receiver, channel};

use crate::{World, new_path, record};

/// The first host.
pub const PDS: Place = Place::Pds(0);

/// The text that a mirror logs when its disk is full.
const FULL: &str = "nothing is written until there is room on the disk";

/// A number that no other test in this process uses.
pub fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// The creation of a new post.
pub fn new_post() -> Write {
    let path = new_path();
    let record = record(&path);
    Write::Create { path, record }
}

impl World {
    /// Injects a fault. A fault that is done at once must have fired.
    pub fn inject(&self, spec: Spec) -> SetFault {
        let set = self.net.fault(spec.clone()).expect("it can be set");
        assert!(set.id.is_some() || set.fired > 0, "{spec:?} did nothing");
        set
    }

    /// Declares a fault to be a guard: the test does not fail if the fault never fires.
    pub fn need_not_fire(&self, set: SetFault) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.insert(set.id.expect("it waits for its moment"));
    }

    /// Waits until a fault has fired, then ends it. Events that a reorder still holds are sent.
    pub async fn clear(&self, set: SetFault) {
        let id = set.id.expect("it waits for its moment");
        self.until("the fault fires", async |world: &World| {
            crate::condition(!world.unfired(id), &id)
        })
        .await;
        self.drop_fault(set);
    }

    /// Ends a fault, whether it has fired or not.
    pub fn drop_fault(&self, set: SetFault) {
        let id = set.id.expect("it waits for its moment");
        assert!(self.net.clear_fault(id), "it was set");
    }

    /// How often faults of this name have fired.
    pub fn fired(&self, fault: &str) -> u64 {
        self.net.faults().fired(fault)
    }

    /// Holds back the answers of a host to requests of this kind, of one repository or of all,
    /// until the fault is cleared.
    pub fn stall(&self, host: usize, route: &str, did: Option<&Did>) -> SetFault {
        let route = Some(route.to_owned());
        let spec = Spec::new(Fault::Stall { ms: None, route }).on(Place::Pds(host));
        self.inject(match did {
            None => spec,
            Some(did) => spec.of(did),
        })
    }

    /// Stalls a route of the first host as a guard, so that no answer on this route can explain
    /// what the test sees. The test does not fail if no such request is made.
    pub fn guard(&self, route: &str) -> SetFault {
        let stalled = self.stall(0, route, None);
        self.need_not_fire(stalled);
        stalled
    }

    /// Slows the next answer on a route down to this many bytes per second.
    pub fn drip(&self, host: usize, route: &str, bytes_per_second: u64) -> SetFault {
        let spec = Spec::new(Fault::Drip {
            bytes_per_second,
            route: Some(route.to_owned()),
        });
        self.inject(spec.on(Place::Pds(host)).times(1))
    }

    /// Makes the mirror panic the next time it passes a failpoint for this repository.
    ///
    /// Failpoints are global to the process and identify a repository by its DID alone, so no other
    /// test may have the same accounts; see [`own_accounts`].
    pub fn inject_panic(&self, point: &'static str, did: &Did) {
        self.assert_own_accounts();
        failpoints::panic_at(point, did);
    }

    /// Makes the decision about the next event of a repository panic; see
    /// [`World::inject_panic`].
    pub fn inject_panic_in_event(&self, did: &Did) {
        self.assert_own_accounts();
        failpoints::panic_at_event(did);
    }

    fn assert_own_accounts(&self) {
        assert!(
            self.own_accounts,
            "tests that run beside this one have the same accounts: give it own_accounts()"
        );
    }

    /// Makes a commit that gets a number and is never sent.
    pub fn lose_commit(&self, did: &Did) -> NewCommit {
        let fired = self.fired("drop");
        let drop = Fault::Drop { unnumbered: false };
        self.inject(Spec::new(drop).of(did).times(1));
        let made = self.post(did);
        assert_eq!(self.fired("drop"), fired + 1);
        made
    }

    /// Makes a commit whose event says `tooBig`, so that only a fetch brings its records.
    pub fn too_big(&self, did: &Did) -> NewCommit {
        let fired = self.fired("too-big");
        self.inject(Spec::new(Fault::TooBig {}).of(did).times(1));
        let made = self.post(did);
        assert_eq!(self.fired("too-big"), fired + 1);
        made
    }

    /// Makes a host send `OutdatedCursor` on its open stream, and waits for the mirror's reset.
    pub async fn reset(&self, host: usize) {
        let resets = self.metrics().resets.get();
        let info = Fault::Info {
            name: "OutdatedCursor".to_owned(),
            message: None,
        };
        let set = self.inject(Spec::new(info).on(Place::Pds(host)));
        assert_eq!(set.fired, 1);
        self.until_counted("a reset", |metrics| metrics.resets.get(), resets + 1)
            .await;
    }

    /// Makes one commit with one new record.
    pub fn post(&self, did: &Did) -> NewCommit {
        self.write(did, &[new_post()])
    }

    pub fn write(&self, did: &Did, writes: &[Write]) -> NewCommit {
        self.net.write(did, writes).expect("it is written")
    }

    /// Adds an upstream to the running mirror.
    pub async fn add(&self, kind: UpstreamKind, url: String, host: Option<String>) {
        let new = NewUpstream { kind, url, host };
        let added = self
            .ask(move |mirror| mirror.control().add_upstream(new))
            .await;
        added.expect("it is added");
    }

    /// Makes the debts of a repository due now.
    pub async fn try_now(&self, did: &Did) {
        let change = self.mirror().desks().with_repo(did, |turn| {
            if let Some(tx) = turn.tx.as_mut() {
                tx.repo.debt.next_try = Time(0);
            }
        });
        change.await.expect("it is written");
    }

    /// Blocks the desk of a repository until the returned sender is dropped.
    pub async fn block_desk(&self, did: &Did) -> SyncSender<()> {
        let (hold, held) = sync_channel::<()>(1);
        let (enter, entered) = channel();
        let (desks, did) = (self.mirror().desks().clone(), did.clone());
        tokio::spawn(async move {
            let change = desks.with_repo(&did, move |_| {
                let _ = enter.send(());
                // Ends when the other end is dropped.
                let _ = held.recv();
            });
            change.await
        });
        entered.await.expect("the desk is held");
        hold
    }

    /// Blocks the store until the returned sender is dropped. Changes that are decided meanwhile
    /// wait for the store.
    pub async fn block_store(&self) -> SyncSender<()> {
        let (hold, entered) = self.block_store_here();
        entered.await.expect("the store is held");
        hold
    }

    /// Blocks the store when it reaches this place in its queue, until the sender is dropped. The
    /// receiver reports that the store has reached the place.
    pub fn block_store_here(&self) -> (SyncSender<()>, Receiver<()>) {
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

    /// Blocks the queue of the store until the returned sender is dropped. The writer has one group
    /// and the committer the next one, so every further change stays in the queue.
    pub async fn block_queue(&self) -> SyncSender<()> {
        let hold = self.block_store().await;
        for _ in 0..2 {
            let store = &self.mirror().services().store;
            store.submit(Change::default(), |_| {});
            self.until_none_queued().await;
        }
        hold
    }

    /// Makes the disk of the mirror appear full.
    pub fn fill_disk(&self) {
        self.expect(FULL);
        pretended::set(&self.data(), Some(0));
    }

    /// Makes the disk of the mirror appear to have this much free space.
    pub fn set_free_bytes(&self, bytes: u64) {
        pretended::set(&self.data(), Some(bytes));
    }

    pub fn free_disk(&self) {
        pretended::set(&self.data(), None);
    }
}
