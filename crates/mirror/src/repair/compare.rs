//! Compares a snapshot with the held records, and yields the operations that turn the held
//! records into those of the snapshot.
//!
//! Both are sorted by path, so one merge suffices, and one chunk is in memory at a time.
//! The whole snapshot is walked before the first chunk. The caller may stop after any
//! chunk.

use std::borrow::Cow;
use std::iter::Peekable;

use gapless_atp::cid::Cid;
use gapless_atp::mst::TreeKeys;
use gapless_core::ledger::RepoId;
use gapless_store::change::{RecordOp, RecordValue};
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use gapless_store::scan::scan;
use gapless_store::table::log::ROW_OPS;
use gapless_store::table::record::Record;

use crate::repair::block_source::BlockSource;
use crate::repair::snapshot::{Flaw, Snapshot, SnapshotError};
pub use gapless_core::filter::Keep;

/// Bytes of one chunk, by [`weight`]: one batch of the store holds a few chunks.
pub const CHUNK_BYTES: usize = 4 << 20;
/// Held records that are read from one view. A view that stays open while a large
/// repository is written keeps everything written in memory.
const RECORDS_PER_VIEW: usize = 2_000;
/// Bytes of an operation besides its path and its record.
const OP_OVERHEAD_BYTES: usize = 128;

/// Operations in the order of their paths, at most [`ROW_OPS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub ops: Vec<RecordOp>,
    /// Whether no chunk follows. The last chunk is empty only if nothing differs.
    pub last: bool,
}

/// What a comparison found, in records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub puts: u64,
    pub deletes: u64,
    pub unchanged: u64,
    /// Records of the snapshot that are neither wanted nor held.
    pub unwanted: u64,
    /// Bytes of the records that are put.
    pub bytes: u64,
    pub chunks: u64,
}

/// What a snapshot is compared with, and how.
#[derive(Clone, Copy)]
pub struct CompareInput<'a> {
    /// Opens a view of the held records. Each part of the records is read from a later
    /// view, so the caller must be the only writer of these records, or notice other
    /// writes.
    pub open_view: &'a dyn Fn() -> ReadView,
    /// The repository with the held records; `None` if nothing is held.
    pub repo: Option<RepoId>,
    /// What the filter keeps of the record at a path.
    pub keep: &'a dyn Fn(&[u8]) -> Keep,
    /// Whether the bytes of records are compared, and not only their CIDs.
    pub compare_bytes: bool,
}

impl Snapshot {
    /// Walks the whole snapshot, and then yields the operations that turn the held
    /// records into those of the snapshot.
    pub fn differences<'a>(
        &'a self,
        comparison: CompareInput<'a>,
    ) -> Result<Differences<'a>, SnapshotError> {
        self.walk_whole()?;
        let mut rows = held_records(comparison);
        Ok(Differences {
            snapshot: self,
            comparison,
            nothing_held: rows.peek().is_none(),
            rows,
            keys: TreeKeys::new(self.head().data, self.block_source()),
            next_key: None,
            ops: Vec::new(),
            weight: 0,
            totals: Totals::default(),
            ended: false,
        })
    }

    /// Whether a held record differs from what should be kept of it.
    fn differs(&self, row: &Record, keep: Keep) -> Result<bool, Flaw> {
        match (keep, row.bytes()) {
            (Keep::Record, Some(bytes)) => match self.served(&row.cid)? {
                Some(served) => Ok(*served != *bytes),
                // The difference lacks the record, so the hash of the held bytes decides.
                None => Ok(!row.cid.matches(bytes)),
            },
            (Keep::Record, None) => Ok(true),
            (Keep::Key | Keep::Nothing, bytes) => Ok(bytes.is_some()),
        }
    }

    fn served(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, Flaw> {
        let block = self.car.block(cid);
        block.map_err(|error| Flaw::Io(error.to_string()))
    }

    /// Returns the bytes to keep: from the CAR, or from the held records.
    fn bytes(&self, path: &[u8], cid: &Cid, keep: Keep) -> Result<Option<Vec<u8>>, Flaw> {
        if keep != Keep::Record {
            return Ok(None);
        }
        if let Some(block) = self.served(cid)? {
            return Ok(Some(block.into_owned()));
        }
        let missing = || Flaw::missing(path, *cid);
        let held = self.held.as_ref().ok_or_else(missing)?;
        let mut bytes = held.bytes(path, cid)?;
        if bytes.is_none()
            && let Some(elsewhere) = self.ensure_walked()?.moved.get(cid)
        {
            bytes = held.bytes(elsewhere, cid)?;
        }
        bytes.map(Some).ok_or_else(missing)
    }
}

type HeldRows<'a> = Peekable<Box<dyn Iterator<Item = Result<Record, StoreError>> + 'a>>;

