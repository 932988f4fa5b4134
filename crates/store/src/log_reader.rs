//! Reads the log as its consumers do: pages of rows, the bytes of an operation, and walks over
//! everything that is held.
//!
//! A consumer keeps a number: everything below it is processed. It reads the rows from there on with
//! [`read_page`], and for each operation that puts a record its bytes with [`read_bytes`]. A consumer
//! that begins late, or was overrun, first takes a [`Walk`] and then follows the log from the number at
//! which the walk began: each record of a walk is stamped with the number of the view that it was
//! read from, and an operation at or below that number is a duplicate.
//!
//! Every function reads from a view that the caller takes and drops; a reader that lags holds
//! nothing back but what its registered position does.

use gapless_atp::cid::Cid;
use gapless_core::ledger::{Repo, RepoId};

use crate::error::StoreError;
use crate::read_view::ReadView;
use crate::table::claimed::ClaimRow;
use crate::table::log::{LogKind, LogOp, LogRow, LogRowSummary};
use crate::table::record::Record;

/// Limits of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    pub rows: usize,
    /// Operations; the last row may exceed this limit.
    pub operations: usize,
    /// Bytes of the records that the operations put; the last row may exceed this limit.
    pub bytes: u64,
}

impl PageLimits {
    pub const DEFAULT: PageLimits = PageLimits {
        rows: 1_024,
        operations: 4_096,
        bytes: 8 << 20,
    };
}

impl Default for PageLimits {
    fn default() -> PageLimits {
        PageLimits::DEFAULT
    }
}

/// Some rows of the log, each with its first number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowPage {
    pub rows: Vec<(u64, LogRow)>,
    /// The number from which the next page is read.
    pub next: u64,
    /// Whether the view has more rows.
    pub more: bool,
}

/// Why a page of the log cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PageError {
    /// The rows were trimmed: the consumer has to begin again with a walk.
    #[error("the log begins with {first} now; the rows from {next} on are gone")]
    Trimmed { next: u64, first: u64 },
    /// The log has a hole, or ends below the position.
    #[error("the log has no row for the number {number}, although {head} is its next number")]
    Missing { number: u64, head: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reads rows from a number on. A position inside of a row gets the whole row.
pub fn read_page(view: &ReadView, next: u64, limits: PageLimits) -> Result<RowPage, PageError> {
    let mut page = RowPage {
        next,
        ..RowPage::default()
    };
    let (mut operations, mut bytes) = (0, 0);
    for row in rows_from(view, next)? {
        let (first, row) = row?;
        let full = page.rows.len() >= limits.rows || operations >= limits.operations;
        if full || bytes >= limits.bytes {
            page.more = true;
            break;
        }
        operations += row.ops.len().max(1);
        let sizes = row.ops.iter().filter_map(|op| op.bytes);
        bytes += sizes.map(u64::from).sum::<u64>();
        page.next = first.saturating_add(row.numbers());
        page.rows.push((first, row));
    }
    Ok(page)
}

/// Rows from the one that contains this number on, up to the head of the view. A missing number is
/// an error.
pub fn rows_from(
    view: &ReadView,
    next: u64,
) -> Result<impl Iterator<Item = Result<(u64, LogRow), PageError>> + Send + use<>, PageError> {
    let head = head_for(view, next)?;
    let rows = view.log_from(next)?;
    Ok(dense(rows, next, head, |row| (row.kind, row.numbers())))
}

/// Rows from the one that contains this number on, without their operations. A missing number is an
/// error.
pub fn summaries_from(
    view: &ReadView,
    next: u64,
) -> Result<impl Iterator<Item = Result<(u64, LogRowSummary), PageError>> + Send + use<>, PageError>
{
    let head = head_for(view, next)?;
    let rows = view.log_summaries(next)?;
    Ok(dense(rows, next, head, |row| (row.kind, row.numbers)))
}

/// The number that the log gives next, if the log is read from `next` on.
fn head_for(view: &ReadView, next: u64) -> Result<u64, PageError> {
    let head = view.counters()?.next_seq;
    if next > head || next == 0 {
        return Err(PageError::Missing { number: next, head });
    }
    Ok(head)
}

/// Checks that rows follow one another without a gap from the row of `next` to the head.
fn dense<R>(
    mut rows: impl Iterator<Item = Result<(u64, R), StoreError>> + Send,
    next: u64,
    head: u64,
    describe: impl Fn(&R) -> (LogKind, u64) + Send,
) -> impl Iterator<Item = Result<(u64, R), PageError>> + Send {
    // Where the next row begins; `None` before the first one, which may begin before `next`.
    let mut expected = None;
    let mut failed = false;
    std::iter::from_fn(move || {
        let at = expected.unwrap_or(next);
        if failed || at >= head {
            return None;
        }
        let row = match rows.next() {
            None => Err(PageError::Missing { number: at, head }),
            Some(Err(error)) => Err(error.into()),
            Some(Ok((first, row))) => {
                let (kind, numbers) = describe(&row);
                let end = first.saturating_add(numbers);
                if expected.map_or(first > next, |expected| first != expected) {
                    Err(PageError::Missing { number: at, head })
                } else if let LogKind::Trimmed(_) = kind {
                    Err(PageError::Trimmed { next, first: end })
                } else {
                    expected = Some(end);
                    Ok((first, row))
                }
            }
        };
        failed = row.is_err();
        Some(row)
    })
}

/// The bytes of an operation, as far as the store has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpBytes {
    /// The record as the operation put it, checked against its CID.
    Record(Vec<u8>),
    /// Only the key of the record is kept.
    KeyOnly,
    /// A later operation or a purge took the record away, and the bytes are gone. `by`: the number of
    /// the record that is held now; `None` if none is held.
    Superseded { by: Option<u64> },
    /// The repository was purged, or is being purged.
    Redacted,
    /// The stored bytes do not hash to the CID: the disk has changed them.
    Spoilt,
}

