//! Turns rows of the log, with their frames, into the frames that a consumer receives, one
//! page at a time. [`FramedReader`] reads the rows; each page has a view of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;
use gapless_atp::cid::Cid;
use gapless_atp::frame::renumber;
use gapless_atp::limits::FRAME_BYTES;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::account::is_hidden;
use gapless_core::ledger::{Repo, RepoId};
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use gapless_store::table::log::{LogKind, LogRowSummary};

use gapless_mirror::log::framed::{FramedPage, FramedReadError, FramedReader};
use gapless_mirror::log::frames;
use gapless_mirror::services::Services;

/// Repositories whose last announced state a reader remembers. With more repositories, a
/// consumer may receive the same `#sync` twice.
const ANNOUNCED_REPOS: usize = 4_096;

/// The result of reading a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageResult {
    pub(crate) frames: u64,
    /// Every number below this one was read.
    pub(crate) next: u64,
    /// The log has more rows.
    pub(crate) more: bool,
}

/// Reads the frames of the firehose for one consumer.
pub(crate) struct FirehoseReader {
    services: Arc<Services>,
    log: FramedReader,
    /// The states that `#sync` frames have announced to this consumer.
    announced: BTreeMap<RepoId, (Rev, Cid)>,
}

impl FirehoseReader {
    pub(crate) fn new(services: Arc<Services>, from: u64) -> FirehoseReader {
        FirehoseReader {
            log: FramedReader::new(services.store.clone(), from),
            services,
            announced: BTreeMap::new(),
        }
    }

    /// The number that is read next.
    pub(crate) fn next(&self) -> u64 {
        self.log.next()
    }

    /// Passes the next frames to `send`, each as a list of parts, until the page is full or
    /// the log ends.
    pub(crate) fn read_page(
        &mut self,
        send: &mut dyn FnMut(&[&[u8]]),
    ) -> Result<PageResult, FramedReadError> {
        let view = self.services.store.view();
        let mut builder = FirehosePageBuilder {
            services: &self.services,
            view: &view,
            repos: HashMap::with_hasher(FixedState::default()),
            announced: &mut self.announced,
            send,
            frames: 0,
            bytes: 0,
        };
        let FramedPage { next, more } = self.log.read_page(&view, &mut |first, row, frame| {
            let before = builder.bytes;
            builder.add_row(first, row, frame)?;
            Ok(builder.bytes - before)
        })?;
        Ok(PageResult {
            frames: builder.frames,
            next,
            more,
        })
    }
}

/// A page that is being built.
struct FirehosePageBuilder<'a> {
    services: &'a Services,
    view: &'a ReadView,
    /// The current repositories; `None` for one that is missing or hidden.
    repos: HashMap<RepoId, Option<Repo>, FixedState>,
    announced: &'a mut BTreeMap<RepoId, (Rev, Cid)>,
    send: &'a mut dyn FnMut(&[&[u8]]),
    frames: u64,
    bytes: usize,
}

