//! A snapshot beside what is held: the operations that lead from the one to the
//! other.
//!
//! Both are sorted by path, so it is one merge that holds one chunk at a time.
//! Nothing is handed out before the whole snapshot was walked. Whoever takes the
//! chunks may stop at any of them.

use std::borrow::Cow;
use std::iter::Peekable;

use gapless_atp::cid::Cid;
use gapless_atp::mst::{TreeError, Visit, walk};
use gapless_core::ledger::RepoId;
use gapless_store::change::{RecordOp, RecordValue};
use gapless_store::error::StoreError;
use gapless_store::read_view::ReadView;
use gapless_store::scan::scan;
use gapless_store::table::log::ROW_OPS;
use gapless_store::table::record::Record;

use crate::repair::snapshot::{Flaw, Snapshot, SnapshotError};
pub use gapless_core::filter::Keep;

/// Bytes of one chunk, by [`weight`]: a few go into one batch of the store.
pub const CHUNK_BYTES: usize = 4 << 20;
/// Held records that are read at a time. A view that is open while a large
/// repository is written would keep all that is written in memory.
const HELD_AT_A_TIME: usize = 2_000;
/// What an operation takes besides its path and its record.
const OP_BYTES: usize = 128;

/// Operations in the order of their paths, at most [`ROW_OPS`] of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub ops: Vec<RecordOp>,
    /// Nothing comes after this one. It is empty only when nothing differs.
    pub last: bool,
}

/// What a comparison came to, in records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub puts: u64,
    pub deletes: u64,
    pub unchanged: u64,
    /// In the snapshot, and neither wanted nor held.
    pub unwanted: u64,
    /// Bytes of the records that are put.
    pub bytes: u64,
    pub chunks: u64,
}

/// Why a comparison stopped.
enum Stop<E> {
    Flaw(Flaw),
    Emit(E),
}

impl<E> From<Flaw> for Stop<E> {
    fn from(flaw: Flaw) -> Stop<E> {
        Stop::Flaw(flaw)
    }
}

impl<E> From<TreeError> for Stop<E> {
    fn from(error: TreeError) -> Stop<E> {
        Stop::Flaw(error.into())
    }
}

impl<E> From<StoreError> for Stop<E> {
    fn from(error: StoreError) -> Stop<E> {
        Stop::Flaw(error.into())
    }
}

impl Snapshot {
    /// Hands out what leads from the held records to those of the snapshot.
    /// `held` gives views of what is held; what is read later is read from a later
    /// one, so nobody else may write these records meanwhile, or whoever takes the
    /// chunks must notice. `repair` compares bytes, too, and not CIDs alone. An error
    /// of `emit` ends it and comes back.
    pub fn differences<E: From<SnapshotError>>(
        &self,
        held: &dyn Fn() -> ReadView,
        repo: Option<RepoId>,
        wanted: &dyn Fn(&[u8]) -> Keep,
        repair: bool,
        emit: &mut dyn FnMut(Chunk) -> Result<(), E>,
    ) -> Result<Totals, E> {
        let compared = self.compare(held, repo, wanted, repair, emit);
        compared.map_err(|stop| match stop {
            Stop::Flaw(flaw) => self.flawed(flaw).into(),
            Stop::Emit(error) => error,
        })
    }

    fn compare<E>(
        &self,
        held: &dyn Fn() -> ReadView,
        repo: Option<RepoId>,
        wanted: &dyn Fn(&[u8]) -> Keep,
        repair: bool,
        emit: &mut dyn FnMut(Chunk) -> Result<(), E>,
    ) -> Result<Totals, Stop<E>> {
        self.walked()?;
        let rows = repo.map(|repo| held_rows(held, repo));
        let mut rows = rows.into_iter().flatten().peekable();
        let mut chunks = Chunks {
            fresh: rows.peek().is_none(),
            ops: Vec::new(),
            weight: 0,
            totals: Totals::default(),
            emit,
        };
        walk(self.head().data, &self.source(), |met| {
            let Visit::Key { key, value, .. } = met else {
                return Ok(());
            };
            let row = row_at(&mut rows, key, |gone| chunks.delete(gone.path()))?;
            let keep = wanted(key);
            match (&row, keep) {
                (None, Keep::Nothing) => {
                    chunks.totals.unwanted += 1;
                    Ok(())
                }
                (Some(_), Keep::Nothing) => chunks.delete(key),
                (Some(row), _) if row.cid == value => match repair && self.is_spoilt(row, keep)? {
                    true => chunks.put(key, value, self.bytes(key, &value, keep)?),
                    false => {
                        chunks.totals.unchanged += 1;
                        Ok(())
                    }
                },
                _ => chunks.put(key, value, self.bytes(key, &value, keep)?),
            }
        })?;
        for row in rows {
            chunks.delete(row?.path())?;
        }
        chunks.hand_out(true)?;
        Ok(chunks.totals)
    }

