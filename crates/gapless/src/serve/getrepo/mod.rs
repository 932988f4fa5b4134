//! Exports a whole repository as a streamed CAR: commit, nodes and records in the order
//! in which a reader walks the tree.
//!
//! The root is recomputed and compared with the signed root before the first byte is sent,
//! and every record is hashed after it was read. If all records fit into memory, damage is
//! found before anything is sent. Otherwise the records are read again while they are sent,
//! and damage breaks the stream off, so no reader takes the part for the whole. In both
//! cases Gapless reports the damage.
//!
//! An export sends one signed state, however long the transfer takes. An open view keeps
//! old rows alive, so the export changes to a newer view while the state stays the same; if
//! the repository moves on, the export keeps the last view with its state. `limits.exports`
//! limits the concurrent exports, and each address may have a part of them.
//! [`QUEUED_PIECES`] pieces wait for the reader, and a reader that is too slow is cut. The
//! export ends when the reader disconnects or the account is hidden.

pub(crate) mod batch;
pub(crate) mod build_threads;
pub(crate) mod meeting_point;
pub(crate) mod prefetch;
pub(crate) mod record_budget;
pub(crate) mod two_ended;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gapless_atp::car::{write_block, write_header};
use gapless_atp::cid::Cid;
use gapless_atp::mst::TreeError;
use gapless_atp::repo::Part;
use gapless_atp::syntax::Did;
use gapless_core::ledger::Head;
use gapless_store::error::StoreError;
use gapless_store::table::record::Record;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::serve::Serving;
use crate::serve::getrepo::batch::{BatchRecord, RecordBatch};
use crate::serve::getrepo::prefetch::prefetch;
use crate::serve::getrepo::record_budget::RecordBudget;
use crate::serve::ip_limit::IpPermit;
use crate::serve::limits::{PIECE_BYTES, QUEUED_PIECES, RECORDS_PER_CHECK, RECORDS_PER_VIEW};
use crate::serve::lookup::{ServedState, StateCheck};
use crate::serve::refuse::ServeError;
use crate::serve::tree_cache::{
    BufferedRecords, CachedTree, StateWithTree, acquire_permit, damaged_record, with_deadline,
};

/// An export that has begun.
pub(crate) struct Export {
    pub(crate) head: Head,
    pub(crate) evidence: String,
    pub(crate) pieces: Receiver<ExportPiece>,
}

/// A part of an export. A stream that ends without [`ExportPiece::End`] was broken off.
pub(crate) enum ExportPiece {
    Bytes(Bytes),
    /// The export is complete.
    End,
}

/// Why an export ends before its last byte.
enum ExportEnd {
    /// The reader disconnected.
    Disconnected,
    /// The reader is slower than `min_rate`, or took nothing for `stall`.
    TooSlow,
    /// The account is hidden now.
    Hidden,
    /// The mirror is stopping.
    Stopping,
    /// The stored data is not what was signed.
    Damaged(String),
    Store(StoreError),
}

impl From<TreeError> for ExportEnd {
    fn from(error: TreeError) -> ExportEnd {
        // The nodes were built in memory a moment ago.
        ExportEnd::Damaged(error.to_string())
    }
}

impl From<StoreError> for ExportEnd {
    fn from(error: StoreError) -> ExportEnd {
        match error {
            StoreError::Row { .. } => ExportEnd::Damaged(error.to_string()),
            error => ExportEnd::Store(error),
        }
    }
}

impl Serving {
    /// Begins to export a repository to this address.
    pub(crate) async fn export_repo(
        self: &Arc<Self>,
        did: &Did,
        peer: Option<IpAddr>,
    ) -> Result<Export, ServeError> {
        self.require_whole_repos()?;
        let patience = self.limits.turn;
        let permits = with_deadline(patience, async {
            // The permit of the address comes first, so that no export permit is held while a
            // request waits for its address.
            let ip_permit = self.ip_limiter.acquire(peer).await;
            let permit = acquire_permit(&self.exports, patience).await?;
            Ok::<_, ServeError>((ip_permit, permit))
        });
        let permits = permits.await??;
        let found = self.state_with_tree(did, true).await?;
        let (sender, pieces) = mpsc::channel(QUEUED_PIECES);
        let (head, evidence) = (found.state.head, found.state.evidence.clone());
        let (serving, handle) = (self.clone(), Handle::current());
        tokio::task::spawn_blocking(move || send(&serving, found, sender, &handle, permits));
        Ok(Export {
            head,
            evidence,
            pieces,
        })
    }
}

