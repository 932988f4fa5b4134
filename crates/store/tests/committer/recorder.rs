//! A store that records every step on the way to the disk, and can be stopped or made to fail
//! at each.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use gapless_store::Store;
use gapless_store::engine::{Engine, EngineError, MemoryEngine, RawBatch, View};
use gapless_store::error::StoreError;
use gapless_store::queue::GroupLimits;
use gapless_store::space::DiskFull;
use gapless_store::sync_writer::{DurableHead, Sidecar, SpaceCheck};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Room,
    Frames(u64),
    Redact(u64),
    Commit,
    Head(u64),
    Close,
}

/// Writes every step down, stops before a step when it is told to, and fails at
/// the step it is told.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub memory: MemoryEngine,
    pub shared: Arc<Mutex<Script>>,
}

#[derive(Default)]
pub(crate) struct Script {
    steps: Vec<Step>,
    pub fail: Option<&'static str>,
    pub full: bool,
    pub taken: u64,
    gate: Option<(SyncSender<()>, Receiver<()>)>,
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        Recorder {
            memory: MemoryEngine::new(),
            shared: Arc::default(),
        }
    }

    pub(crate) fn store(&self) -> Store {
        let (engine, beside) = (Box::new(self.clone()), Box::new(self.clone()));
        Store::start(engine, beside, GroupLimits::default()).unwrap()
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        self.shared.lock().unwrap().steps.clone()
    }

    pub(crate) fn count(&self, step: Step) -> usize {
        self.steps().iter().filter(|made| **made == step).count()
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.shared.lock().unwrap().full = full;
    }

    pub(crate) fn fail_at(&self, step: &'static str) {
        self.shared.lock().unwrap().fail = Some(step);
    }

    /// The next commit says that it is there, and waits.
    pub(crate) fn gate(&self) -> (Receiver<()>, SyncSender<()>) {
        let (at_gate, seen) = sync_channel(0);
        let (open, wait) = sync_channel(0);
        self.shared.lock().unwrap().gate = Some((at_gate, wait));
        (seen, open)
    }

    fn step(&self, step: Step, name: &'static str) -> Result<(), StoreError> {
        let mut script = self.shared.lock().unwrap();
        script.steps.push(step);
        if script.fail == Some(name) {
            Err(StoreError::System(name.into()))
        } else {
            Ok(())
        }
    }
}

impl Engine for Recorder {
    fn commit(&mut self, batch: &RawBatch) -> Result<(), EngineError> {
        let gate = self.shared.lock().unwrap().gate.take();
        if let Some((at_gate, wait)) = gate {
            at_gate.send(()).unwrap();
            wait.recv().unwrap();
        }
        self.step(Step::Commit, "commit")
            .map_err(|error| EngineError::new("committing", error))?;
        self.memory.commit(batch)
    }

    fn snapshot(&self) -> Arc<dyn View> {
        self.memory.snapshot()
    }
}

impl SpaceCheck for Recorder {
    fn check(&mut self) -> Result<(), StoreError> {
        self.step(Step::Room, "room")?;
        if self.shared.lock().unwrap().full {
            Err(StoreError::Full(DiskFull {
                folder: "/data".into(),
                free_bytes: 5,
                min_free_bytes: 10,
            }))
        } else {
            Ok(())
        }
    }

    fn count_taken(&mut self, bytes: u64) {
        assert!(bytes > 0);
        self.shared.lock().unwrap().taken += bytes;
    }
}

impl Sidecar for Recorder {
    fn space_check(&mut self) -> Box<dyn SpaceCheck> {
        Box::new(self.clone())
    }

    fn write_frames(&mut self, frames: &[(u64, Vec<u8>)]) -> Result<(), StoreError> {
        for (seq, _) in frames {
            self.step(Step::Frames(*seq), "frames")?;
        }
        Ok(())
    }

    fn redact_frames(&mut self, numbers: &[u64]) -> Result<(), StoreError> {
        for seq in numbers {
            self.step(Step::Redact(*seq), "redact")?;
        }
        Ok(())
    }

    fn acknowledge(&mut self, head: DurableHead) -> Result<(), StoreError> {
        self.step(Step::Head(head.next_seq), "head")
    }

    fn close(&mut self) -> Result<(), StoreError> {
        self.step(Step::Close, "close")
    }
}
