//! What the row transaction needs beside the row: the store, the clock and the upstreams.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use gapless_atp::cid::Cid;
use gapless_atp::frame;
use gapless_atp::syntax::Rev;
use gapless_atp::verify;
use gapless_core::ledger::cover::Covers;
use gapless_core::ledger::{RepoId, Time};
use gapless_core::repo_tx::log::SyncFrame;
use gapless_core::repo_tx::step::ParkedFrame;
use gapless_core::repo_tx::{ChangedKeys, JudgeBy, Moment, ReadFrame, RepoEnv, Unusable};
use gapless_net::public_key;
use gapless_store::error::StoreError;
use gapless_store::read_view::{ReadView, RootError};

use crate::desk::judge::{self, OwnerKey};
use crate::desk::totals::DeskTotals;
use crate::log::frames;
use crate::services::Services;

/// The environment of one transaction at a desk.
pub struct DeskEnv<'a> {
    services: &'a Services,
    totals: &'a DeskTotals,
    /// The view of the store, taken at the first read: most events read nothing.
    view: OnceCell<ReadView>,
}

impl<'a> DeskEnv<'a> {
    /// Creates an environment that takes a view of the store at the first read.
    pub fn new(services: &'a Services, totals: &'a DeskTotals) -> DeskEnv<'a> {
        DeskEnv {
            services,
            totals,
            view: OnceCell::new(),
        }
    }

    /// Creates an environment that reads from the given view.
    pub(super) fn on_view(
        services: &'a Services,
        totals: &'a DeskTotals,
        view: &ReadView,
    ) -> DeskEnv<'a> {
        DeskEnv {
            services,
            totals,
            view: OnceCell::from(view.clone()),
        }
    }

    fn view(&self) -> &ReadView {
        self.view.get_or_init(|| self.services.store.view())
    }
}

impl RepoEnv for DeskEnv<'_> {
    type Error = StoreError;

    fn moment(&self) -> Moment<impl Deref<Target = Covers> + '_> {
        Moment {
            now: self.services.clock.now(),
            covers: self.services.upstreams.read(),
        }
    }

    fn time(&self) -> Time {
        self.services.clock.time()
    }

    fn parked_bytes_in_all(&self) -> u64 {
        self.totals.parked_bytes.load(Ordering::Relaxed)
    }

    fn parked_frame(&self, id: RepoId, rev: Rev) -> Result<Option<ParkedFrame>, StoreError> {
        self.view().parked_frame(id, rev)
    }

    fn open<'f>(
        &'f self,
        frame: &'f ParkedFrame,
        by: Option<JudgeBy<'_>>,
    ) -> Result<ReadFrame<'f>, Unusable> {
        let decoded = frame::decode(&frame.frame).map_err(|_| Unusable)?;
        let read = match by {
            Some(by) => judge_parked(&decoded, &by, frame.frame.len()),
            None => reopen(&decoded)?,
        };
        Ok(ReadFrame {
            seq: decoded.seq().unwrap_or(0),
            ..read
        })
    }

    fn root_with(&self, id: RepoId, changed: &ChangedKeys) -> Result<Option<Cid>, StoreError> {
        match self.view().root_with(id, changed) {
            Ok(root) => Ok(Some(root)),
            Err(RootError::Tree(_)) => Ok(None),
            Err(RootError::Store(error)) => Err(error),
        }
    }

    fn record(&self, id: RepoId, path: &[u8]) -> Result<Option<Cid>, StoreError> {
        let record = self.view().record(id, path)?;
        Ok(record.map(|record| record.cid))
    }
}

/// Reads a frame that was verified before it was parked.
fn reopen<'f>(event: &frame::Event<'f>) -> Result<ReadFrame<'f>, Unusable> {
    let (commit, ops) = match event {
        frame::Event::Commit(event) => {
            verify::reopen_commit(event).map(|(_, commit, ops)| (commit, ops))
        }
        frame::Event::Sync(event) => {
            verify::reopen_sync(event).map(|(_, commit)| (commit, Vec::new()))
        }
        // Only commits and syncs are parked: the row is damaged.
        _ => return Err(Unusable),
    }
    .map_err(|_| Unusable)?;
    Ok(ReadFrame {
        ops,
        commit,
        ..ReadFrame::default()
    })
}

fn judge_parked<'f>(event: &frame::Event<'f>, by: &JudgeBy<'_>, bytes: usize) -> ReadFrame<'f> {
    let key = by.keys.key.as_ref().and_then(public_key);
    let owner = OwnerKey {
        key: key.as_ref(),
        signing: Some(by.keys),
    };
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    judge::judge_event(event, Some(by.repo), &owner, by.read, by.now, bytes).frame
}

/// Encodes a `#sync` frame for the log; `None` if the signed commit is still on its way
/// to the store, or cannot be read.
pub fn sync_frame(services: &Services, frame: &SyncFrame<'_>) -> Option<Vec<u8>> {
    let commit = match frame.commit {
        Some(commit) => Cow::Borrowed(commit),
        None => Cow::Owned(stored_commit(services, frame)?),
    };
    Some(frames::sync(frame.did, frame.head, &commit, frame.at))
}

fn stored_commit(services: &Services, frame: &SyncFrame<'_>) -> Option<Vec<u8>> {
    let (id, view) = (frame.id?, services.store.view());
    let commit = match view.repo(id) {
        Ok(Some(stored)) if stored.head() == Some(frame.head) => view.signed_commit(id),
        Ok(_) => Ok(None),
        Err(error) => Err(error),
    };
    commit.unwrap_or_else(|error| {
        let did = frame.did;
        tracing::warn!(%did, %error, "the signed commit cannot be read; consumers of the firehose get the state when they reach the row");
        None
    })
}