/// Sends an export on a blocking thread. The permits are free when it ends.
fn send(
    serving: &Arc<Serving>,
    found: StateWithTree,
    sender: Sender<ExportPiece>,
    handle: &Handle,
    _permits: (Option<IpPermit>, OwnedSemaphorePermit),
) {
    let StateWithTree {
        state,
        tree,
        records,
    } = found;
    let (did, head) = (state.did.clone(), state.head);
    let mut pieces = PieceWriter::new(serving, sender, handle);
    let mut source = RecordStream::new(serving, state, records);
    let sent = send_parts(&tree, &mut source, &mut pieces);
    // The reader may still be at its last pieces; the tree is not needed for them.
    drop((tree, source));
    let metrics = &serving.services.metrics;
    metrics.export_bytes.add(pieces.bytes);
    match sent {
        Ok(()) => metrics.exports.inc(),
        Err(ExportEnd::Disconnected) => metrics.exports_left.inc(),
        Err(ExportEnd::TooSlow) => {
            metrics.exports_cut.inc();
            tracing::debug!(%did, "export cut: the reader is too slow");
        }
        Err(ExportEnd::Hidden) => {
            tracing::debug!(%did, "export cut: the account was hidden meanwhile");
        }
        Err(ExportEnd::Stopping) => {}
        Err(ExportEnd::Store(error)) => {
            tracing::warn!(%did, %error, "export cut: the repository cannot be read to its end");
        }
        Err(ExportEnd::Damaged(why)) => handle.block_on(serving.report_damage(&did, head, &why)),
    }
}

fn send_parts(
    tree: &CachedTree,
    source: &mut RecordStream<'_>,
    pieces: &mut PieceWriter<'_>,
) -> Result<(), ExportEnd> {
    write_header(&mut pieces.piece, &[tree.signed.commit_cid()]);
    tree.signed.each(|part| {
        match part {
            Part::Block(cid, block) => write_block(&mut pieces.piece, &cid, block),
            Part::Record(key, cid) => source.append(key, &cid, &mut pieces.piece)?,
        }
        if pieces.piece.len() < PIECE_BYTES {
            Ok(())
        } else {
            pieces.push()
        }
    })?;
    pieces.push()?;
    pieces.send_piece(ExportPiece::End)
}

/// The records of a state in key order, at most `RECORDS_PER_VIEW` from each view.
struct RecordStream<'a> {
    serving: &'a Serving,
    state: ServedState,
    batches: RecordBatches,
    /// The batch that is being sent, and the index of its next record.
    batch: RecordBatch,
    at: usize,
    /// The budget of the records that are in memory already; `None` if they are read now.
    budget: Option<Arc<RecordBudget>>,
    read: usize,
}

impl<'a> RecordStream<'a> {
    fn new(
        serving: &'a Serving,
        state: ServedState,
        records: Option<BufferedRecords>,
    ) -> RecordStream<'a> {
        let (batches, budget): (RecordBatches, _) = match records {
            Some(BufferedRecords { batches, budget }) => {
                (Box::new(batches.into_iter().map(Ok)), Some(budget))
            }
            None => (prefetch_part(state.view.records(state.id)), None),
        };
        RecordStream {
            serving,
            state,
            batches,
            batch: RecordBatch::default(),
            at: 0,
            budget,
            read: 0,
        }
    }

    /// Appends the block of the next record. Fails if it is not the record `key` with `cid`.
    fn append(&mut self, key: &[u8], cid: &Cid, out: &mut Vec<u8>) -> Result<(), ExportEnd> {
        while self.batch.get(self.at).is_none() {
            let Some(batch) = self.batches.next().transpose()? else {
                return Err(ExportEnd::Damaged(damaged_record(cid, key)));
            };
            (self.batch, self.at) = (batch, 0);
        }
        let same = |read: &BatchRecord<'_>| read.verified && read.cid == *cid && read.key == key;
        let Some(read) = self.batch.get(self.at).filter(same) else {
            return Err(ExportEnd::Damaged(damaged_record(cid, key)));
        };
        out.extend_from_slice(read.block);
        self.at += 1;
        self.read += 1;
        if self.read.is_multiple_of(RECORDS_PER_CHECK) {
            self.refresh_view(key)?;
        }
        Ok(())
    }

    /// Ends the export if the account is hidden. Changes to a newer view if that has the
    /// same state.
    fn refresh_view(&mut self, last: &[u8]) -> Result<(), ExportEnd> {
        match self.serving.check_state(&self.state) {
            Ok(StateCheck::Hidden) => return Err(ExportEnd::Hidden),
            Ok(StateCheck::Current(view)) => self.state.view = view,
            Ok(StateCheck::Superseded) => {}
            Err(error) => return Err(error.into()),
        }
        if self.budget.is_none() && self.read.is_multiple_of(RECORDS_PER_VIEW) {
            self.batches = prefetch_part(self.state.view.records_after(self.state.id, last));
        }
        Ok(())
    }
}

