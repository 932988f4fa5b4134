//! Every repository has one desk: a thread at which everything that concerns it
//! is decided, one thing after another. Different repositories are worked on in
//! parallel; nothing about one is ever decided in two places.
//!
//! What comes in is bounded by bytes: whoever brings more waits, and the socket
//! with them. An event stays in the count until its effects are durable.

mod ack;
mod claim;
pub mod env;
mod event;
pub mod judge;
mod listing_entry;
mod page_ack;
mod report;
mod route;
mod skip;
mod slot;
mod submit;
mod worker;

use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use bytes::Bytes;
use foldhash::fast::FixedState;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::event::Origin;
use gapless_core::ledger::sweep::{ListingEntry, ListingVerdict, PageNote};
use gapless_core::ledger::{Repo, RepoId, Tick};
use gapless_core::repo_tx::{Arrival, RepoTx};
use gapless_store::cursor::EventPosition;
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

pub use listing_entry::may_have_left;
pub use report::first_heard;

use crate::services::Services;
use crate::upstreams::Wire;
use crate::upstreams::connection::Lag;
use crate::upstreams::sources::SourceTally;
use page_ack::Written;
use route::Inbox;

/// The payload of a dead letter is cut here.
pub const DEAD_PAYLOAD_BYTES: usize = 64 << 10;

/// An event on its way to its desk.
pub struct Arrived {
    pub did: Did,
    pub bytes: Bytes,
    pub wire: Wire,
    pub origin: Origin,
    pub seq: u64,
    /// None when its number does not count for the cursor.
    pub position: Option<EventPosition>,
    /// When it was read, in the order of all decisions and by the clock.
    pub read: Tick,
    pub at: Instant,
    /// How often the store refused what it led to.
    pub refused: u32,
    /// The rev of the commit, once it was checked and applied.
    pub applied: Option<Rev>,
    /// Who wants to know how old that is.
    pub lag: Option<Arc<Lag>>,
    /// Where it is counted who brought it, if there are others who could.
    pub tally: Option<Arc<SourceTally>>,
    /// Its share of the room, given back when it is done.
    pub room: Option<OwnedSemaphorePermit>,
}

impl Arrived {
    fn arrival(&self) -> Arrival<'_> {
        Arrival {
            origin: self.origin,
            seq: self.seq,
            bytes: &self.bytes,
        }
    }
}

/// One line of a page.
pub struct Line {
    pub did: Did,
    pub entry: ListingEntry,
}

/// What became of a line.
pub enum Seen {
    Listed(ListingVerdict),
    /// Not known here, and not wanted.
    Unwanted,
    /// Could not be looked at now.
    Passed,
}

/// What became of the lines of a page.
pub struct Page {
    pub lines: Vec<(Did, Seen)>,
    on_their_way: Vec<oneshot::Receiver<bool>>,
    /// A desk did not look at its lines.
    unread: bool,
}

impl Page {
    /// Waits until what the lines led to is durable, and says whether it is. Where
    /// one was passed over nobody waits: then the page counts for nothing anyway.
    pub async fn written(&mut self) -> bool {
        let mut all = !self.unread;
        for durable in self.on_their_way.drain(..) {
            all &= durable.await.unwrap_or(false);
        }
        all
    }
}

/// Something to do at a repository's desk, once nothing of it is on its way to
/// the store.
pub type Visit = Box<dyn FnOnce(&mut Turn<'_>) + Send>;

/// Who is told when what a visit led to is durable, or never will be.
pub type Then = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// A repository, its desk, and the store as it is now.
pub struct Turn<'a> {
    pub services: &'a Services,
    pub view: &'a ReadView,
    /// None when nobody has heard of it.
    pub tx: Option<RepoTx>,
    pub did: &'a Did,
    /// Called when everything that the visit led to is durable, or never will be.
    pub then: Option<Then>,
    /// It ended by a fault of ours: nothing of the transaction counts.
    fault: bool,
}

impl Turn<'_> {
    /// The repository; made known if it is not.
    pub fn make(&mut self) -> &mut RepoTx {
        self.tx
            .get_or_insert_with(|| RepoTx::first_seen(Repo::new(self.did.clone())))
    }
}

pub(crate) enum Item {
    Event(Box<Arrived>),
    /// An event that concerns nobody here: only the cursor moves.
    Skipped(EventPosition),
    /// The same, which the store had no room for, or did not take.
    NotSkipped(EventPosition, StoreError),
    Page {
        note: Arc<PageNote>,
        lines: Vec<Line>,
        /// Repositories that nobody has heard of are wanted.
        adopt: bool,
        seen: oneshot::Sender<Vec<(Did, Seen)>>,
        written: Written,
    },
    Visit {
        did: Did,
        visit: Visit,
    },
}

/// All desks.
pub struct Desks {
    inboxes: Vec<Arc<Inbox>>,
    threads: crate::sync::Mutex<Vec<JoinHandle<()>>>,
    hasher: FixedState,
}

