//! Two threads own every write: one applies, one makes durable.
//!
//! The committer takes what waits, up to a limit, and applies it as one group
//! while the writer is at the disk with the group before; then it waits for that
//! one to be durable, hands its own over, and takes the next. The writer makes a
//! group durable, publishes the new state, and only then answers each change.
//! There is one group on its way at most, so a group stands on one that is not
//! durable yet at most, and both fail together. When the disk fails everybody in
//! flight and everybody after them gets the same error; when it is merely almost
//! full they get that, and the next group tries again.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;

use crate::book::Book;
use crate::contents::Contents;
use crate::engine::View;
use crate::error::StoreError;
use crate::group::{Desk, Group};
use crate::queue::{Queue, Reply, Work};
use crate::writer::{DurableHead, Writer};

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

    fn publish(&self, view: Arc<dyn View>, head: DurableHead) {
        let next = (Contents::new(view), head);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let last = std::mem::replace(&mut *state, next);
        drop(state);
        // Letting go of a view can take a moment; nobody should wait for it.
        drop(last);
    }
}

/// The running threads.
pub struct Committer {
    pub published: Arc<Published>,
    pub queue: Arc<Queue>,
    thread: JoinHandle<Result<(), StoreError>>,
}

impl Committer {
    pub fn start(book: Book, queue: Queue) -> Result<Committer, StoreError> {
        let published = Arc::new(Published::new(&book));
        let queue = Arc::new(queue);
        let (desk, writer) = book.split();
        let disk = Disk::start(writer, published.clone())?;
        let waiting = queue.clone();
        let thread = spawn("committer", move || {
            // Should this thread ever panic, nobody must wait for it.
            let end = CloseAtEnd(waiting);
            run(desk, disk, &end.0)
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
        join(self.thread)
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StoreError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| StoreError::System(format!("cannot start a thread: {error}").into()))
}

fn join(thread: JoinHandle<Result<(), StoreError>>) -> Result<(), StoreError> {
    match thread.join() {
        Ok(ended) => ended,
        Err(_) => Err(StoreError::CommitterGone),
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

fn run(mut desk: Desk, mut disk: Disk, queue: &Queue) -> Result<(), StoreError> {
    let mut latched: Option<StoreError> = None;
    while let Some(work) = queue.take() {
        let (changes, replies): (Vec<_>, Vec<_>) = work
            .into_iter()
            .map(|Work { change, reply }| (change, reply))
            .unzip();
        let applied = match &latched {
            Some(failure) => Err(failure.clone()),
            None => disk
                .look(&mut desk)
                .and_then(|()| desk.apply(changes.into_iter().map(Ok)))
                .and_then(|group| disk.wait(&mut desk).map(|()| group)),
        };
        match applied {
            Ok(group) => {
                desk.hand_on(&group);
                disk.write(group, replies);
            }
            Err(failure) => {
                for reply in replies {
                    reply.tell(Err(failure.clone()));
                }
                if failure.is_final() {
                    latched = Some(failure);
                }
            }
        }
    }
    let ended = disk.close();
    match latched {
        Some(failure) => Err(failure),
        None => ended,
    }
}

/// A group, and who waits for it.
type Job = (Group, Vec<Reply>);
/// Everything that is durable, with the group that was handed over last.
type Report = Result<Arc<dyn View>, StoreError>;

/// The thread that is at the disk, as the committer sees it.
struct Disk {
    jobs: SyncSender<Job>,
    reports: Receiver<Report>,
    /// A group was handed over and not reported on yet.
    busy: bool,
    thread: JoinHandle<Result<(), StoreError>>,
}

impl Disk {
    fn start(writer: Writer, published: Arc<Published>) -> Result<Disk, StoreError> {
        let (jobs, todo) = sync_channel(1);
        let (report, reports) = sync_channel(1);
        let thread = spawn("writer", move || write(writer, &published, &todo, &report))?;
        Ok(Disk {
            jobs,
            reports,
            busy: false,
            thread,
        })
    }

    /// Takes a report if there is one.
    fn look(&mut self, desk: &mut Desk) -> Result<(), StoreError> {
        match self.busy.then(|| self.reports.try_recv()) {
            Some(Ok(report)) => self.take(report, desk),
            // Still at it, or gone: waiting will tell.
            None | Some(Err(_)) => Ok(()),
        }
    }

    /// Waits until nothing is on its way.
    fn wait(&mut self, desk: &mut Desk) -> Result<(), StoreError> {
        if !self.busy {
            return Ok(());
        }
        let report = self
            .reports
            .recv()
            .unwrap_or(Err(StoreError::CommitterGone));
        self.take(report, desk)
    }

    fn take(&mut self, report: Report, desk: &mut Desk) -> Result<(), StoreError> {
        self.busy = false;
        desk.settle(report?);
        Ok(())
    }

    fn write(&mut self, group: Group, replies: Vec<Reply>) {
        self.busy = true;
        // If nobody is there any more the replies say so by themselves, and so
        // does the next report.
        let _ = self.jobs.send((group, replies));
    }

    /// Waits for the last group, and ends in good order.
    fn close(self) -> Result<(), StoreError> {
        drop(self.jobs);
        join(self.thread)
    }
}

fn write(
    mut writer: Writer,
    published: &Published,
    todo: &Receiver<Job>,
    report: &SyncSender<Report>,
) -> Result<(), StoreError> {
    for (group, replies) in todo {
        let written = writer.write(&group);
        if let Ok(view) = &written
            && !group.is_empty()
        {
            published.publish(view.clone(), group.head);
        }
        let failure = written.as_ref().err().cloned();
        // The committer goes on while the answers are given.
        let _ = report.send(written);
        let answers = group.answers;
        for (reply, answer) in replies.into_iter().zip(answers) {
            reply.tell(match &failure {
                None => answer,
                Some(failure) => Err(failure.clone()),
            });
        }
    }
    writer.close()
}
