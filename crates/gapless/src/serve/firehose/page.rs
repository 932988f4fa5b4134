//! Reads the log and the frames in step, a page at a time, and makes of each row
//! what a consumer is told of it.
//!
//! The log is the order; a frame stands beside the row whose first number it has.
//! Only rows below the durable head of one view are read, and only for as long as
//! the page takes.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::FixedState;
use gapless_atp::cid::Cid;
use gapless_atp::frame::renumber;
use gapless_atp::limits::FRAME_BYTES;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::account::is_hidden;
use gapless_core::ledger::{Repo, RepoId};
use gapless_store::error::StoreError;
use gapless_store::frames::{FramesError, StoredFrame};
use gapless_store::read_view::ReadView;
use gapless_store::table::log::{LogKind, LogRowSummary};

use gapless_mirror::log::frames;
use gapless_mirror::services::Services;

/// Bytes of frames in a page; one frame may go beyond it.
const PAGE_BYTES: usize = 1 << 20;
/// Rows of the log that are looked at for a page, whether or not they say anything.
const PAGE_ROWS: usize = 4_096;
/// Repositories of which it is remembered where they were last said to be. Of more,
/// the same may be said twice.
const REMEMBERED: usize = 4_096;

/// Why there is no page.
#[derive(Debug, Clone)]
pub enum Stopped {
    /// The window has passed the place.
    Passed,
    Store(StoreError),
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Stopped {
        Stopped::Store(error)
    }
}

/// What a page came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    pub frames: u64,
    /// Everything below this number was looked at.
    pub next: u64,
    /// There is more already.
    pub more: bool,
}

/// How far one consumer is.
pub struct Place {
    services: Arc<Services>,
    next: u64,
    /// Frames that were read and are not used yet; all there are below `read_upto`.
    frames: VecDeque<StoredFrame>,
    read_upto: u64,
    /// Where it was told that repositories are.
    told: BTreeMap<RepoId, (Rev, Cid)>,
}

impl Place {
    pub fn new(services: Arc<Services>, from: u64) -> Place {
        Place {
            services,
            next: from,
            frames: VecDeque::new(),
            read_upto: 0,
            told: BTreeMap::new(),
        }
    }

    /// The number that is looked at next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Hands the next frames to `send`, in parts that belong together, until there
    /// are enough for a page or no more.
    pub fn page(&mut self, send: &mut dyn FnMut(&[&[u8]])) -> Result<Page, Stopped> {
        let services = self.services.clone();
        let view = services.store.view();
        let end = view.counters()?.next_seq;
        if self.next < end {
            self.read_frames(end)?;
        }
        let mut reading = Reading {
            services: &services,
            view: &view,
            repos: HashMap::with_hasher(FixedState::default()),
            told: &mut self.told,
            send,
            frames: 0,
            bytes: 0,
        };
        let mut rows = 0;
        if self.next < self.read_upto {
            for row in view.log_summaries(self.next)? {
                let (first, row) = row?;
                if first >= self.read_upto || rows == PAGE_ROWS || reading.bytes >= PAGE_BYTES {
                    break;
                }
                rows += 1;
                while self.frames.front().is_some_and(|frame| frame.seq < first) {
                    self.frames.pop_front();
                }
                let frame = self.frames.front().is_some_and(|frame| frame.seq == first);
                let frame = frame.then(|| self.frames.pop_front()).flatten();
                // A cursor may stand in the middle of a row: its consumer has that row.
                if first >= self.next {
                    reading.tell(first, &row, frame.and_then(|frame| frame.bytes))?;
                }
                self.next = first.saturating_add(row.numbers);
            }
        }
        Ok(Page {
            frames: reading.frames,
            next: self.next,
            more: self.next < end,
        })
    }

    fn read_frames(&mut self, end: u64) -> Result<(), Stopped> {
        let Some(frames) = self.services.store.frames() else {
            return Err(Stopped::Passed);
        };
        if self.next < frames.oldest_seq() {
            return Err(Stopped::Passed);
        }
        if self.next < self.read_upto {
            return Ok(());
        }
        match frames.read(self.next, end, PAGE_BYTES) {
            Ok(page) => {
                self.read_upto = page.next_seq;
                self.frames = page.frames.into();
                Ok(())
            }
            Err(FramesError::Gone { .. }) => Err(Stopped::Passed),
            Err(error) => Err(Stopped::Store(error.into())),
        }
    }
}

