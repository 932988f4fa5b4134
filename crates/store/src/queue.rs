//! The queue of changes that wait to be written: first in, first out, bounded by count and by
//! bytes. A caller whose change does not fit waits.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::MutexGuard;

use crate::change::{Ack, Change};
use crate::error::StoreError;
use crate::prepare::{PreparedChange, prepare};
use crate::sync::{Condvar, Mutex};

/// The limits of a group of changes and of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// The most changes in one batch.
    pub group_changes: usize,
    /// The target size of one batch: once a batch has this many bytes, no change is
    /// added. Also the most bytes taken from the queue at once, unless one change is
    /// larger.
    pub group_bytes: usize,
    pub queue_changes: usize,
    pub queue_bytes: usize,
}

impl Default for GroupLimits {
    fn default() -> GroupLimits {
        GroupLimits {
            group_changes: 4_096,
            group_bytes: 8 << 20,
            queue_changes: 16_384,
            queue_bytes: 32 << 20,
        }
    }
}

/// A function that receives the result of a change.
type AckFn = dyn FnOnce(Result<Ack, StoreError>) + Send;

/// The callback for one change. It is called exactly once, whatever happens, on one of the store's
/// own threads, so it must be short.
pub struct AckCallback(Option<Box<AckFn>>);

impl AckCallback {
    pub fn new(tell: impl FnOnce(Result<Ack, StoreError>) + Send + 'static) -> AckCallback {
        AckCallback(Some(Box::new(tell)))
    }

    pub fn call(mut self, answer: Result<Ack, StoreError>) {
        if let Some(tell) = self.0.take() {
            tell(answer);
        }
    }
}

impl Drop for AckCallback {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            // The thread is probably unwinding, and a second panic would abort the
            // process. The first panic is reported; this one is only printed.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                tell(Err(StoreError::CommitterGone));
            }));
        }
    }
}