type RecordBatches = Box<dyn Iterator<Item = Result<RecordBatch, StoreError>>>;

/// Prefetches the records that are read from one view.
fn prefetch_part(
    rows: impl Iterator<Item = Result<Record, StoreError>> + Send + 'static,
) -> RecordBatches {
    Box::new(prefetch(rows.take(RECORDS_PER_VIEW)))
}

/// Sends the pieces, and measures how long the export waits for the reader.
struct PieceWriter<'a> {
    serving: &'a Serving,
    handle: &'a Handle,
    sender: Sender<ExportPiece>,
    piece: Vec<u8>,
    bytes: u64,
    /// How long the export has waited since the last check, and the bytes that the reader
    /// took meanwhile.
    waited: Duration,
    taken: u64,
}

impl<'a> PieceWriter<'a> {
    fn new(
        serving: &'a Serving,
        sender: Sender<ExportPiece>,
        handle: &'a Handle,
    ) -> PieceWriter<'a> {
        PieceWriter {
            serving,
            handle,
            sender,
            piece: Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4),
            bytes: 0,
            waited: Duration::ZERO,
            taken: 0,
        }
    }

    fn push(&mut self) -> Result<(), ExportEnd> {
        let piece = std::mem::replace(
            &mut self.piece,
            Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4),
        );
        let length = piece.len() as u64;
        self.send_piece(ExportPiece::Bytes(Bytes::from(piece)))?;
        self.bytes += length;
        self.taken += length;
        Ok(())
    }

    /// Whether the reader took fewer than `min_rate` bytes per second of waiting. Checked
    /// each time the waiting adds up to `stall`.
    fn is_too_slow(&mut self) -> bool {
        let limits = &self.serving.limits;
        if self.waited < limits.stall {
            return false;
        }
        let least = self.waited.as_secs_f64() * limits.min_rate as f64;
        let slow = (self.taken as f64) < least;
        (self.waited, self.taken) = (Duration::ZERO, 0);
        slow
    }

    fn send_piece(&mut self, piece: ExportPiece) -> Result<(), ExportEnd> {
        if self.serving.services.shutdown.has_begun() {
            return Err(ExportEnd::Stopping);
        }
        match self.sender.try_send(piece) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(ExportEnd::Disconnected),
            Err(TrySendError::Full(piece)) => self.send_when_free(piece),
        }
    }

    fn send_when_free(&mut self, piece: ExportPiece) -> Result<(), ExportEnd> {
        let began = Instant::now();
        let sent = self.handle.block_on(async {
            let stall = self.serving.limits.stall;
            tokio::select! {
                place = tokio::time::timeout(stall, self.sender.reserve()) => match place {
                    Err(_) => Err(ExportEnd::TooSlow),
                    Ok(Err(_)) => Err(ExportEnd::Disconnected),
                    Ok(Ok(place)) => {
                        place.send(piece);
                        Ok(())
                    }
                },
                () = self.serving.services.shutdown.begun() => Err(ExportEnd::Stopping),
            }
        });
        self.waited += began.elapsed();
        if self.is_too_slow() {
            Err(ExportEnd::TooSlow)
        } else {
            sent
        }
    }
}
