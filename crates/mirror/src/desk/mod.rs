//! The desks. A desk is a thread that owns a share of the repositories and decides
//! everything about them, one item after another. Different repositories are decided in
//! parallel; one repository is never decided in two places.
//!
//! Waiting events are bounded by their bytes ([`Desks::send`]): a desk that falls behind
//! makes the readers of the sockets wait. An event counts until its changes are durable.
//!
//! | module | what it does |
//! |---|---|
//! | `route` | finds the desk of a repository, and holds what waits for each desk |
//! | `worker` | the thread: takes items and the store's replies, and runs the lanes |
//! | `slot` | what a desk has in memory of one repository |
//! | `event`, [`judge`], `claim` | what an event means for its repository |
//! | `listing_entry` | what an entry of a host's listing means |
//! | [`env`] | what the row transaction asks of the program |
//! | `submit` | the changes of a decision go to the store |
//! | `ack` | the store's replies: durable, or refused |
//! | `skip` | events that are not wanted move the cursor |
//! | `page_ack` | whether everything that a page led to is durable |
//! | [`totals`] | bytes of parked frames, claims and dead letters of all repositories |
//! | `report` | notices of the ledger, and dead letters |

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
pub mod totals;
mod worker;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gapless_atp::syntax::{Did, Rev};
use gapless_core::ledger::event::Origin;
use gapless_core::ledger::sweep::{ListingEntry, ListingVerdict};
use gapless_core::ledger::{Repo, Tick};
use gapless_core::repo_tx::{Arrival, RepoTx};
use gapless_store::cursor::EventPosition;
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

pub(crate) use listing_entry::may_have_left;
pub(crate) use report::begin_first_sighting;
pub use route::Desks;

use crate::services::Services;
use crate::upstreams::Wire;
use crate::upstreams::connection::Lag;
use crate::upstreams::sources::SourceTally;
use env::DeskEnv;
use totals::DeskTotals;

/// A dead letter keeps at most this many bytes of its event.
pub(crate) const DEAD_PAYLOAD_BYTES: usize = 64 << 10;

/// An event on its way to its desk.
pub struct InboundEvent {
    pub did: Did,
    pub bytes: Bytes,
    pub wire: Wire,
    pub origin: Origin,
    pub seq: u64,
    /// `None` if the event's number does not count for the cursor.
    pub position: Option<EventPosition>,
    /// The tick at which the event was read.
    pub read: Tick,
    /// When the event was read from the socket.
    pub at: Instant,
    /// How often the store refused the changes that the event led to.
    pub refused: u32,
    /// The rev of the commit, once the commit was verified and applied.
    pub applied: Option<Rev>,
    /// Where the age of the commit is recorded when the commit is durable.
    pub lag: Option<Arc<Lag>>,
    /// Counts which upstream brought the commit; `None` if only one upstream could.
    pub tally: Option<Arc<SourceTally>>,
    /// The event's share of the bytes that may wait, returned when the event is done.
    pub permit: Option<OwnedSemaphorePermit>,
}

impl InboundEvent {
    fn arrival(&self) -> Arrival<'_> {
        Arrival {
            origin: self.origin,
            seq: self.seq,
            bytes: &self.bytes,
        }
    }
}

/// A repository of a page of a host's listing.
pub struct ListedRepo {
    pub did: Did,
    pub entry: ListingEntry,
}

/// What the desk decided about an entry of a listing.
pub enum EntryOutcome {
    Listed(ListingVerdict),
    /// The repository is unknown and not wanted.
    Unwanted,
    /// The desk could not decide about the repository now.
    Passed,
}

/// What the desks decided about the entries of a page.
pub struct PageOutcome {
    pub entries: Vec<(Did, EntryOutcome)>,
    acks: Vec<oneshot::Receiver<bool>>,
    /// Whether a desk did not process its entries.
    unread: bool,
}

impl PageOutcome {
    /// Waits until the changes that the entries led to are durable, and returns whether all
    /// of them are. Changes of a desk that passed over an entry are not waited for: such a
    /// page counts for nothing.
    pub(crate) async fn wait_until_durable(&mut self) -> bool {
        let mut all = !self.unread;
        for ack in self.acks.drain(..) {
            all &= ack.await.unwrap_or(false);
        }
        all
    }
}

/// Work on one repository, which its desk runs when the repository has no flights.
pub type RepoWork = Box<dyn FnOnce(&mut RepoTurn<'_>) + Send>;

/// Receives whether the changes of a decision are durable.
pub type DurableReply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// What [`RepoWork`] works with: one repository, and the store as it is now.
pub struct RepoTurn<'a> {
    pub services: &'a Services,
    pub view: &'a ReadView,
    totals: &'a DeskTotals,
    /// `None` if the store does not know the repository.
    pub tx: Option<RepoTx>,
    pub did: &'a Did,
    /// Called when all changes of the work are durable, or one of them is refused.
    pub reply: Option<DurableReply>,
    /// Whether the work panicked: then the desk discards the transaction.
    fault: bool,
}

impl<'a> RepoTurn<'a> {
    /// The environment of the transaction, as of [`RepoTurn::view`].
    pub fn env(&self) -> DeskEnv<'a> {
        DeskEnv::on_view(self.services, self.totals, self.view)
    }

    /// The transaction of the repository, which is created if the store does not know it.
    pub fn get_or_create(&mut self) -> &mut RepoTx {
        self.tx
            .get_or_insert_with(|| RepoTx::first_seen(Repo::new(self.did.clone())))
    }
}