/// Calls every callback, and only then resumes the panic of any of them.
pub(crate) fn call_all(answers: impl Iterator<Item = (AckCallback, Result<Ack, StoreError>)>) {
    let mut panicked = None;
    for (reply, answer) in answers {
        let told = catch_unwind(AssertUnwindSafe(|| reply.call(answer)));
        panicked = panicked.or(told.err());
    }
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

/// A change with its callback, checked and ready for the queue.
pub struct Submission {
    pub(crate) change: PreparedChange,
    pub(crate) reply: AckCallback,
}

impl Submission {
    /// Prepares a change. Returns `None` if it contradicts itself, after calling the callback.
    pub fn new(change: Change, reply: AckCallback) -> Option<Submission> {
        match prepare(change) {
            Ok(change) => Some(Submission { change, reply }),
            Err(contradiction) => {
                reply.call(Err(contradiction.into()));
                None
            }
        }
    }
}

#[derive(Default)]
struct Inner {
    /// The queued changes, each with its size in bytes.
    work: VecDeque<(Submission, usize)>,
    bytes: usize,
    closed: bool,
}

/// The bounded queue between the submitters of changes and the committer.
pub struct Queue {
    limits: GroupLimits,
    inner: Mutex<Inner>,
    came: Condvar,
    went: Condvar,
}

impl Queue {
    pub fn new(limits: GroupLimits) -> Queue {
        Queue {
            limits,
            inner: Mutex::default(),
            came: Condvar::default(),
            went: Condvar::default(),
        }
    }

    /// Enqueues a change, blocking while the queue is full. Replies `Closed` once the queue is closed.
    pub fn push(&self, work: Submission) {
        let bytes = work.change.bytes();
        let mut inner = self.inner.lock();
        while !inner.closed && self.is_full(&inner, bytes) {
            inner = self.went.wait(inner);
        }
        self.insert(inner, work, bytes);
    }

    /// Enqueues a change if the queue has room for it now, and hands it back if not.
    pub(crate) fn try_push(&self, work: Box<Submission>) -> Result<(), Box<Submission>> {
        let bytes = work.change.bytes();
        let inner = self.inner.lock();
        if !inner.closed && self.is_full(&inner, bytes) {
            return Err(work);
        }
        self.insert(inner, *work, bytes);
        Ok(())
    }

    fn insert(&self, mut inner: MutexGuard<'_, Inner>, work: Submission, bytes: usize) {
        if inner.closed {
            drop(inner);
            work.reply.call(Err(StoreError::Closed));
            return;
        }
        inner.bytes += bytes;
        inner.work.push_back((work, bytes));
        self.came.notify_one();
    }

    /// Whether the queue has no room. An empty queue accepts even a change above its limit.
    fn is_full(&self, inner: &Inner, bytes: usize) -> bool {
        !inner.work.is_empty()
            && (inner.work.len() >= self.limits.queue_changes
                || inner.bytes + bytes > self.limits.queue_bytes)
    }

    /// Takes the next group, blocking while the queue is empty. Returns `None` once the queue is
    /// closed and empty.
    pub fn take(&self) -> Option<Vec<Submission>> {
        let mut inner = self.inner.lock();
        while inner.work.is_empty() {
            if inner.closed {
                return None;
            }
            inner = self.came.wait(inner);
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some((_, size)) = inner.work.front() {
            let full =
                group.len() >= self.limits.group_changes || bytes + size > self.limits.group_bytes;
            if full && !group.is_empty() {
                break;
            }
            if let Some((work, size)) = inner.work.pop_front() {
                bytes += size;
                group.push(work);
            }
        }
        inner.bytes -= bytes;
        self.went.notify_all();
        Some(group)
    }

    /// Closes the queue: it accepts no more changes, and those in it are still taken.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.came.notify_all();
        self.went.notify_all();
    }

    /// The target size of one batch, at least 1.
    pub fn group_bytes(&self) -> usize {
        self.limits.group_bytes.max(1)
    }

    /// The number of queued changes, and their bytes.
    pub fn depth(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.work.len(), inner.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::change::DeadChange;
    use crate::table::dead::{DeadClass, DeadLetter, Resolution};

    const LIMITS: GroupLimits = GroupLimits {
        group_changes: 3,
        group_bytes: 4_000,
        queue_changes: 5,
        queue_bytes: 100_000,
    };

    fn work(bytes: usize, reply: AckCallback) -> Submission {
        let letter = DeadLetter {
            class: DeadClass::Invalid,
            source: None,
            repo: None,
            error: String::new(),
            payload: vec![0; bytes],
            attempts: 0,
            first_seen: gapless_core::ledger::Time(0),
            resolution: Resolution::Open,
        };
        let change = Change {
            dead: Some(DeadChange::New(letter)),
            ..Change::default()
        };
        Submission::new(change, reply).unwrap()
    }

    fn ignored_answer() -> AckCallback {
        AckCallback::new(|_| {})
    }

    #[test]
    fn groups_are_bounded_by_changes_and_by_bytes() {
        let queue = Queue::new(LIMITS);
        for bytes in [10, 10, 10, 10, 50_000] {
            queue.push(work(bytes, ignored_answer()));
        }
        assert_eq!(queue.take().unwrap().len(), 3);
        assert_eq!(queue.take().unwrap().len(), 1, "the large one does not fit");
        assert_eq!(queue.take().unwrap().len(), 1, "and goes alone");
        assert_eq!(queue.depth(), (0, 0));
    }

    #[test]
    fn a_full_queue_takes_nothing_until_something_goes() {
        let queue = Queue::new(LIMITS);
        for _ in 0..5 {
            queue.push(work(10, ignored_answer()));
        }
        let back = queue
            .try_push(Box::new(work(10, ignored_answer())))
            .err()
            .unwrap();
        queue.take().unwrap();
        assert!(queue.try_push(back).is_ok());
        queue.take().unwrap();
        queue.push(work(99_000, ignored_answer()));
        assert!(
            queue
                .try_push(Box::new(work(5_000, ignored_answer())))
                .is_err(),
            "bytes count"
        );
    }

    #[test]
    fn a_push_that_waits_for_room_is_answered_when_the_queue_closes() {
        let queue = Arc::new(Queue::new(LIMITS));
        for _ in 0..5 {
            queue.push(work(10, ignored_answer()));
        }
        let told = Arc::new(AtomicUsize::new(0));
        let pushers: Vec<_> = (0..4)
            .map(|_| {
                let (queue, told) = (queue.clone(), told.clone());
                std::thread::spawn(move || {
                    let reply = AckCallback::new(move |answer| {
                        assert!(matches!(answer, Err(StoreError::Closed)));
                        told.fetch_add(1, Ordering::SeqCst);
                    });
                    queue.push(work(10, reply));
                })
            })
            .collect();
        queue.close();
        for pusher in pushers {
            pusher.join().unwrap();
        }
        assert_eq!(told.load(Ordering::SeqCst), 4);
        let left: usize = std::iter::from_fn(|| queue.take())
            .map(|group| group.len())
            .sum();
        assert_eq!(left, 5, "what was in is still taken");
    }

    #[test]
    fn a_reply_that_is_dropped_tells_all_the_same() {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        drop(AckCallback::new(move |answer| tell.send(answer).unwrap()));
        assert!(matches!(told.recv(), Ok(Err(StoreError::CommitterGone))));
    }
}