impl FirehosePageBuilder<'_> {
    /// Adds the frame of a row, if consumers receive one.
    fn add_row(
        &mut self,
        seq: u64,
        row: &LogRowSummary,
        frame: Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        let Some(id) = row.repo else {
            return Ok(());
        };
        match row.kind {
            // The row of the account before a purge announces that the repository is gone.
            LogKind::Claimed(_)
            | LogKind::Unclaimed
            | LogKind::Lost(_)
            | LogKind::Redacted(_)
            | LogKind::Purged(_)
            | LogKind::Trimmed(_) => Ok(()),
            LogKind::Restated => self.announce_state(seq, id, row),
            LogKind::Account(account) => {
                // Sent for a hidden repository too, because this event announces the hiding.
                if let Some(repo) = self.view.repo(id)?.filter(|_| row.last) {
                    let did = repo.did.as_str();
                    self.send_frame(&[&frames::account(seq, did, account, row.at)]);
                }
                Ok(())
            }
            LogKind::Identity => {
                if let Some(repo) = self.visible_repo(id)? {
                    let frame = frames::identity(seq, repo.did.as_str(), row.at);
                    self.send_frame(&[&frame]);
                }
                Ok(())
            }
            LogKind::Live | LogKind::Backfill | LogKind::Repair if row.last => {
                self.add_state_change(seq, id, row, frame)
            }
            LogKind::Live | LogKind::Backfill | LogKind::Repair => Ok(()),
        }
    }

    /// Adds a row that led to a new state: a commit of the owner, or a `#sync` frame for a
    /// state that was reached in another way.
    fn add_state_change(
        &mut self,
        seq: u64,
        id: RepoId,
        row: &LogRowSummary,
        frame: Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        if self.visible_repo(id)?.is_none() {
            // When the repository is shown again, a later row announces its state.
            return Ok(());
        }
        let is_step = row.kind == LogKind::Live;
        let frame = frame.as_deref().map(|frame| renumber(frame, seq));
        match frame {
            Some(Ok(frame)) if frame.len() <= FRAME_BYTES => {
                let newer = |(rev, _): &(Rev, Cid)| row.commit.is_none_or(|(to, _)| to > *rev);
                if !self.announced.is_empty() && self.announced.get(&id).is_some_and(newer) {
                    self.announced.remove(&id);
                }
                if !is_step {
                    self.services.metrics.firehose_syncs.inc();
                }
                if row.kind == LogKind::Repair
                    && let Some(now) = row.commit
                {
                    // A `restated` row that follows announces nothing new.
                    self.remember(id, now);
                }
                self.send_frame(&frame.parts());
                Ok(())
            }
            // Damaged, redacted, or too large with the number of this mirror.
            _ => {
                self.services.metrics.firehose_frames_missing.inc();
                self.announce_state(seq, id, row)
            }
        }
    }

    /// Announces the current state of a repository with a `#sync` frame, once, because the
    /// frame that led there is missing.
    fn announce_state(
        &mut self,
        seq: u64,
        id: RepoId,
        row: &LogRowSummary,
    ) -> Result<(), StoreError> {
        let Some(repo) = self.visible_repo(id)? else {
            return Ok(());
        };
        let Some((did, head)) = repo.head().map(|head| (repo.did.clone(), *head)) else {
            // No signed state is held: the row of the next state announces it.
            return Ok(());
        };
        let now = (head.rev, head.commit);
        if self.announced.get(&id) == Some(&now) {
            return Ok(());
        }
        let Some(block) = self.view.signed_commit(id)? else {
            self.services.metrics.firehose_untold.inc();
            return Ok(());
        };
        self.remember(id, now);
        self.services.metrics.firehose_syncs.inc();
        // A frame that Gapless encoded always has a number.
        if let Ok(frame) = renumber(&frames::sync(&did, &head, &block, row.at), seq) {
            self.send_frame(&frame.parts());
        }
        Ok(())
    }

    /// Remembers the state that a `#sync` frame announces.
    fn remember(&mut self, id: RepoId, state: (Rev, Cid)) {
        if self.announced.len() >= ANNOUNCED_REPOS {
            self.announced.clear();
        }
        self.announced.insert(id, state);
    }

    /// The repository, unless it is hidden or being purged.
    fn visible_repo(&mut self, id: RepoId) -> Result<Option<&Repo>, StoreError> {
        use std::collections::hash_map::Entry;
        let found = match self.repos.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let repo = self.view.repo(id)?;
                place.insert(repo.filter(|repo| !is_hidden(repo.account) && !repo.purging))
            }
        };
        Ok(found.as_ref())
    }

    fn send_frame(&mut self, parts: &[&[u8]]) {
        self.frames += 1;
        self.bytes += parts.iter().map(|part| part.len()).sum::<usize>();
        (self.send)(parts);
    }
}
