//! What waits to be written: first come, first served, bounded by count and by
//! bytes. Whoever brings more than there is room for waits.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::change::{Ack, Change};
use crate::error::StoreError;
use crate::prepare::{Prepared, prepare};

/// How much is taken at once, and how much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// Changes in one batch at most.
    pub group_changes: usize,
    /// Bytes in one batch, and in what is taken for one: when so many are reached
    /// nothing more is put in.
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

type Tell = dyn FnOnce(Result<Ack, StoreError>) + Send;

/// Who is told what became of a change: exactly once, whatever happens. Called
/// on one of the store's own threads, so it must be short.
pub struct Reply(Option<Box<Tell>>);

impl Reply {
    pub fn new(tell: impl FnOnce(Result<Ack, StoreError>) + Send + 'static) -> Reply {
        Reply(Some(Box::new(tell)))
    }

    pub fn tell(mut self, answer: Result<Ack, StoreError>) {
        if let Some(tell) = self.0.take() {
            tell(answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            // Very likely something is unwinding: a second panic would end the
            // process. The first one is told; this one only printed.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                tell(Err(StoreError::CommitterGone));
            }));
        }
    }
}

/// Gives everybody their answer, and only then lets go of a panic of any of them.
pub fn tell_all(answers: impl Iterator<Item = (Reply, Result<Ack, StoreError>)>) {
    let mut panicked = None;
    for (reply, answer) in answers {
        let told = catch_unwind(AssertUnwindSafe(|| reply.tell(answer)));
        panicked = panicked.or(told.err());
    }
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

/// A change and who waits for it.
pub struct Work {
    pub(crate) change: Prepared,
    pub(crate) reply: Reply,
}

impl Work {
    /// None when the change contradicts itself: then that is told at once.
    pub fn new(change: Change, reply: Reply) -> Option<Work> {
        match prepare(change) {
            Ok(change) => Some(Work { change, reply }),
            Err(contradiction) => {
                reply.tell(Err(contradiction.into()));
                None
            }
        }
    }
}

#[derive(Default)]
struct Waiting {
    work: VecDeque<(Work, usize)>,
    bytes: usize,
    closed: bool,
}

pub struct Queue {
    limits: GroupLimits,
    waiting: Mutex<Waiting>,
    came: Condvar,
    went: Condvar,
}

impl Queue {
    pub fn new(limits: GroupLimits) -> Queue {
        Queue {
            limits,
            waiting: Mutex::default(),
            came: Condvar::new(),
            went: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing in here can panic half way.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts work at the end, waiting for room. After the end, says so.
    pub fn push(&self, work: Work) {
        let bytes = work.change.bytes();
        let mut waiting = self.lock();
        while !waiting.closed && self.is_full(&waiting, bytes) {
            waiting = self
                .went
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.insert(waiting, work, bytes);
    }

    /// Puts work at the end if there is room now, and hands it back if not.
    pub fn try_push(&self, work: Box<Work>) -> Result<(), Box<Work>> {
        let bytes = work.change.bytes();
        let waiting = self.lock();
        if !waiting.closed && self.is_full(&waiting, bytes) {
            return Err(work);
        }
        self.insert(waiting, *work, bytes);
        Ok(())
    }

    fn insert(&self, mut waiting: MutexGuard<'_, Waiting>, work: Work, bytes: usize) {
        if waiting.closed {
            drop(waiting);
            work.reply.tell(Err(StoreError::Closed));
            return;
        }
        waiting.bytes += bytes;
        waiting.work.push_back((work, bytes));
        self.came.notify_one();
    }

    /// A change larger than the whole queue gets in when it is alone.
    fn is_full(&self, waiting: &Waiting, bytes: usize) -> bool {
        !waiting.work.is_empty()
            && (waiting.work.len() >= self.limits.queue_changes
                || waiting.bytes + bytes > self.limits.queue_bytes)
    }

    /// The next group, as soon as there is anything; none after the end, when
    /// everything was taken.
    pub fn take(&self) -> Option<Vec<Work>> {
        let mut waiting = self.lock();
        while waiting.work.is_empty() {
            if waiting.closed {
                return None;
            }
            waiting = self
                .came
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let mut group = Vec::new();
        let mut bytes = 0;
        while let Some((_, size)) = waiting.work.front() {
            let full =
                group.len() >= self.limits.group_changes || bytes + size > self.limits.group_bytes;
            if full && !group.is_empty() {
                break;
            }
            if let Some((work, size)) = waiting.work.pop_front() {
                bytes += size;
                group.push(work);
            }
        }
        waiting.bytes -= bytes;
        self.went.notify_all();
        Some(group)
    }

    /// Nothing more comes in; what is in is still taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.came.notify_all();
        self.went.notify_all();
    }

    /// Bytes that a batch may reach.
    pub fn group_bytes(&self) -> usize {
        self.limits.group_bytes.max(1)
    }

    /// Changes that wait, and their bytes.
    pub fn depth(&self) -> (usize, usize) {
        let waiting = self.lock();
        (waiting.work.len(), waiting.bytes)
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

    fn work(bytes: usize, reply: Reply) -> Work {
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
        Work::new(change, reply).unwrap()
    }

    fn nobody() -> Reply {
        Reply::new(|_| {})
    }

    #[test]
    fn groups_are_bounded_by_changes_and_by_bytes() {
        let queue = Queue::new(LIMITS);
        for bytes in [10, 10, 10, 10, 50_000] {
            queue.push(work(bytes, nobody()));
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
            queue.push(work(10, nobody()));
        }
        let back = queue.try_push(Box::new(work(10, nobody()))).err().unwrap();
        queue.take().unwrap();
        assert!(queue.try_push(back).is_ok());
        queue.take().unwrap();
        queue.push(work(99_000, nobody()));
        assert!(
            queue.try_push(Box::new(work(5_000, nobody()))).is_err(),
            "bytes count"
        );
    }

    #[test]
    fn whoever_waits_for_room_is_let_in_or_told_of_the_end() {
        let queue = Arc::new(Queue::new(LIMITS));
        for _ in 0..5 {
            queue.push(work(10, nobody()));
        }
        let told = Arc::new(AtomicUsize::new(0));
        let pushers: Vec<_> = (0..4)
            .map(|_| {
                let (queue, told) = (queue.clone(), told.clone());
                std::thread::spawn(move || {
                    let reply = Reply::new(move |answer| {
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
        drop(Reply::new(move |answer| tell.send(answer).unwrap()));
        assert!(matches!(told.recv(), Ok(Err(StoreError::CommitterGone))));
    }
}