/// A page as it fills.
struct Reading<'a> {
    services: &'a Services,
    view: &'a ReadView,
    /// Repositories as they are now; none for those that are not there, or hidden.
    repos: HashMap<RepoId, Option<Repo>, FixedState>,
    told: &'a mut BTreeMap<RepoId, (Rev, Cid)>,
    send: &'a mut dyn FnMut(&[&[u8]]),
    frames: u64,
    bytes: usize,
}

impl Reading<'_> {
    /// One row, if it says anything to outsiders.
    fn tell(
        &mut self,
        seq: u64,
        row: &LogRowSummary,
        frame: Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        let Some(id) = row.repo else {
            return Ok(());
        };
        match row.kind {
            LogKind::Claimed | LogKind::Lost(_) | LogKind::Redacted(_) => Ok(()),
            LogKind::Account(account) => {
                // Said of hidden ones, too: it is how others learn that they are.
                if let Some(repo) = self.view.repo(id)?.filter(|_| row.last) {
                    let did = repo.did.as_str();
                    self.put(&[&frames::account(seq, did, account, row.at)]);
                }
                Ok(())
            }
            LogKind::Identity => {
                if let Some(repo) = self.shown(id)? {
                    let said = frames::identity(seq, repo.did.as_str(), row.at);
                    self.put(&[&said]);
                }
                Ok(())
            }
            LogKind::Live | LogKind::Backfill | LogKind::Repair if row.last => {
                self.led_on(seq, id, row, frame)
            }
            LogKind::Live | LogKind::Backfill | LogKind::Repair => Ok(()),
        }
    }

    /// The row led to a new state: by a commit of its owner, or by a way for which
    /// the frame says where that is.
    fn led_on(
        &mut self,
        seq: u64,
        id: RepoId,
        row: &LogRowSummary,
        frame: Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        if self.shown(id)?.is_none() {
            // When it is shown again, a row says where it is by then.
            return Ok(());
        }
        let is_step = row.kind == LogKind::Live;
        let frame = frame.as_deref().map(|frame| renumber(frame, seq));
        match frame {
            Some(Ok(frame)) if frame.len() <= FRAME_BYTES => {
                let newer = |(rev, _): &(Rev, Cid)| row.commit.is_none_or(|(to, _)| to > *rev);
                if !self.told.is_empty() && self.told.get(&id).is_some_and(newer) {
                    self.told.remove(&id);
                }
                if !is_step {
                    self.services.metrics.firehose_syncs.inc();
                }
                self.put(&frame.parts());
                Ok(())
            }
            // Damaged, redacted, or too large by the bytes of our number.
            _ => {
                self.services.metrics.firehose_frames_missing.inc();
                self.now_at(seq, id, row)
            }
        }
    }

    /// The repository got somewhere by a way that cannot be told. Where it is now
    /// is told, once.
    fn now_at(&mut self, seq: u64, id: RepoId, row: &LogRowSummary) -> Result<(), StoreError> {
        let Some(repo) = self.shown(id)? else {
            return Ok(());
        };
        let Some((did, head)) = repo.head().map(|head| (repo.did.clone(), *head)) else {
            // Nothing exact is held: what leads to the next state tells of that.
            return Ok(());
        };
        let now = (head.rev, head.commit);
        if self.told.get(&id) == Some(&now) {
            return Ok(());
        }
        let Some(block) = self.view.signed_commit(id)? else {
            self.services.metrics.firehose_untold.inc();
            return Ok(());
        };
        if self.told.len() >= REMEMBERED {
            self.told.clear();
        }
        self.told.insert(id, now);
        self.services.metrics.firehose_syncs.inc();
        // A frame of our own making has a number to be replaced.
        if let Ok(said) = renumber(&frames::sync(&did, &head, &block, row.at), seq) {
            self.put(&said.parts());
        }
        Ok(())
    }

    /// The repository, unless it is hidden now.
    fn shown(&mut self, id: RepoId) -> Result<Option<&Repo>, StoreError> {
        use std::collections::hash_map::Entry;
        let found = match self.repos.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let repo = self.view.repo(id)?;
                place.insert(repo.filter(|repo| !is_hidden(repo.account)))
            }
        };
        Ok(found.as_ref())
    }

    fn put(&mut self, parts: &[&[u8]]) {
        self.frames += 1;
        self.bytes += parts.iter().map(|part| part.len()).sum::<usize>();
        (self.send)(parts);
    }
}
