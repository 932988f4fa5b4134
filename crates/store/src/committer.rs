//! The two threads that own every write: the committer applies changes, the writer
//! makes them durable.
//!
//! The committer takes the queued changes, up to a limit, and applies them as one
//! group while the writer writes the previous group. It then waits until that group
//! is durable, hands over its own, and takes the next changes. The writer makes a
//! group durable, publishes the new state, and only then calls the callback of each
//! change.
//!
//! At most one group is with the writer, so a group builds on at most one group that
//! is not durable yet, and both fail together. If the disk fails, all changes in
//! flight and all later changes get that error. If the disk is almost full, the
//! changes of that group get [`StoreError::Full`], and the next group tries again.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, ThreadId};

use crate::engine::View;
use crate::error::{Contradiction, StoreError};
use crate::group::{Group, GroupBuilder};
use crate::ids::IdCache;
use crate::prepare::PreparedChange;
use crate::queue::{AckCallback, Queue, Submission, call_all};
use crate::read_view::ReadView;
use crate::row_cache::RowCache;
use crate::sync::{Mutex, RwLock};
use crate::sync_writer::SyncWriter;
use crate::writer::{DiskWriter, DurableHead};

/// The newest durable state and its head, as readers see them.
pub(crate) struct PublishedState {
    state: RwLock<(ReadView, DurableHead)>,
    ids: Arc<IdCache>,
    row_cache: Arc<RowCache>,
    /// Called with every new head.
    listener: OnceLock<Listener>,
}

type Listener = Box<dyn Fn(DurableHead) + Send + Sync>;

impl PublishedState {
    fn new(writer: &SyncWriter) -> PublishedState {
        let (ids, row_cache) = (Arc::new(IdCache::default()), writer.row_cache());
        let (view, head) = (writer.snapshot(), writer.head());
        let view = ReadView::published(view, head.batch, ids.clone(), row_cache.clone());
        PublishedState {
            state: RwLock::new((view, head)),
            ids,
            row_cache,
            listener: OnceLock::new(),
        }
    }

    pub(crate) fn view(&self) -> ReadView {
        self.state.read().0.clone()
    }

    pub(crate) fn head(&self) -> DurableHead {
        self.state.read().1
    }

    /// Sets the listener that is called with every new head. Returns false if there
    /// is one already.
    pub(crate) fn listen(&self, listener: Listener) -> bool {
        self.listener.set(listener).is_ok()
    }

    fn publish(&self, view: Arc<dyn View>, head: DurableHead) {
        let (ids, row_cache) = (self.ids.clone(), self.row_cache.clone());
        let next = (ReadView::published(view, head.batch, ids, row_cache), head);
        let last = std::mem::replace(&mut *self.state.write(), next);
        if let Some(listener) = self.listener.get() {
            listener(head);
        }
        // Dropping a view can take a moment: do it without the lock.
        drop(last);
    }
}

/// The running committer and writer threads.
pub(crate) struct Committer {
    pub published: Arc<PublishedState>,
    pub queue: Arc<Queue>,
    /// The writer and the committer, which cannot wait for their own end.
    threads: [Option<ThreadId>; 2],
    end: Mutex<ThreadState>,
}

/// Whether the committer's thread runs, or how it ended.
enum ThreadState {
    Running(JoinHandle<Result<(), StoreError>>),
    Ended(Result<(), StoreError>),
}

impl Committer {
    pub(crate) fn start(sync_writer: SyncWriter, queue: Queue) -> Result<Committer, StoreError> {
        let published = Arc::new(PublishedState::new(&sync_writer));
        let queue = Arc::new(queue);
        let (builder, writer) = sync_writer.split();
        let disk = WriterThread::start(writer, published.clone())?;
        let writing = disk.thread_id();
        let waiting = queue.clone();
        let thread = spawn("committer", move || {
            // If this thread panics, no submitter must keep waiting.
            let end = CloseOnDrop(waiting);
            run(builder, disk, &end.0)
        })?;
        Ok(Committer {
            published,
            queue,
            threads: [writing, Some(thread.thread().id())],
            end: Mutex::new(ThreadState::Running(thread)),
        })
    }

    /// Closes the queue, waits until the queued changes are written and both threads
    /// have ended, and returns how they ended; every call returns that result. Called
    /// from a callback it closes the queue without waiting, because the thread that
    /// runs the callback cannot wait for itself.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        self.queue.close();
        if self.threads.contains(&Some(std::thread::current().id())) {
            return Ok(());
        }
        let mut end = self.end.lock();
        let came = match std::mem::replace(
            &mut *end,
            ThreadState::Ended(Err(StoreError::CommitterGone)),
        ) {
            ThreadState::Running(thread) => join(thread),
            ThreadState::Ended(came) => came,
        };
        *end = ThreadState::Ended(came.clone());
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

/// Closes the queue when the committer's thread ends, even by a panic, and drops what is left in
/// it: every callback then gets [`StoreError::CommitterGone`].
struct CloseOnDrop(Arc<Queue>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
        // A dropped reply calls its callback with the error.
        while self.0.take().is_some() {}
    }
}

