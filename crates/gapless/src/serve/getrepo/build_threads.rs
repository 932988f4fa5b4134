//! Threads that build trees: two for each tree that is built at a time, one for either
//! end of the repository. They are begun when they are first needed and wait for the next
//! one then: a thread that is begun anew is often put beside the one that began it, and
//! waits for that while another core has nothing to do.
//!
//! Who asks waits for a turn, not for ever. Those that are idle are taken last in, first
//! out, so that a second pair is not even begun where one does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Jobs that wait: one, behind another that nobody wants any more and that is about to end.
const JOBS: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that does one thing after the other.
pub struct Hand {
    name: &'static str,
    jobs: OnceLock<SyncSender<Job>>,
}

impl Hand {
    pub fn new(name: &'static str) -> Arc<Hand> {
        Arc::new(Hand {
            name,
            jobs: OnceLock::new(),
        })
    }

    /// Does this there. None if no thread can be had, or it has enough to do; the answer
    /// never comes if it panics.
    pub fn give<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<oneshot::Receiver<T>> {
        let (tell, told) = oneshot::channel();
        let job: Job = Box::new(move || {
            // Nobody may want to know any more.
            let _ = tell.send(work());
        });
        self.jobs()?.try_send(job).ok()?;
        Some(told)
    }

    fn jobs(&self) -> Option<&SyncSender<Job>> {
        if let Some(jobs) = self.jobs.get() {
            return Some(jobs);
        }
        let (jobs, given) = sync_channel::<Job>(JOBS);
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        let begun = thread.spawn(move || {
            for job in given {
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("reading a repository ended unexpectedly");
                }
            }
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "no thread could be begun to read a repository");
            return None;
        }
        // If two begin one at a time, one of them ends at once.
        Some(self.jobs.get_or_init(|| jobs))
    }
}

/// One for either end.
#[derive(Clone)]
struct Pair {
    front: Arc<Hand>,
    back: Arc<Hand>,
}

/// As many pairs as may work at a time.
pub struct Hands {
    idle: Mutex<Vec<Pair>>,
    turns: Arc<Semaphore>,
}

/// A pair that is taken; free again when this is dropped.
pub struct Turn {
    hands: Arc<Hands>,
    pair: Pair,
    _turn: OwnedSemaphorePermit,
}

impl Hands {
    pub fn new(pairs: usize) -> Arc<Hands> {
        let pair = || Pair {
            front: Hand::new("read"),
            back: Hand::new("read back"),
        };
        Arc::new(Hands {
            idle: Mutex::new(std::iter::repeat_with(pair).take(pairs).collect()),
            turns: Arc::new(Semaphore::new(pairs)),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Pair>> {
        // Nothing in here can panic half way.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn, if nobody has to be waited for.
    pub fn free(self: &Arc<Self>) -> Option<Turn> {
        let turn = self.turns.clone().try_acquire_owned().ok()?;
        self.take(turn)
    }

    /// A turn, as soon as there is one. The caller bounds the time.
    pub async fn wait(self: &Arc<Self>) -> Option<Turn> {
        // Nobody closes it.
        let turn = self.turns.clone().acquire_owned().await.ok()?;
        self.take(turn)
    }

    fn take(self: &Arc<Self>, turn: OwnedSemaphorePermit) -> Option<Turn> {
        // There are as many as there are turns.
        let pair = self.lock().pop()?;
        Some(Turn {
            hands: self.clone(),
            pair,
            _turn: turn,
        })
    }
}

impl Turn {
    /// Does this on the first thread of the pair; it may give something to the other one.
    /// The turn ends with it, whoever has stopped waiting.
    pub fn work<T: Send + 'static>(
        self,
        work: impl FnOnce(&Arc<Hand>) -> T + Send + 'static,
    ) -> Option<oneshot::Receiver<T>> {
        let Pair { front, back } = self.pair.clone();
        front.give(move || {
            let done = work(&back);
            // Before it is told: whoever asks again at once finds it free.
            drop(self);
            done
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.hands.lock().push(self.pair.clone());
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
        let hand = Hand::new("a hand");
        let mut seen: Vec<ThreadId> = Vec::new();
        for _ in 0..3 {
            let told = hand.give(here).expect("a thread");
            seen.push(told.blocking_recv().expect("it is done"));
        }
        assert!(seen.iter().all(|thread| *thread == seen[0]), "{seen:?}");
        assert_ne!(seen[0], here());
    }

    #[test]
    fn what_panics_is_not_answered_and_the_next_one_is() {
        let hand = Hand::new("a hand");
        let first = hand.give(here).expect("a thread").blocking_recv();
        let fails = hand.give(|| panic!("a fault")).expect("a thread");
        assert!(fails.blocking_recv().is_err());
        let next = hand.give(here).expect("the same thread").blocking_recv();
        assert_eq!(first.expect("it is done"), next.expect("it is done"));
    }

    #[tokio::test]
    async fn a_turn_ends_with_its_work_whoever_has_stopped_waiting() {
        let hands = Hands::new(1);
        let (go, goes) = sync_channel::<()>(1);
        let (begins, begun) = oneshot::channel();
        let turn = hands.free().expect("nobody has it");
        let work = turn.work(move |_| {
            begins.send(()).expect("somebody waits for it");
            goes.recv()
        });
        drop(work.expect("a thread"));
        begun.await.expect("it begins");
        assert!(hands.free().is_none(), "it is at work");
        go.send(()).expect("it waits for this");
        let turn = hands.wait().await.expect("it is free again");
        let both = turn.work(|back| {
            let other = back.give(here).expect("a thread").blocking_recv();
            (here(), other.expect("it is done"))
        });
        let (front, back) = both.expect("a thread").await.expect("it is done");
        assert_ne!(front, back);
        assert!(hands.free().is_some(), "at once");
    }

    #[tokio::test]
    async fn work_that_panics_gives_its_turn_back() {
        let hands = Hands::new(1);
        let turn = hands.free().expect("nobody has it");
        let work = turn.work(|_| panic!("a fault")).expect("a thread");
        assert!(work.await.is_err());
        assert!(hands.wait().await.is_some());
    }

    #[test]
    fn the_last_one_used_is_taken_first() {
        let hands = Hands::new(3);
        let front = |turn: &Turn| Arc::as_ptr(&turn.pair.front);
        let (one, other) = (hands.free().expect("one"), hands.free().expect("two"));
        let used = front(&one);
        drop(other);
        drop(one);
        assert_eq!(front(&hands.free().expect("one")), used);
    }
}
