//! One thread owns every write.
//!
//! It takes what waits, up to a limit, makes it durable as one group, publishes
//! the new state, and then answers each change: while the disk works on one
//! group, the next one gathers. Nothing is published or answered before it is
//! durable. When the disk fails everybody in flight and everybody after them gets
//! the same error; when it is merely almost full they get that, and the next
//! group tries again.

use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;

use crate::book::{Book, DurableHead};
use crate::contents::Contents;
use crate::error::StoreError;
use crate::queue::{Queue, Work};

/// What readers see: the newest state that is durable, and its head.
pub struct Published {
    state: RwLock<(Contents, DurableHead)>,
}

impl Published {
    fn new(book: &Book) -> Published {
        Published {
            state: RwLock::new((book.view(), book.head())),
        }
    }

    pub fn view(&self) -> Contents {
        self.read().0.clone()
    }

    pub fn head(&self) -> DurableHead {
        self.read().1
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, (Contents, DurableHead)> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, book: &Book) {
        let next = (book.view(), book.head());
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let last = std::mem::replace(&mut *state, next);
        drop(state);
        // Letting go of a view can take a moment; nobody should wait for it.
        drop(last);
    }
}

/// The running thread.
pub struct Committer {
    pub published: Arc<Published>,
    pub queue: Arc<Queue>,
    thread: JoinHandle<Result<(), StoreError>>,
}

impl Committer {
    pub fn start(book: Book, queue: Queue) -> Result<Committer, StoreError> {
        let published = Arc::new(Published::new(&book));
        let queue = Arc::new(queue);
        let (theirs, waiting) = (published.clone(), queue.clone());
        let thread = std::thread::Builder::new()
            .name("committer".to_owned())
            .spawn(move || {
                // Should this thread ever panic, nobody must wait for it.
                let end = CloseAtEnd(waiting);
                run(book, &theirs, &end.0)
            })
            .map_err(|error| {
                StoreError::System(format!("cannot start a thread: {error}").into())
            })?;
        Ok(Committer {
            published,
            queue,
            thread,
        })
    }

    /// Takes nothing more, writes what waits, and ends.
    pub fn close(self) -> Result<(), StoreError> {
        self.queue.close();
        match self.thread.join() {
            Ok(ended) => ended,
            Err(_) => Err(StoreError::CommitterGone),
        }
    }
}

struct CloseAtEnd(Arc<Queue>);

impl Drop for CloseAtEnd {
    fn drop(&mut self) {
        self.0.close();
        // Whoever is still in there is told by their replies.
        while self.0.take().is_some() {}
    }
}

fn run(mut book: Book, published: &Published, queue: &Queue) -> Result<(), StoreError> {
    while let Some(group) = queue.take() {
        let (changes, replies): (Vec<_>, Vec<_>) = group
            .into_iter()
            .map(|Work { change, reply }| (change, reply))
            .unzip();
        let before = book.head();
        match book.write_prepared(changes.into_iter().map(Ok)) {
            Ok(answers) => {
                if book.head() != before {
                    published.publish(&book);
                }
                for (reply, answer) in replies.into_iter().zip(answers) {
                    reply.tell(answer);
                }
            }
            Err(failure) => {
                for reply in replies {
                    reply.tell(Err(failure.clone()));
                }
            }
        }
    }
    book.close()
}