    /// Whether a held record is not what shall be kept of the one in its place.
    fn is_spoilt(&self, row: &Record, keep: Keep) -> Result<bool, Flaw> {
        match (keep, row.bytes()) {
            (Keep::Record, Some(bytes)) => match self.served(&row.cid)? {
                Some(served) => Ok(*served != *bytes),
                // A difference does not bring it, so its hash must tell.
                None => Ok(!row.cid.matches(bytes)),
            },
            (Keep::Record, None) => Ok(true),
            (Keep::Key | Keep::Nothing, bytes) => Ok(bytes.is_some()),
        }
    }

    fn served(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, Flaw> {
        let block = self.fetched.block(cid);
        block.map_err(|error| Flaw::Io(error.to_string()))
    }

    /// The bytes that are to be kept: as they came, or as they are held.
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
            && let Some(elsewhere) = self.walked()?.moved.get(cid)
        {
            bytes = held.bytes(elsewhere, cid)?;
        }
        bytes.map(Some).ok_or_else(missing)
    }
}

/// The held records in the order of their paths. They are collected, because the caller may
/// wait for the store between two of them.
fn held_rows(
    held: &dyn Fn() -> ReadView,
    repo: RepoId,
) -> impl Iterator<Item = Result<Record, StoreError>> {
    let read = move |last: &Option<Vec<u8>>| {
        let view = held();
        let rows: Vec<_> = match last {
            None => view.records(repo).take(HELD_AT_A_TIME).collect(),
            Some(last) => {
                let rest = view.records_after(repo, last);
                rest.take(HELD_AT_A_TIME).collect()
            }
        };
        rows.into_iter()
    };
    scan(HELD_AT_A_TIME, None, read, |record: &Record| {
        Some(record.path().to_vec())
    })
}

/// The held record at a path, after those before it were told to be gone.
fn row_at<E>(
    rows: &mut Peekable<impl Iterator<Item = Result<Record, StoreError>>>,
    path: &[u8],
    mut gone: impl FnMut(&Record) -> Result<(), Stop<E>>,
) -> Result<Option<Record>, Stop<E>> {
    loop {
        // An error is taken, too, and ends it.
        let near =
            |row: &Result<Record, StoreError>| row.as_ref().map_or(true, |row| row.path() <= path);
        match rows.next_if(near).transpose()? {
            Some(row) if row.path() < path => gone(&row)?,
            row => return Ok(row),
        }
    }
}

/// The chunk that is being filled.
struct Chunks<'a, E> {
    /// Nothing at all is held.
    fresh: bool,
    ops: Vec<RecordOp>,
    weight: usize,
    totals: Totals,
    emit: &'a mut dyn FnMut(Chunk) -> Result<(), E>,
}

impl<E> Chunks<'_, E> {
    fn delete(&mut self, path: &[u8]) -> Result<(), Stop<E>> {
        self.totals.deletes += 1;
        self.push(path, None)
    }

    fn put(&mut self, path: &[u8], cid: Cid, bytes: Option<Vec<u8>>) -> Result<(), Stop<E>> {
        self.totals.puts += 1;
        self.totals.bytes += bytes.as_ref().map_or(0, Vec::len) as u64;
        self.push(path, Some(RecordValue { cid, bytes }))
    }

    /// A full chunk goes out when the next operation comes, and not before: so
    /// the one that is left at the end is the last.
    fn push(&mut self, path: &[u8], put: Option<RecordValue>) -> Result<(), Stop<E>> {
        let weight = weight(path, put.as_ref());
        let full = self.ops.len() == ROW_OPS || self.weight + weight > CHUNK_BYTES;
        if full && !self.ops.is_empty() {
            self.hand_out(false)?;
        }
        self.weight += weight;
        self.ops.push(RecordOp {
            path: path.to_vec(),
            put,
            fresh: self.fresh,
        });
        Ok(())
    }

    fn hand_out(&mut self, last: bool) -> Result<(), Stop<E>> {
        let ops = std::mem::take(&mut self.ops);
        self.weight = 0;
        self.totals.chunks += 1;
        (self.emit)(Chunk { ops, last }).map_err(Stop::Emit)
    }
}

/// Roughly what an operation takes, in memory and in the store.
fn weight(path: &[u8], put: Option<&RecordValue>) -> usize {
    let bytes = put.and_then(|put| put.bytes.as_ref());
    OP_BYTES + 2 * path.len() + bytes.map_or(0, Vec::len)
}
