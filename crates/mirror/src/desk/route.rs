//! Routes items to desks: finds the desk of a repository, and holds the items that wait for it.
//!
//! [`Desks`] sends items to the inbox of the repository's desk. Items keep their order; the
//! store's replies are taken before the items. The bytes of waiting events are bounded, and
//! a sender waits until an event fits. Other items are bounded by their senders, which wait
//! for the outcome.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use foldhash::fast::FixedState;
use gapless_atp::syntax::Did;
use gapless_core::ledger::RepoId;
use gapless_core::ledger::sweep::PageNote;
use gapless_store::change::Ack;
use gapless_store::cursor::EventPosition;
use gapless_store::error::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::desk::page_ack::PageAck;
use crate::desk::totals::DeskTotals;
use crate::desk::worker::Worker;
use crate::desk::{EntryOutcome, InboundEvent, ListedRepo, PageOutcome, RepoTurn, RepoWork};
use crate::services::Services;
use gapless_store::sync::{Condvar, Mutex};

/// Bytes of events that may wait at all desks, or be on their way to the store.
const INBOX_BYTES: usize = 32 << 20;
/// The permits of [`INBOX_BYTES`] are for this many bytes each.
const PERMIT_BYTES: usize = 512;
/// Bytes that an event takes beside its frame.
const EVENT_BYTES: usize = 1024;

/// Work for a desk.
pub(crate) enum Item {
    Event(Box<InboundEvent>),
    /// An event that is not wanted: only the cursor moves.
    Skip(EventPosition),
    /// The store refused a skip.
    SkipFailed(EventPosition, StoreError),
    Page {
        note: Arc<PageNote>,
        entries: Vec<ListedRepo>,
        /// Whether repositories that the store does not know are added.
        adopt: bool,
        reply: oneshot::Sender<Vec<(Did, EntryOutcome)>>,
        ack: PageAck,
    },
    Work {
        did: Did,
        work: RepoWork,
    },
}

/// All desks.
pub struct Desks {
    inboxes: Vec<Arc<Inbox>>,
    totals: Arc<DeskTotals>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    hasher: FixedState,
}

