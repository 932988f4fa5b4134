//! Threads that build trees: two per concurrent build, one for each end of the
//! repository. A thread starts when it is first needed and then waits for the next build.
//! The kernel often places a new thread on the core of its creator, where the new thread
//! waits while another core is idle; long-lived threads avoid that delay.
//!
//! Concurrent builds are limited by permits. The pair of threads that became idle last is
//! used first, so a second pair does not start while one suffices.

use gapless_store::sync::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, MutexGuard, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Jobs that a thread may have: the next one, and an abandoned one that is about to end.
const QUEUED_JOBS: usize = 2;

type ThreadJob = Box<dyn FnOnce() + Send>;

/// A thread that runs jobs one after another.
pub(crate) struct BuildThread {
    name: &'static str,
    jobs: OnceLock<SyncSender<ThreadJob>>,
}

impl BuildThread {
    pub(crate) fn new(name: &'static str) -> Arc<BuildThread> {
        Arc::new(BuildThread {
            name,
            jobs: OnceLock::new(),
        })
    }

    /// Runs `work` on this thread. Returns `None` if the thread cannot start or its queue
    /// is full. If `work` panics, the receiver gets an error.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<oneshot::Receiver<T>> {
        let (tell, told) = oneshot::channel();
        let job: ThreadJob = Box::new(move || {
            // The requester may have stopped waiting.
            let _ = tell.send(work());
        });
        self.jobs()?.try_send(job).ok()?;
        Some(told)
    }

    fn jobs(&self) -> Option<&SyncSender<ThreadJob>> {
        if let Some(jobs) = self.jobs.get() {
            return Some(jobs);
        }
        let (jobs, given) = sync_channel::<ThreadJob>(QUEUED_JOBS);
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        let begun = thread.spawn(move || {
            for job in given {
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("reading a repository panicked; the request fails");
                }
            }
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "a thread that reads repositories cannot start; the request fails or reads more slowly");
            return None;
        }
        // If two callers race, the loser's thread ends at once.
        Some(self.jobs.get_or_init(|| jobs))
    }
}

/// The threads of one build, one for each end of the repository.
#[derive(Clone)]
struct ThreadPair {
    front: Arc<BuildThread>,
    back: Arc<BuildThread>,
}

/// The pairs of threads of all concurrent builds.
pub(crate) struct BuildThreads {
    idle: Mutex<Vec<ThreadPair>>,
    permits: Arc<Semaphore>,
}

/// A permit for one build, with its pair of threads. Dropping it returns the pair.
pub(crate) struct BuildPermit {
    threads: Arc<BuildThreads>,
    pair: ThreadPair,
    _permit: OwnedSemaphorePermit,
}

impl BuildThreads {
    pub(crate) fn new(pairs: usize) -> Arc<BuildThreads> {
        let pair = || ThreadPair {
            front: BuildThread::new("read"),
            back: BuildThread::new("read back"),
        };
        Arc::new(BuildThreads {
            idle: Mutex::new(std::iter::repeat_with(pair).take(pairs).collect()),
            permits: Arc::new(Semaphore::new(pairs)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ThreadPair>> {
        self.idle.lock()
    }

    /// Takes a permit if one is free.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<BuildPermit> {
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        self.with_pair(permit)
    }

    /// Waits for a permit. The caller sets the deadline.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Option<BuildPermit> {
        // The semaphore is never closed.
        let permit = self.permits.clone().acquire_owned().await.ok()?;
        self.with_pair(permit)
    }

    fn with_pair(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Option<BuildPermit> {
        // There are as many pairs as permits.
        let pair = self.lock().pop()?;
        Some(BuildPermit {
            threads: self.clone(),
            pair,
            _permit: permit,
        })
    }
}

impl BuildPermit {
    /// Runs `work` on the front thread of the pair; `work` may use the back thread too.
    /// The permit is held until `work` ends, even if the requester stops waiting.
    pub(crate) fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(&Arc<BuildThread>) -> T + Send + 'static,
    ) -> Option<oneshot::Receiver<T>> {
        let ThreadPair { front, back } = self.pair.clone();
        front.run(move || {
            let done = work(&back);
            // Before the result is sent: a requester that asks again at once finds it free.
            drop(self);
            done
        })
    }
}

impl Drop for BuildPermit {
    fn drop(&mut self) {
        self.threads.lock().push(self.pair.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use super::*;

    fn here() -> ThreadId {
        std::thread::current().id()
    }

    #[test]
    fn one_thread_does_one_thing_after_the_other() {
        let thread = BuildThread::new("a thread");
        let mut seen: Vec<ThreadId> = Vec::new();
        for _ in 0..3 {
            let told = thread.run(here).expect("a thread");
            seen.push(told.blocking_recv().expect("it is done"));
        }
        assert!(seen.iter().all(|thread| *thread == seen[0]), "{seen:?}");
        assert_ne!(seen[0], here());
    }

    #[test]
    fn what_panics_is_not_answered_and_the_next_one_is() {
        let thread = BuildThread::new("a thread");
        let first = thread.run(here).expect("a thread").blocking_recv();
        let fails = thread.run(|| panic!("a fault")).expect("a thread");
        assert!(fails.blocking_recv().is_err());
        let next = thread.run(here).expect("the same thread").blocking_recv();
        assert_eq!(first.expect("it is done"), next.expect("it is done"));
    }

    #[tokio::test]
    async fn a_turn_ends_with_its_work_even_if_its_waiter_is_dropped() {
        let threads = BuildThreads::new(1);
        let (go, goes) = sync_channel::<()>(1);
        let (begins, begun) = oneshot::channel();
        let permit = threads.try_acquire().expect("nobody has it");
        let work = permit.run(move |_| {
            begins.send(()).expect("somebody waits for it");
            goes.recv()
        });
        drop(work.expect("a thread"));
        begun.await.expect("it begins");
        assert!(threads.try_acquire().is_none(), "it is at work");
        go.send(()).expect("it waits for this");
        let permit = threads.acquire().await.expect("it is free again");
        let both = permit.run(|back| {
            let other = back.run(here).expect("a thread").blocking_recv();
            (here(), other.expect("it is done"))
        });
        let (front, back) = both.expect("a thread").await.expect("it is done");
        assert_ne!(front, back);
        assert!(threads.try_acquire().is_some(), "at once");
    }

    #[tokio::test]
    async fn work_that_panics_gives_its_turn_back() {
        let threads = BuildThreads::new(1);
        let permit = threads.try_acquire().expect("nobody has it");
        let work = permit.run(|_| panic!("a fault")).expect("a thread");
        assert!(work.await.is_err());
        assert!(threads.acquire().await.is_some());
    }

    #[test]
    fn the_last_one_used_is_taken_first() {
        let threads = BuildThreads::new(3);
        let front = |permit: &BuildPermit| Arc::as_ptr(&permit.pair.front);
        let (one, other) = (
            threads.try_acquire().expect("one"),
            threads.try_acquire().expect("two"),
        );
        let used = front(&one);
        drop(other);
        drop(one);
        assert_eq!(front(&threads.try_acquire().expect("one")), used);
    }
}
