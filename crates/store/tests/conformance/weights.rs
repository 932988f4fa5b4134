//! Tests the limit on the bytes of one batch.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use gapless_store::Store;
use gapless_store::engine::{Engine, EngineError, MemoryEngine, RawBatch, View};
use gapless_store::queue::GroupLimits;
use gapless_store::sync_writer::NoSidecar;

use crate::owner::Owner;

type Gate = Arc<Mutex<Option<(SyncSender<()>, Receiver<()>)>>>;

#[derive(Clone, Default)]
struct Weighs {
    memory: MemoryEngine,
    gate: Gate,
    heaviest: Arc<Mutex<usize>>,
}

impl Engine for Weighs {
    fn commit(&mut self, batch: &RawBatch) -> Result<(), EngineError> {
        let gate = self.gate.lock().unwrap().take();
        if let Some((at_gate, wait)) = gate {
            at_gate.send(()).unwrap();
            wait.recv().unwrap();
        }
        let bytes = |write: &gapless_store::engine::RawWrite| {
            write.key.len() + write.value.as_ref().map_or(0, |value| value.len())
        };
        let bytes = batch.writes.iter().map(bytes).sum();
        let mut heaviest = self.heaviest.lock().unwrap();
        *heaviest = (*heaviest).max(bytes);
        self.memory.commit(batch)
    }

    fn snapshot(&self) -> Arc<dyn View> {
        self.memory.snapshot()
    }
}

/// Each deletes one record of 100 kB, whose bytes are kept as a version: the batch
/// has them all, and the queue weighed a few hundred bytes for each.
#[test]
fn a_group_has_no_more_bytes_than_it_may() {
    let engine = Weighs::default();
    let limits = GroupLimits {
        group_bytes: 256 << 10,
        ..GroupLimits::default()
    };
    let store = Store::start(Box::new(engine.clone()), Box::new(NoSidecar), limits).unwrap();
    let mut alice = Owner::new(1);
    let large = "x".repeat(100_000);
    let paths: Vec<String> = (0..200).map(|number| format!("a/{number:03}")).collect();
    for path in &paths {
        store.write(alice.live(&[(path, Some(&large))])).unwrap();
    }
    assert!(*engine.heaviest.lock().unwrap() <= 256 << 10);
    let (at_gate, seen) = sync_channel(0);
    let (open, wait) = sync_channel(1);
    *engine.gate.lock().unwrap() = Some((at_gate, wait));
    for (place, path) in paths.iter().enumerate() {
        store.submit(alice.live(&[(path, None)]), |answer| {
            answer.unwrap();
        });
        if place == 0 {
            seen.recv().unwrap();
        }
    }
    open.send(()).unwrap();
    store.close().unwrap();
    let heaviest = *engine.heaviest.lock().unwrap();
    assert!(
        heaviest <= 2 * (256 << 10),
        "one batch has {heaviest} bytes"
    );
}