impl Desks {
    /// Starts the given number of desks, at least one.
    pub fn start(services: &Arc<Services>, desks: usize) -> Result<Desks, StoreError> {
        let hasher = FixedState::with_seed(0x67_61_70_6c);
        let inboxes: Vec<Arc<Inbox>> = (0..desks.max(1))
            .map(|_| Arc::new(Inbox::new(desks.max(1))))
            .collect();
        let mut with_parked: Vec<Vec<RepoId>> = vec![Vec::new(); inboxes.len()];
        let view = services.store.view();
        let totals = Arc::new(DeskTotals::count(&view)?);
        for (id, bytes) in view.parked_repos()? {
            let Some(repo) = view.repo(id)? else {
                continue;
            };
            with_parked[desk_index(&hasher, &repo.did, inboxes.len())].push(id);
            totals.parked_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let mut threads = Vec::new();
        for (number, (inbox, with_parked)) in inboxes.iter().zip(with_parked).enumerate() {
            let worker = Worker::new(services.clone(), inbox.clone(), totals.clone(), with_parked);
            let guarded = services.clone();
            let thread = std::thread::Builder::new()
                .name(format!("desk-{number}"))
                .spawn(move || {
                    let _guard = ThreadGuard(guarded);
                    worker.run();
                })
                .map_err(|error| StoreError::System(error.to_string().into()))?;
            threads.push(thread);
        }
        Ok(Desks {
            inboxes,
            totals,
            threads: Mutex::new(threads),
            hasher,
        })
    }

    /// Totals over all repositories.
    pub fn totals(&self) -> &DeskTotals {
        &self.totals
    }

    fn inbox_of(&self, did: &Did) -> &Arc<Inbox> {
        &self.inboxes[desk_index(&self.hasher, did, self.inboxes.len())]
    }

    /// Sends events to their desks, in the order in which they were read. Waits while the
    /// inbox of a desk is full.
    pub async fn send(&self, events: Vec<InboundEvent>) {
        for mut event in events {
            let inbox = self.inbox_of(&event.did);
            event.permit = inbox.reserve(event.bytes.len()).await;
            inbox.push(Item::Event(Box::new(event)));
        }
    }

    /// Moves the cursor past an event that is not wanted.
    pub fn skip(&self, did: &Did, position: EventPosition) {
        self.inbox_of(did).push(Item::Skip(position));
    }

    /// Compares a page of a host's listing with what is known of its repositories. With
    /// `adopt`, repositories that the store does not know are added.
    pub(crate) async fn compare_page(
        &self,
        note: &Arc<PageNote>,
        entries: Vec<ListedRepo>,
        adopt: bool,
    ) -> PageOutcome {
        let mut parts: Vec<Vec<ListedRepo>> = Vec::new();
        parts.resize_with(self.inboxes.len(), Vec::new);
        for listed in entries {
            parts[desk_index(&self.hasher, &listed.did, self.inboxes.len())].push(listed);
        }
        let mut replies = Vec::new();
        for (inbox, entries) in self.inboxes.iter().zip(parts) {
            if entries.is_empty() {
                continue;
            }
            let (reply, outcomes) = oneshot::channel();
            let (ack, durable) = PageAck::new();
            inbox.push(Item::Page {
                note: note.clone(),
                entries,
                adopt,
                reply,
                ack,
            });
            replies.push((outcomes, durable));
        }
        let mut page = PageOutcome {
            entries: Vec::new(),
            acks: Vec::new(),
            unread: false,
        };
        for (outcomes, durable) in replies {
            // A closed desk has not looked at its entries.
            let Ok(outcomes) = outcomes.await else {
                page.unread = true;
                continue;
            };
            if !outcomes
                .iter()
                .any(|(_, outcome)| matches!(outcome, EntryOutcome::Passed))
            {
                page.acks.push(durable);
            }
            page.entries.extend(outcomes);
        }
        page
    }

    /// Runs `work` at the desk of a repository and waits until the changes are durable. A
    /// panic in `work` becomes an error of this call alone.
    pub async fn with_repo<T: Send + 'static>(
        &self,
        did: &Did,
        work: impl FnOnce(&mut RepoTurn<'_>) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, result) = oneshot::channel();
        let work: RepoWork = Box::new(move |turn| {
            let value = catch_unwind(AssertUnwindSafe(|| work(turn))).map_err(|_| {
                turn.fault = true;
                let what = "deciding about this repository ended unexpectedly: a fault of Gapless";
                StoreError::Fault(what.into())
            });
            turn.reply = Some(Box::new(move |durable| {
                // The caller may have stopped waiting.
                let _ = sender.send(durable.and(value));
            }));
        });
        self.inbox_of(did).push(Item::Work {
            did: did.clone(),
            work,
        });
        result.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Stops the desks: each waits for its flights. Waiting items are dropped; the events
    /// among them are read again after the next start.
    pub fn close(&self) {
        for inbox in &self.inboxes {
            inbox.close();
        }
        let threads = {
            let mut threads = self.threads.lock();
            std::mem::take(&mut *threads)
        };
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!(
                    "a desk thread panicked, a fault of Gapless; the next start reads its unfinished events again"
                );
            }
        }
    }

    /// The number of items in all inboxes.
    pub fn queued_items(&self) -> usize {
        self.inboxes.iter().map(|inbox| inbox.len()).sum()
    }
}

/// Stops the program if the desk's thread panics: otherwise the repositories of the desk
/// would stand still while everything looks well.
struct ThreadGuard(Arc<Services>);

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = "a desk thread panicked, a fault of Gapless; start Gapless again";
            self.0.shutdown.fail(StoreError::System(what.into()));
        }
    }
}

