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

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::{JoinHandle, ThreadId};

use crate::book::Book;
use crate::contents::Contents;
use crate::engine::View;
use crate::error::{Contradiction, StoreError};
use crate::group::{Desk, Group};
use crate::ids::Ids;
use crate::prepare::Prepared;
use crate::queue::{Queue, Reply, Work, tell_all};
use crate::rows::RecentRows;
use crate::writer::{DurableHead, Writer};

/// What readers see: the newest state that is durable, and its head.
pub struct Published {
    state: RwLock<(Contents, DurableHead)>,
    ids: Arc<Ids>,
    recent: Arc<RecentRows>,
    /// Who is told when there is more.
    listener: OnceLock<Listener>,
}

type Listener = Box<dyn Fn(DurableHead) + Send + Sync>;

impl Published {
    fn new(book: &Book) -> Published {
        let (ids, recent) = (Arc::new(Ids::default()), book.recent());
        let (view, head) = (book.snapshot(), book.head());
        let view = Contents::published(view, head.batch, ids.clone(), recent.clone());
        Published {
            state: RwLock::new((view, head)),
            ids,
            recent,
            listener: OnceLock::new(),
        }
    }

    pub fn view(&self) -> Contents {
        self.read().0.clone()
    }

    pub fn head(&self) -> DurableHead {
        self.read().1
    }

    /// From now on this one is told of every new head. There is one; whether it
    /// was the first to ask.
    pub fn listen(&self, listener: Listener) -> bool {
        self.listener.set(listener).is_ok()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, (Contents, DurableHead)> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, view: Arc<dyn View>, head: DurableHead) {
        let (ids, recent) = (self.ids.clone(), self.recent.clone());
        let next = (Contents::published(view, head.batch, ids, recent), head);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let last = std::mem::replace(&mut *state, next);
        drop(state);
        if let Some(listener) = self.listener.get() {
            listener(head);
        }
        // Letting go of a view can take a moment; nobody should wait for it.
        drop(last);
    }
}

/// The running threads.
pub struct Committer {
    pub published: Arc<Published>,
    pub queue: Arc<Queue>,
    /// Ours: neither of them can wait for the end.
    threads: [Option<ThreadId>; 2],
    end: Mutex<End>,
}

enum End {
    Running(JoinHandle<Result<(), StoreError>>),
    Came(Result<(), StoreError>),
}

impl Committer {
    pub fn start(book: Book, queue: Queue) -> Result<Committer, StoreError> {
        let published = Arc::new(Published::new(&book));
        let queue = Arc::new(queue);
        let (desk, writer) = book.split();
        let disk = Disk::start(writer, published.clone())?;
        let writing = disk.thread_id();
        let waiting = queue.clone();
        let thread = spawn("committer", move || {
            // Should this thread ever panic, nobody must wait for it.
            let end = CloseAtEnd(waiting);
            run(desk, disk, &end.0)
        })?;
        Ok(Committer {
            published,
            queue,
            threads: [writing, Some(thread.thread().id())],
            end: Mutex::new(End::Running(thread)),
        })
    }

    /// Takes nothing more, writes what waits, and ends; everybody who asks is told
    /// the same. From within an answer the end is only asked for: the thread that
    /// gives it cannot wait for itself.
    pub fn close(&self) -> Result<(), StoreError> {
        self.queue.close();
        if self.threads.contains(&Some(std::thread::current().id())) {
            return Ok(());
        }
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let came = match std::mem::replace(&mut *end, End::Came(Err(StoreError::CommitterGone))) {
            End::Running(thread) => join(thread),
            End::Came(came) => came,
        };
        *end = End::Came(came.clone());
        came
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
        let (changes, mut replies): (Vec<_>, VecDeque<_>) = work
            .into_iter()
            .map(|Work { change, reply }| (Ok(change), reply))
            .unzip();
        let mut changes = changes.into_iter();
        // More than one batch where changes weigh more than it seemed.
        while !replies.is_empty() {
            let group = match &latched {
                Some(failure) => Err(failure.clone()),
                None => next_group(&mut desk, &mut disk, &mut changes, queue.group_bytes()),
            };
            match group {
                Ok(group) => {
                    let theirs = replies.drain(..group.answers.len()).collect();
                    desk.hand_on(&group);
                    disk.write(group, theirs);
                }
                Err(failure) => {
                    if failure.is_final() {
                        latched = Some(failure.clone());
                    }
                    tell_all(replies.drain(..).map(|reply| (reply, Err(failure.clone()))));
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

/// A group that may go to the disk: applied, and the one before it is durable.
fn next_group(
    desk: &mut Desk,
    disk: &mut Disk,
    changes: &mut dyn Iterator<Item = Result<Prepared, Contradiction>>,
    enough_bytes: usize,
) -> Result<Group, StoreError> {
    disk.look(desk)?;
    let group = desk.apply(changes, enough_bytes)?;
    disk.wait(desk)?;
    Ok(group)
}

/// A group, and who waits for it.
type Job = (Group, Vec<Reply>);
/// Everything that is durable, with the group that was handed over last.
type Report = Result<Arc<dyn View>, StoreError>;

/// The thread that is at the disk, as the committer sees it.
struct Disk {
    jobs: Option<SyncSender<Job>>,
    reports: Receiver<Report>,
    /// A group was handed over and not reported on yet.
    busy: bool,
    thread: Option<JoinHandle<Result<(), StoreError>>>,
}

impl Drop for Disk {
    /// Whatever happens to the committer, its end is not before the writer's.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl Disk {
    fn start(writer: Writer, published: Arc<Published>) -> Result<Disk, StoreError> {
        let (jobs, todo) = sync_channel(1);
        let (report, reports) = sync_channel(1);
        let thread = spawn("writer", move || write(writer, &published, &todo, &report))?;
        Ok(Disk {
            jobs: Some(jobs),
            reports,
            busy: false,
            thread: Some(thread),
        })
    }

    fn thread_id(&self) -> Option<ThreadId> {
        self.thread.as_ref().map(|thread| thread.thread().id())
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
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send((group, replies));
        }
    }

    /// Waits for the last group, and ends in good order.
    fn close(mut self) -> Result<(), StoreError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), StoreError> {
        self.jobs = None;
        self.thread.take().map_or(Ok(()), join)
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
        let answers = group.answers.into_iter().map(|answer| match &failure {
            None => answer,
            Some(failure) => Err(failure.clone()),
        });
        tell_all(replies.into_iter().zip(answers));
    }
    writer.close()
}