/// Returns the held records in the order of their paths. Each part is collected, because the
/// caller may wait for the store between two records.
fn held_records(comparison: CompareInput<'_>) -> HeldRows<'_> {
    let Some(repo) = comparison.repo else {
        let nothing: Box<dyn Iterator<Item = _>> = Box::new(std::iter::empty());
        return nothing.peekable();
    };
    let read = move |last: &Option<Vec<u8>>| {
        let view = (comparison.open_view)();
        let records: Vec<_> = match last {
            None => view.records(repo).take(RECORDS_PER_VIEW).collect(),
            Some(last) => {
                let rest = view.records_after(repo, last);
                rest.take(RECORDS_PER_VIEW).collect()
            }
        };
        records.into_iter()
    };
    let after = |record: &Record| Some(record.path().to_vec());
    let records: Box<dyn Iterator<Item = _>> = Box::new(scan(RECORDS_PER_VIEW, None, read, after));
    records.peekable()
}

/// The chunks of a comparison. After an error there are no more chunks.
pub struct Differences<'a> {
    snapshot: &'a Snapshot,
    comparison: CompareInput<'a>,
    nothing_held: bool,
    rows: HeldRows<'a>,
    keys: TreeKeys<BlockSource<'a>>,
    /// The key of the snapshot that is compared next, once it is read.
    next_key: Option<(Vec<u8>, Cid)>,
    /// The chunk that is being filled.
    ops: Vec<RecordOp>,
    weight: usize,
    totals: Totals,
    ended: bool,
}

impl Iterator for Differences<'_> {
    type Item = Result<Chunk, SnapshotError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let chunk = self.next_chunk();
        self.ended = chunk.as_ref().map_or(true, |chunk| chunk.last);
        Some(chunk.map_err(|flaw| self.snapshot.refusal(flaw)))
    }
}

impl Differences<'_> {
    /// What the comparison has found so far.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Fills the next chunk. A full chunk ends when the next operation comes, so that the chunk
    /// that remains at the end is the last one.
    fn next_chunk(&mut self) -> Result<Chunk, Flaw> {
        while let Some(op) = self.next_op()? {
            let weight = weight(&op);
            let full = self.ops.len() == ROW_OPS || self.weight + weight > CHUNK_BYTES;
            let chunk = (full && !self.ops.is_empty()).then(|| self.take_chunk(false));
            self.weight += weight;
            self.ops.push(op);
            if let Some(chunk) = chunk {
                return Ok(chunk);
            }
        }
        Ok(self.take_chunk(true))
    }

    fn take_chunk(&mut self, last: bool) -> Chunk {
        self.weight = 0;
        self.totals.chunks += 1;
        let ops = std::mem::take(&mut self.ops);
        Chunk { ops, last }
    }

    /// Returns the next operation, in the order of the paths.
    fn next_op(&mut self) -> Result<Option<RecordOp>, Flaw> {
        loop {
            if self.next_key.is_none() {
                let key = self.keys.next_key()?;
                self.next_key = key.map(|(path, cid)| (path.to_vec(), cid));
            }
            let Some((path, cid)) = self.next_key.take() else {
                // The snapshot ended: it lacks every held record that remains.
                let row = self.rows.next().transpose()?;
                return Ok(row.map(|row| self.delete(row.path().to_vec())));
            };
            let row = row_up_to(&mut self.rows, &path)?;
            if let Some(row) = &row
                && row.path() < path.as_slice()
            {
                self.next_key = Some((path, cid));
                return Ok(Some(self.delete(row.path().to_vec())));
            }
            if let Some(op) = self.compare(row.as_ref(), path, cid)? {
                return Ok(Some(op));
            }
        }
    }

    /// Compares a record of the snapshot with the held record at the same path.
    fn compare(
        &mut self,
        row: Option<&Record>,
        path: Vec<u8>,
        cid: Cid,
    ) -> Result<Option<RecordOp>, Flaw> {
        let keep = (self.comparison.keep)(&path);
        match (row, keep) {
            (None, Keep::Nothing) => {
                self.totals.unwanted += 1;
                return Ok(None);
            }
            (Some(_), Keep::Nothing) => return Ok(Some(self.delete(path))),
            (Some(row), _) if row.cid == cid => {
                let differs = self.comparison.compare_bytes && self.snapshot.differs(row, keep)?;
                if !differs {
                    self.totals.unchanged += 1;
                    return Ok(None);
                }
            }
            _ => {}
        }
        let bytes = self.snapshot.bytes(&path, &cid, keep)?;
        self.totals.puts += 1;
        self.totals.bytes += bytes.as_ref().map_or(0, Vec::len) as u64;
        Ok(Some(self.op(path, Some(RecordValue { cid, bytes }))))
    }

    fn delete(&mut self, path: Vec<u8>) -> RecordOp {
        self.totals.deletes += 1;
        self.op(path, None)
    }

    fn op(&self, path: Vec<u8>, put: Option<RecordValue>) -> RecordOp {
        RecordOp {
            path,
            put,
            fresh: self.nothing_held,
        }
    }
}

/// Returns the next held record if its path is not after `path`, or the error that ends
/// the records.
fn row_up_to(rows: &mut HeldRows<'_>, path: &[u8]) -> Result<Option<Record>, StoreError> {
    let up_to =
        |row: &Result<Record, StoreError>| row.as_ref().map_or(true, |row| row.path() <= path);
    rows.next_if(up_to).transpose()
}

/// Roughly the bytes of an operation, in memory and in the store.
fn weight(op: &RecordOp) -> usize {
    let bytes = op.put.as_ref().and_then(|put| put.bytes.as_ref());
    OP_OVERHEAD_BYTES + 2 * op.path.len() + bytes.map_or(0, Vec::len)
}
