//! The memory budget of one build of a tree: the batches that wait for their use, and the
//! records that are kept so that an export need not read them again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::serve::getrepo::batch::{BatchContent, RecordBatch};
use gapless_mirror::budget::Lease;
use gapless_store::sync::Mutex;

/// Whether the records of a build are kept, and the memory of its batches.
pub(crate) struct RecordBudget {
    /// Whether records are kept. Once false, the value stays false.
    keeps: AtomicBool,
    /// The lease of memory, and the bytes of all batches so far.
    taken: Mutex<(Lease, u64)>,
}

impl RecordBudget {
    pub(crate) fn new(keeps: bool, lease: Lease) -> Arc<RecordBudget> {
        Arc::new(RecordBudget {
            keeps: AtomicBool::new(keeps),
            taken: Mutex::new((lease, 0)),
        })
    }

    /// Whether the batches keep their records in memory.
    pub(crate) fn keeps_records(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    /// Drops the records of later batches: from now on only keys are read.
    pub(crate) fn stop_keeping(&self) {
        self.keeps.store(false, Ordering::Relaxed);
    }

    /// What a batch must hold: keys, and the verified records while records are kept.
    pub(crate) fn content(&self) -> BatchContent {
        if self.keeps_records() {
            BatchContent::Both
        } else {
            BatchContent::Keys
        }
    }

    /// Takes the memory of one more batch. Returns false if the budget is used up.
    pub(crate) fn reserve(&self, batch: &RecordBatch) -> bool {
        let mut taken = self.taken.lock();
        let (lease, bytes) = &mut *taken;
        *bytes += batch.bytes() as u64;
        lease.grow_to(*bytes)
    }
}