/// Reads the bytes of the operation `op` of a row. `None` for a delete.
pub fn read_bytes(
    view: &ReadView,
    row: &LogRow,
    op: &LogOp,
) -> Result<Option<OpBytes>, StoreError> {
    let (Some(id), Some(cid)) = (row.repo, op.cid) else {
        return Ok(None);
    };
    if view.repo(id)?.is_none_or(|repo| repo.purging) {
        return Ok(Some(OpBytes::Redacted));
    }
    if let LogKind::Claimed(_) = row.kind {
        let claim = view.claim(id, &op.path)?;
        let by = claim.as_ref().map(|row| row.seq).filter(|seq| *seq > 0);
        let record = claim.and_then(|row| row.claim.record);
        return Ok(Some(match record.filter(|(held, _)| *held == cid) {
            Some((_, bytes)) => checked(&cid, &bytes),
            None => OpBytes::Superseded { by },
        }));
    }
    let held = view.record(id, &op.path)?;
    if let Some(held) = held.as_ref().filter(|held| held.cid == cid) {
        return Ok(Some(match held.bytes() {
            Some(bytes) => checked(&cid, bytes),
            None => OpBytes::KeyOnly,
        }));
    }
    if op.bytes == Some(0) {
        return Ok(Some(OpBytes::KeyOnly));
    }
    let version = match row.commit {
        Some((rev, _)) => view.version(id, &op.path, rev, &cid)?,
        None => None,
    };
    if let Some(bytes) = version.and_then(|version| version.bytes) {
        return Ok(Some(checked(&cid, &bytes)));
    }
    let by = held.map(|held| held.seq).filter(|seq| *seq > 0);
    Ok(Some(OpBytes::Superseded { by }))
}

fn checked(cid: &Cid, bytes: &[u8]) -> OpBytes {
    if cid.matches(bytes) {
        OpBytes::Record(bytes.to_vec())
    } else {
        OpBytes::Spoilt
    }
}

/// The most records of one part of a walk.
pub const WALK_RECORDS: usize = 20_000;
/// Bytes of the records of one part of a walk; the last record may exceed this limit.
const WALK_BYTES: usize = 8 << 20;

/// A walk over everything that is held, in parts, each read from a view of its own.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The number from which the log is followed after the walk.
    pub follow_from: u64,
    at: RepoId,
    after: Option<Vec<u8>>,
    /// The last repository of the walk.
    last: RepoId,
}

/// One part of a walk: the records of one repository, or of a range of its paths.
#[derive(Clone, Debug)]
pub struct WalkPart {
    pub id: RepoId,
    pub repo: Repo,
    /// The last number of the view that the part was read from.
    pub seq: u64,
    /// The records with paths above `after`, in order; up to the last one if `ends` is false.
    pub after: Option<Vec<u8>>,
    pub records: Vec<Record>,
    /// Whether the part has all records above `after`.
    pub ends: bool,
    /// The claims of the repository by path, if the part `ends`.
    pub claims: Vec<(Vec<u8>, ClaimRow)>,
}

impl Walk {
    /// Begins a walk over all repositories. The log is followed from the view's head afterwards.
    pub fn begin(view: &ReadView) -> Result<Walk, StoreError> {
        Ok(Walk {
            follow_from: view.counters()?.next_seq,
            at: RepoId(0),
            after: None,
            last: RepoId(u64::MAX),
        })
    }

    /// Begins a walk over one repository, to reconcile it.
    pub fn of_repo(view: &ReadView, id: RepoId) -> Result<Walk, StoreError> {
        Ok(Walk {
            at: id,
            last: id,
            ..Walk::begin(view)?
        })
    }

    /// The next part, read from this view; `None` at the end. Repositories that are being purged
    /// have no records.
    pub fn next_part(&mut self, view: &ReadView) -> Result<Option<WalkPart>, StoreError> {
        self.next_part_of(view, WALK_RECORDS)
    }

    /// The next part, with at most `limit` records.
    pub fn next_part_of(
        &mut self,
        view: &ReadView,
        limit: usize,
    ) -> Result<Option<WalkPart>, StoreError> {
        let Some(row) = view.repos(self.at).next().transpose()? else {
            return Ok(None);
        };
        let id = row.0;
        // With its debt, which the rows of a scan do not have.
        let Some(repo) = view.repo(id)? else {
            return Ok(None);
        };
        if id > self.last {
            return Ok(None);
        }
        let after = self.after.take();
        let from = after.clone().unwrap_or_default();
        let (mut records, mut bytes, mut ends) = (Vec::<Record>::new(), 0, true);
        if !repo.purging {
            for row in view.records_after(id, &from) {
                if records.len() >= limit || bytes >= WALK_BYTES {
                    ends = false;
                    break;
                }
                let record = row?;
                bytes += record.bytes().map_or(0, <[u8]>::len);
                records.push(record);
            }
        }
        let claims = if ends && !repo.purging {
            view.claims(id).collect::<Result<_, _>>()?
        } else {
            Vec::new()
        };
        if ends {
            self.at = RepoId(id.0.saturating_add(1));
        } else {
            self.at = id;
            self.after = records.last().map(|record| record.path().to_vec());
        }
        Ok(Some(WalkPart {
            id,
            repo,
            seq: view.counters()?.next_seq.saturating_sub(1),
            after,
            records,
            ends,
            claims,
        }))
    }

    /// How far the walk has come: the number of the next repository, of `next_repo` in the
    /// counters.
    pub fn progress(&self) -> RepoId {
        self.at
    }
}
