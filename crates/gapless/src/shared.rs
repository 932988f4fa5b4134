//! What every part of the running program shares: the store, the clock, the
//! upstreams, the hosts, what is wanted, and what is owed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gapless_atp::syntax::Did;
use gapless_core::ledger::event::Context;
use gapless_core::ledger::{Kind, Now, Settings, Time};
use gapless_store::Store;
use gapless_store::error::StoreError;
use tokio::sync::watch;

use crate::candidates::Candidates;
use crate::census::Censuses;
use crate::claims::Claims;
use crate::clock::Clock;
use crate::filter::Filter;
use crate::hosts::HostRows;
use crate::ingest::sources::Sources;
use crate::ingest::strays::Strays;
use crate::ingest::upstreams::Upstreams;
use crate::metrics::Metrics;
use crate::moments::Moments;
use crate::newcomers::Newcomers;
use crate::room::Room;
use crate::schedule::Schedule;
use crate::scope::Scope;
use crate::troubles::Troubles;

pub struct Shared {
    pub store: Arc<Store>,
    pub clock: Arc<Clock>,
    pub upstreams: Upstreams,
    /// Which of them brought what, and how late.
    pub sources: Sources,
    pub hosts: HostRows,
    /// Hosts that bring repositories of others.
    pub strays: Strays,
    pub settings: Settings,
    pub filter: Filter,
    /// Which repositories are wanted that nobody has named.
    pub scope: Scope,
    pub schedule: Schedule,
    pub metrics: Metrics,
    pub tracked: RwLock<HashSet<Did>>,
    /// Of these: found by which collection, and when.
    pub found: RwLock<HashMap<Did, (Arc<str>, Time)>>,
    /// Names that nobody had heard of before an event told of them.
    pub newcomers: Newcomers,
    /// Names that may be found next.
    pub candidates: Candidates,
    /// Bytes of all parked frames.
    pub parked_bytes: AtomicU64,
    /// How much unproven sources claim.
    pub claims: Claims,
    /// Dead letters that nobody has settled.
    pub dead_letters: AtomicU64,
    /// With how many repositories hosts are behind.
    pub censuses: Censuses,
    /// Whether there is room on the disk.
    pub room: Arc<Room>,
    /// Which tick it was when.
    pub moments: Moments,
    /// Why the last try for a repository failed.
    pub troubles: Troubles,
    pub end: Arc<End>,
}

/// Dead letters that are kept until somebody settles some; of more than these only
/// the number is.
pub const DEAD_LETTERS: u64 = 10_000;

impl Shared {
    /// What a decision is taken with.
    pub fn decide<T>(&self, now: Now, act: impl FnOnce(Context<'_>) -> T) -> T {
        let covers = self.upstreams.read();
        act(Context {
            now,
            covers: &covers,
            settings: &self.settings,
        })
    }

    pub fn is_tracked(&self, did: &Did) -> bool {
        let tracked = self.tracked.read().unwrap_or_else(PoisonError::into_inner);
        tracked.contains(did)
    }

    /// The collection by which a tracked repository was found, and when.
    pub fn found_by(&self, did: &Did) -> Option<(Arc<str>, Time)> {
        let found = self.found.read().unwrap_or_else(PoisonError::into_inner);
        found.get(did).cloned()
    }

    /// All that were found.
    pub fn found_dids(&self) -> Vec<Did> {
        let found = self.found.read().unwrap_or_else(PoisonError::into_inner);
        found.keys().cloned().collect()
    }

    /// Whether the host of a repository is followed for its sake: it is tracked, and
    /// if it was found nobody else brings its events.
    pub fn wants_stream(&self, did: &Did) -> bool {
        let relayed = || {
            let covers = self.upstreams.read();
            covers
                .iter()
                .any(|(_, source)| source.row.kind == Kind::Relay)
        };
        self.is_tracked(did) && (self.found_by(did).is_none() || !relayed())
    }

    /// Whether there is room for one more dead letter; if so, it is taken.
    pub fn take_dead_letter(&self) -> bool {
        let taken = self
            .dead_letters
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |kept| {
                (kept < DEAD_LETTERS).then_some(kept + 1)
            });
        taken.is_ok()
    }

    /// A dead letter is settled: there is room for another.
    pub fn settle_dead_letter(&self) {
        let settled = |open: u64| open.checked_sub(1);
        // None were left: then there is nothing to take off.
        let _ = self
            .dead_letters
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, settled);
    }

    /// The last try for a repository failed.
    pub fn trouble(&self, did: &Did, error: impl std::fmt::Display) {
        self.troubles.note(self.clock.time(), did, error, false);
    }

    /// Likewise, by no fault of its host's: our own disk did.
    pub fn trouble_here(&self, did: &Did, error: impl std::fmt::Display) {
        self.troubles.note(self.clock.time(), did, error, true);
    }
}

/// How the program is told to end: by a signal, or by a fault after which nothing
/// can be written.
pub struct End {
    ends: watch::Sender<bool>,
    fault: Mutex<Option<StoreError>>,
}

impl Default for End {
    fn default() -> End {
        End {
            ends: watch::Sender::new(false),
            fault: Mutex::new(None),
        }
    }
}

impl End {
    pub fn end(&self) {
        self.ends.send_replace(true);
    }

    pub fn is_ending(&self) -> bool {
        *self.ends.borrow()
    }

    /// Resolves when the program ends.
    pub async fn ended(&self) {
        let mut ends = self.ends.subscribe();
        // The sender lives as long as we do.
        let _ = ends.wait_for(|ends| *ends).await;
    }

    /// Nothing can be written any more: the first reason is the one to tell.
    pub fn fail(&self, error: StoreError) {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if fault.is_none() && !matches!(error, StoreError::Closed) {
            tracing::error!(
                %error,
                "the store cannot be written; Gapless stops, and nothing that was acknowledged is lost"
            );
            *fault = Some(error);
        }
        self.end();
    }

    pub fn fault(&self) -> Option<StoreError> {
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.clone()
    }
}