fn desk_index(hasher: &FixedState, did: &Did, desks: usize) -> usize {
    (hasher.hash_one(did.as_str()) % desks as u64) as usize
}

/// The store's reply to a change: which slot, which flight, and what became of it.
pub(super) struct StoreReply {
    pub slot: usize,
    pub number: u64,
    pub result: Result<Ack, StoreError>,
}

#[derive(Default)]
struct Inner {
    items: VecDeque<Item>,
    replies: Vec<StoreReply>,
    closed: bool,
}

impl Inner {
    fn is_empty(&self) -> bool {
        self.items.is_empty() && self.replies.is_empty()
    }
}

/// The items and replies that wait for one desk.
pub(super) struct Inbox {
    inner: Mutex<Inner>,
    arrived: Condvar,
    permits: Arc<Semaphore>,
    max_permits: usize,
}

/// The items and replies that [`Inbox::take_all`] returns.
pub(super) struct InboxBatch {
    pub(crate) items: VecDeque<Item>,
    pub replies: Vec<StoreReply>,
    pub closed: bool,
}

impl Inbox {
    /// The inbox of one of `desks` desks: each has the same share of [`INBOX_BYTES`].
    pub(super) fn new(desks: usize) -> Inbox {
        let max_permits = INBOX_BYTES / PERMIT_BYTES / desks;
        Inbox {
            inner: Mutex::default(),
            arrived: Condvar::default(),
            permits: Arc::new(Semaphore::new(max_permits)),
            max_permits,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Waits until an event of the given size fits. An event that is larger than the inbox
    /// waits until the inbox holds no other event.
    pub(super) async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let permits = (bytes + EVENT_BYTES)
            .div_ceil(PERMIT_BYTES)
            .min(self.max_permits);
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        self.permits.clone().acquire_many_owned(permits).await.ok()
    }

    /// Adds an item. A closed inbox drops it, so that its sender receives an error.
    pub(crate) fn push(&self, item: Item) {
        let mut inner = self.lock();
        if inner.closed {
            drop(inner);
            drop(item);
            return;
        }
        let first = inner.is_empty();
        inner.items.push_back(item);
        drop(inner);
        if first {
            self.arrived.notify_one();
        }
    }

    /// Adds a reply of the store.
    pub(super) fn push_reply(&self, reply: StoreReply) {
        let mut inner = self.lock();
        let first = inner.is_empty();
        inner.replies.push(reply);
        drop(inner);
        if first {
            self.arrived.notify_one();
        }
    }

    /// Makes the desk stop after its flights.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    /// The number of waiting items.
    pub(super) fn len(&self) -> usize {
        self.lock().items.len()
    }

    /// Takes all waiting items and replies. If there are none, waits for at most `patience`.
    pub(super) fn take_all(&self, patience: Duration) -> InboxBatch {
        let mut inner = self.lock();
        if inner.is_empty() && !inner.closed {
            inner = self.arrived.wait_timeout(inner, patience);
        }
        InboxBatch {
            items: std::mem::take(&mut inner.items),
            replies: std::mem::take(&mut inner.replies),
            closed: inner.closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn waiting_bytes_are_bounded_and_every_event_gets_in_at_last() {
        let inbox = Inbox::new(64);
        let mut held = Vec::new();
        let mut bytes = 0;
        while let Some(permit) = inbox.reserve(60_000).now_or_never() {
            held.push(permit.expect("the semaphore is open"));
            bytes += 60_000;
            assert!(bytes <= INBOX_BYTES / 64);
        }
        assert!(bytes > INBOX_BYTES / 64 / 2, "{bytes}");
        held.pop();
        assert!(inbox.reserve(60_000).now_or_never().is_some(), "returned");
        held.clear();
        // Larger than the inbox: alone.
        let large = inbox.reserve(INBOX_BYTES).now_or_never();
        assert!(large.is_some() && inbox.reserve(1).now_or_never().is_none());
    }
}