fn run(mut builder: GroupBuilder, mut disk: WriterThread, queue: &Queue) -> Result<(), StoreError> {
    let mut latched: Option<StoreError> = None;
    while let Some(work) = queue.take() {
        let (changes, mut replies): (Vec<_>, VecDeque<_>) = work
            .into_iter()
            .map(|Submission { change, reply }| (Ok(change), reply))
            .unzip();
        let mut changes = changes.into_iter();
        // More than one batch if the changes are larger than estimated.
        while !replies.is_empty() {
            let group = match &latched {
                Some(failure) => Err(failure.clone()),
                None => next_group(&mut builder, &mut disk, &mut changes, queue.group_bytes()),
            };
            match group {
                Ok(group) => {
                    let theirs = replies.drain(..group.answers.len()).collect();
                    builder.set_pending(&group);
                    disk.write(group, theirs);
                }
                Err(failure) => {
                    if failure.is_final() {
                        latched = Some(failure.clone());
                    }
                    call_all(replies.drain(..).map(|reply| (reply, Err(failure.clone()))));
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

/// Applies the next group and waits until the previous group is durable.
fn next_group(
    builder: &mut GroupBuilder,
    disk: &mut WriterThread,
    changes: &mut dyn Iterator<Item = Result<PreparedChange, Contradiction>>,
    enough_bytes: usize,
) -> Result<Group, StoreError> {
    disk.poll_report(builder)?;
    let group = builder.apply(changes, enough_bytes)?;
    disk.wait_for_report(builder)?;
    Ok(group)
}

/// A group for the writer's thread, with a callback for each change in it.
type WriteJob = (Group, Vec<AckCallback>);
/// The durable state with the last group in it, or why that group is not durable.
type WriteResult = Result<Arc<dyn View>, StoreError>;

/// The committer's handle of the thread that writes to the disk.
struct WriterThread {
    jobs: Option<SyncSender<WriteJob>>,
    reports: Receiver<WriteResult>,
    /// Whether the writer has a group that it has not reported on yet.
    busy: bool,
    thread: Option<JoinHandle<Result<(), StoreError>>>,
}

impl Drop for WriterThread {
    /// Waits for the writer, so that the committer never ends first.
    fn drop(&mut self) {
        let _ = self.join();
    }
}

impl WriterThread {
    fn start(
        writer: DiskWriter,
        published: Arc<PublishedState>,
    ) -> Result<WriterThread, StoreError> {
        let (jobs, todo) = sync_channel(1);
        let (report, reports) = sync_channel(1);
        let thread = spawn("writer", move || {
            write_groups(writer, &published, &todo, &report)
        })?;
        Ok(WriterThread {
            jobs: Some(jobs),
            reports,
            busy: false,
            thread: Some(thread),
        })
    }

    fn thread_id(&self) -> Option<ThreadId> {
        self.thread.as_ref().map(|thread| thread.thread().id())
    }

    /// Takes the writer's report if there is one.
    fn poll_report(&mut self, builder: &mut GroupBuilder) -> Result<(), StoreError> {
        match self.busy.then(|| self.reports.try_recv()) {
            Some(Ok(report)) => self.accept_report(report, builder),
            // The writer is still writing, or its thread has ended: `wait_for_report` finds out
            // which.
            None | Some(Err(_)) => Ok(()),
        }
    }

    /// Waits for the report on the group that the writer has, if any.
    fn wait_for_report(&mut self, builder: &mut GroupBuilder) -> Result<(), StoreError> {
        if !self.busy {
            return Ok(());
        }
        let report = self
            .reports
            .recv()
            .unwrap_or(Err(StoreError::CommitterGone));
        self.accept_report(report, builder)
    }

    /// Records that the last group is durable, or returns why it failed.
    fn accept_report(
        &mut self,
        report: WriteResult,
        builder: &mut GroupBuilder,
    ) -> Result<(), StoreError> {
        self.busy = false;
        builder.durable(report?);
        Ok(())
    }

    fn write(&mut self, group: Group, replies: Vec<AckCallback>) {
        self.busy = true;
        // If the writer's thread has ended, the dropped replies call their callbacks with the
        // error, and the next report fails.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send((group, replies));
        }
    }

    /// Waits until the last group is written and the thread has ended.
    fn close(mut self) -> Result<(), StoreError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), StoreError> {
        self.jobs = None;
        self.thread.take().map_or(Ok(()), join)
    }
}

/// The writer's thread: writes each group, publishes the new state, then calls the callbacks.
fn write_groups(
    mut writer: DiskWriter,
    published: &PublishedState,
    todo: &Receiver<WriteJob>,
    report: &SyncSender<WriteResult>,
) -> Result<(), StoreError> {
    for (group, replies) in todo {
        let written = writer.write(&group);
        if let Ok(view) = &written
            && !group.is_empty()
        {
            published.publish(view.clone(), group.head);
        }
        let failure = written.as_ref().err().cloned();
        // The committer continues while the callbacks run.
        let _ = report.send(written);
        let answers = group.answers.into_iter().map(|answer| match &failure {
            None => answer,
            Some(failure) => Err(failure.clone()),
        });
        call_all(replies.into_iter().zip(answers));
    }
    writer.close()
}