impl Desks {
    /// Starts so many desks.
    pub fn start(services: &Arc<Services>, desks: usize) -> Result<Desks, StoreError> {
        let hasher = FixedState::with_seed(0x67_61_70_6c);
        let inboxes: Vec<Arc<Inbox>> = (0..desks.max(1))
            .map(|_| Arc::new(Inbox::new(desks.max(1))))
            .collect();
        let mut waiting: Vec<Vec<RepoId>> = vec![Vec::new(); inboxes.len()];
        let view = services.store.view();
        for (id, bytes) in view.parked_repos()? {
            let Some(repo) = view.repo(id)? else {
                continue;
            };
            let place = place(&hasher, &repo.did, inboxes.len());
            waiting[place].push(id);
            services
                .totals
                .parked_bytes
                .fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        }
        let mut threads = Vec::new();
        for (number, (inbox, waiting)) in inboxes.iter().zip(waiting).enumerate() {
            let worker = worker::Worker::new(services.clone(), inbox.clone(), waiting);
            let watched = services.clone();
            let thread = std::thread::Builder::new()
                .name(format!("desk-{number}"))
                .spawn(move || {
                    let _watched = Watched(watched);
                    worker.run();
                })
                .map_err(|error| StoreError::System(error.to_string().into()))?;
            threads.push(thread);
        }
        Ok(Desks {
            inboxes,
            threads: crate::sync::Mutex::new(threads),
            hasher,
        })
    }

    fn inbox(&self, did: &Did) -> &Arc<Inbox> {
        &self.inboxes[place(&self.hasher, did, self.inboxes.len())]
    }

    /// Brings events, in the order in which they were read. Waits for room.
    pub async fn arrive(&self, events: Vec<Arrived>) {
        for mut event in events {
            let inbox = self.inbox(&event.did);
            event.room = inbox.room(event.bytes.len()).await;
            inbox.push(Item::Event(Box::new(event)));
        }
    }

    /// An event that concerns nobody here.
    pub fn skip(&self, did: &Did, position: EventPosition) {
        self.inbox(did).push(Item::Skipped(position));
    }

    /// Compares a page of a listing with what is known.
    pub async fn page(&self, note: &Arc<PageNote>, lines: Vec<Line>, adopt: bool) -> Page {
        let mut parts: Vec<Vec<Line>> = Vec::new();
        parts.resize_with(self.inboxes.len(), Vec::new);
        for line in lines {
            parts[place(&self.hasher, &line.did, self.inboxes.len())].push(line);
        }
        let mut answers = Vec::new();
        for (inbox, lines) in self.inboxes.iter().zip(parts) {
            if lines.is_empty() {
                continue;
            }
            let (seen, told) = oneshot::channel();
            let (written, durable) = Written::new();
            inbox.push(Item::Page {
                note: note.clone(),
                lines,
                adopt,
                seen,
                written,
            });
            answers.push((told, durable));
        }
        let mut page = Page {
            lines: Vec::new(),
            on_their_way: Vec::new(),
            unread: false,
        };
        for (told, durable) in answers {
            // A desk that is closed has looked at nothing.
            let Ok(seen) = told.await else {
                page.unread = true;
                continue;
            };
            if !seen.iter().any(|(_, seen)| matches!(seen, Seen::Passed)) {
                page.on_their_way.push(durable);
            }
            page.lines.extend(seen);
        }
        page
    }

    /// Does something at a repository's desk, and waits until what it led to is
    /// durable. A panic in it is an error, of this visit alone.
    pub async fn visit<T: Send + 'static>(
        &self,
        did: &Did,
        visit: impl FnOnce(&mut Turn<'_>) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tell, told) = oneshot::channel();
        let visit: Visit = Box::new(move |turn| {
            let value = catch_unwind(AssertUnwindSafe(|| visit(turn))).map_err(|_| {
                turn.fault = true;
                let what = "deciding about this repository ended unexpectedly: a fault of Gapless";
                StoreError::Fault(what.into())
            });
            turn.then = Some(Box::new(move |durable| {
                // Nobody waits any more: then nobody is told.
                let _ = tell.send(durable.and(value));
            }));
        });
        self.inbox(did).push(Item::Visit {
            did: did.clone(),
            visit,
        });
        told.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Ends: what is on its way to the store is waited for, what waits is left for
    /// the next start.
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
                tracing::error!("a desk ended by a fault of our own");
            }
        }
    }

    /// Events and visits that wait.
    pub fn waiting(&self) -> usize {
        self.inboxes.iter().map(|inbox| inbox.len()).sum()
    }
}

/// A desk that ends by a fault of ours takes the program with it: its repositories
/// would stand still while everything looks well.
struct Watched(Arc<Services>);

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = "a desk ended unexpectedly, a fault of Gapless; start it again";
            self.0.shutdown.fail(StoreError::System(what.into()));
        }
    }
}

fn place(hasher: &FixedState, did: &Did, desks: usize) -> usize {
    (hasher.hash_one(did.as_str()) % desks as u64) as usize
}
