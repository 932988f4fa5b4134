//! How it ends: who waits for whom, and what a fault of our own in an answer does.

use std::process::Command;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gapless_store::Store;
use gapless_store::book::{Beside, DurableHead, Room};
use gapless_store::engine::{Engine, EngineError, MemoryEngine, RawBatch, View};
use gapless_store::error::StoreError;
use gapless_store::queue::GroupLimits;
use gapless_store::space::Full;

use crate::event;

const SOON: Duration = Duration::from_secs(20);

/// A disk that stops where it is told to, and may be full.
#[derive(Clone, Default)]
struct Slow {
    memory: MemoryEngine,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    gate: Option<(SyncSender<()>, Receiver<()>)>,
    full: bool,
    commits: usize,
    closed: bool,
}

impl Slow {
    fn store(&self) -> Store {
        let (engine, beside) = (Box::new(self.clone()), Box::new(self.clone()));
        Store::start(engine, beside, GroupLimits::default()).unwrap()
    }

    /// The next commit says that it is there, and waits.
    fn shut(&self) -> (Receiver<()>, SyncSender<()>) {
        let (at_gate, seen) = sync_channel(0);
        let (open, wait) = sync_channel(1);
        self.shared.lock().unwrap().gate = Some((at_gate, wait));
        (seen, open)
    }
}

impl Engine for Slow {
    fn commit(&mut self, batch: &RawBatch) -> Result<(), EngineError> {
        let gate = self.shared.lock().unwrap().gate.take();
        if let Some((at_gate, wait)) = gate {
            at_gate.send(()).unwrap();
            wait.recv().unwrap();
        }
        self.shared.lock().unwrap().commits += 1;
        self.memory.commit(batch)
    }

    fn snapshot(&self) -> Arc<dyn View> {
        self.memory.snapshot()
    }
}

impl Room for Slow {
    fn check(&mut self) -> Result<(), StoreError> {
        match self.shared.lock().unwrap().full {
            true => Err(StoreError::Full(Full {
                folder: "/data".into(),
                free_bytes: 5,
                min_free_bytes: 10,
            })),
            false => Ok(()),
        }
    }

    fn taken(&mut self, _: u64) {}
}

impl Beside for Slow {
    fn room(&mut self) -> Box<dyn Room> {
        Box::new(self.clone())
    }

    fn keep_frames(&mut self, _: &[(u64, Vec<u8>)]) -> Result<(), StoreError> {
        Ok(())
    }

    fn acknowledge(&mut self, _: DurableHead) -> Result<(), StoreError> {
        Ok(())
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.shared.lock().unwrap().closed = true;
        Ok(())
    }
}

#[test]
fn the_last_handle_may_go_in_an_answer() {
    let slow = Slow::default();
    let store = Arc::new(slow.store());
    let (seen, open) = slow.shut();
    let (tell, told) = sync_channel(1);
    let held = store.clone();
    store.submit(event(1), move |answer| {
        assert_eq!(held.durable_head().next_seq, 2);
        assert!(held.close().is_ok(), "asked for, not waited for");
        drop(held);
        tell.send(answer.is_ok()).unwrap();
    });
    seen.recv().unwrap();
    drop(store);
    open.send(()).unwrap();
    assert_eq!(told.recv_timeout(SOON), Ok(true));
    while !slow.shared.lock().unwrap().closed {
        std::thread::yield_now();
    }
}

#[test]
fn the_end_waits_for_the_disk_even_when_the_committer_is_gone() {
    let slow = Slow::default();
    let store = slow.store();
    let (seen, open) = slow.shut();
    store.submit(event(1), |_| {});
    seen.recv().unwrap();
    slow.shared.lock().unwrap().full = true;
    let (tell, told) = sync_channel(1);
    store.submit(event(2), move |answer| {
        tell.send(()).unwrap();
        answer.expect("a fault of our own, on the committer's thread");
    });
    told.recv_timeout(SOON).unwrap();
    let (ended, end) = sync_channel(1);
    let shared = slow.shared.clone();
    std::thread::spawn(move || {
        let closed = store.close();
        drop(store);
        let commits = shared.lock().unwrap().commits;
        ended.send((closed.is_err(), commits)).unwrap();
    });
    let early = end.recv_timeout(Duration::from_millis(300));
    assert!(early.is_err(), "ended while the disk is at work: {early:?}");
    open.send(()).unwrap();
    assert_eq!(end.recv_timeout(SOON), Ok((true, 1)));
}

#[test]
fn whoever_ends_it_a_second_time_waits_too_and_is_told_the_same() {
    let slow = Slow::default();
    let store = Arc::new(slow.store());
    let (seen, open) = slow.shut();
    store.submit(event(1), |_| {});
    seen.recv().unwrap();
    let (tell, told) = sync_channel(2);
    for _ in 0..2 {
        let (store, tell, shared) = (store.clone(), tell.clone(), slow.shared.clone());
        std::thread::spawn(move || {
            let closed = store.close();
            let commits = shared.lock().unwrap().commits;
            tell.send((closed.is_ok(), commits)).unwrap();
        });
    }
    open.send(()).unwrap();
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(SOON), Ok((true, 1)));
    }
    assert!(store.close().is_ok());

    let failed = Slow::default();
    failed.memory.fail("no more disk");
    let store = Store::start(
        Box::new(failed.clone()),
        Box::new(failed),
        GroupLimits::default(),
    );
    assert!(store.is_err(), "not even read");
}

#[test]
fn a_failure_is_told_at_every_end() {
    let slow = Slow::default();
    let store = slow.store();
    slow.memory.fail("no more disk");
    assert!(store.write(event(1)).is_err());
    for _ in 0..2 {
        let error = store.close().unwrap_err();
        assert!(error.to_string().contains("no more disk"), "{error}");
    }
}

/// Whoever is durable is told so, whatever the answers of others do.
#[test]
fn a_panic_in_an_answer_is_nobody_elses() {
    let slow = Slow::default();
    let store = slow.store();
    let (seen, open) = slow.shut();
    store.submit(event(1), |_| {});
    seen.recv().unwrap();
    // One more is applied behind it; the rest is one group.
    store.submit(event(2), |_| {});
    while store.queue_depth().0 > 0 {
        std::thread::yield_now();
    }
    let (tell, told) = sync_channel(9);
    store.submit(event(3), |_| panic!("a test wants to see what happens"));
    store.submit(event(4), move |answer| tell.send(answer.is_ok()).unwrap());
    open.send(()).unwrap();
    let answered = told.recv_timeout(SOON).unwrap();
    assert!(matches!(store.close(), Err(StoreError::CommitterGone)));
    let durable = store.view().counters().unwrap().next_seq == 5;
    assert!(
        answered && durable,
        "answered {answered}, durable {durable}"
    );
}

const CHILD: &str = "GAPLESS_TEST_PANICS";

/// Two panics at once would end the process: so the second is held back.
#[test]
fn many_panics_in_answers_do_not_end_the_process() {
    if std::env::var_os(CHILD).is_some() {
        let slow = Slow::default();
        let store = slow.store();
        let (seen, open) = slow.shut();
        store.submit(event(1), |_| {});
        seen.recv().unwrap();
        for who in 2..6 {
            store.submit(event(who), |answer| {
                answer.expect("it is durable, or not");
                panic!("a test wants to see what happens");
            });
        }
        open.send(()).unwrap();
        assert!(store.close().is_err());
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let name = "ends::many_panics_in_answers_do_not_end_the_process";
    let ended = child.args(["--exact", name]).env(CHILD, "1").output();
    let ended = ended.unwrap();
    assert!(ended.status.success(), "{}", ended.status);
}
