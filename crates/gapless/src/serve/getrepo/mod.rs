//! A whole repository as a CAR, streamed: commit, nodes and records in the order in
//! which a reader walks them.
//!
//! The root was recomputed and compared with the signed one before the first byte
//! leaves; every record was hashed after it was read. Where all of them were kept since
//! then, what is not as it was signed is found before anything is sent; where they are read
//! while they are sent, it ends the stream in the middle, so that nobody takes it for
//! whole. Either way it reports the damage.
//!
//! One signed state is sent, however long that takes. A view that stays open keeps old
//! rows alive, so it is exchanged for a newer one for as long as the state is the same;
//! of a repository that moves on, the last view that had the state is kept. Few are sent
//! at a time, and fewer to one address; a few pieces wait for the reader, and a reader that
//! keeps us waiting for too long is cut. When it goes away, or the account is hidden, the
//! work ends.

pub mod batch;
pub mod build_threads;
pub mod prefetch;
pub mod two_ended;

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
use crate::serve::getrepo::batch::{Parcel, Read};
use crate::serve::getrepo::prefetch::ahead;
use crate::serve::getrepo::two_ended::Room;
use crate::serve::ip_limit::Share;
use crate::serve::limits::{LOOK_RECORDS, PART_RECORDS, PIECE_BYTES, PIECES};
use crate::serve::lookup::{Exact, Still};
use crate::serve::refuse::Refusal;
use crate::serve::tree_cache::{KeptRecords, Planned, Tree, in_time, spoilt, turn};

/// A repository on its way.
pub struct Sent {
    pub head: Head,
    pub evidence: String,
    pub pieces: Receiver<Piece>,
}

/// What a reader gets, one after the other. When they end without the last one,
/// what came is not the whole, and nobody may take it for that.
pub enum Piece {
    Bytes(Bytes),
    /// That was all.
    Whole,
}

/// Why a stream ends before its end.
enum Stop {
    /// Nobody reads it any more.
    Left,
    /// It is read too slowly.
    Slow,
    /// It may not be shown any more.
    Gone,
    /// The mirror ends.
    Ending,
    /// What is held is not what was signed.
    Damaged(String),
    Store(StoreError),
}

impl From<TreeError> for Stop {
    fn from(error: TreeError) -> Stop {
        // The nodes are in memory, and were made a moment ago.
        Stop::Damaged(error.to_string())
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        match error {
            StoreError::Row { .. } => Stop::Damaged(error.to_string()),
            error => Stop::Store(error),
        }
    }
}

impl Serving {
    /// Begins to send a repository to this address.
    pub async fn repo_car(
        self: &Arc<Self>,
        did: &Did,
        peer: Option<IpAddr>,
    ) -> Result<Sent, Refusal> {
        self.needs_everything()?;
        let patience = self.limits.turn;
        let seat = in_time(patience, async {
            // First, so that nobody takes a seat who may not have it.
            let share = self.shares.wait(peer).await;
            let seat = turn(&self.exports, patience).await?;
            Ok::<_, Refusal>((share, seat))
        });
        let seat = seat.await??;
        let planned = self.planned(did, true).await?;
        let (sender, pieces) = mpsc::channel(PIECES);
        let (head, evidence) = (planned.exact.head, planned.exact.evidence.clone());
        let (serving, handle) = (self.clone(), Handle::current());
        tokio::task::spawn_blocking(move || send(&serving, planned, sender, &handle, seat));
        Ok(Sent {
            head,
            evidence,
            pieces,
        })
    }
}

/// Sends it, on a thread that may wait; the seat is free when it ends.
fn send(
    serving: &Arc<Serving>,
    planned: Planned,
    sender: Sender<Piece>,
    handle: &Handle,
    _seat: (Option<Share>, OwnedSemaphorePermit),
) {
    let Planned {
        exact,
        tree,
        records,
    } = planned;
    let (did, head) = (exact.did.clone(), exact.head);
    let mut pieces = Pieces::new(serving, sender, handle);
    let mut source = Source::new(serving, exact, records);
    let sent = send_parts(&tree, &mut source, &mut pieces);
    // Not needed any more, while the reader may still be at its last pieces.
    drop((tree, source));
    let metrics = &serving.services.metrics;
    metrics.export_bytes.add(pieces.bytes);
    match sent {
        Ok(()) => metrics.exports.inc(),
        Err(Stop::Left) => metrics.exports_left.inc(),
        Err(Stop::Slow) => {
            metrics.exports_cut.inc();
            tracing::debug!(%did, "a reader of the repository was too slow, and was cut");
        }
        Err(Stop::Gone) => {
            tracing::debug!(%did, "the account was hidden while its repository was sent; its reader was cut");
        }
        Err(Stop::Ending) => {}
        Err(Stop::Store(error)) => {
            tracing::warn!(%did, %error, "a repository could not be read to its end; its reader was cut");
        }
        Err(Stop::Damaged(why)) => handle.block_on(serving.report_damage(&did, head, &why)),
    }
}

fn send_parts(tree: &Tree, source: &mut Source<'_>, pieces: &mut Pieces<'_>) -> Result<(), Stop> {
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
    pieces.hand_over(Piece::Whole)
}

/// The records of a state, in order, some from each view.
struct Source<'a> {
    serving: &'a Serving,
    exact: Exact,
    parcels: Parcels,
    /// The one that is being sent, and how far that is.
    parcel: Parcel,
    at: usize,
    /// Of those that are in memory already.
    kept: Option<Arc<Room>>,
    read: usize,
}

impl<'a> Source<'a> {
    fn new(serving: &'a Serving, exact: Exact, records: Option<KeptRecords>) -> Source<'a> {
        let (parcels, kept): (Parcels, _) = match records {
            Some(KeptRecords { parcels, room }) => {
                (Box::new(parcels.into_iter().map(Ok)), Some(room))
            }
            None => (part(exact.view.records(exact.id)), None),
        };
        Source {
            serving,
            exact,
            parcels,
            parcel: Parcel::default(),
            at: 0,
            kept,
            read: 0,
        }
    }

    /// Appends the block of the next record, which must be this one.
    fn append(&mut self, key: &[u8], cid: &Cid, out: &mut Vec<u8>) -> Result<(), Stop> {
        while self.parcel.get(self.at).is_none() {
            let Some(parcel) = self.parcels.next().transpose()? else {
                return Err(Stop::Damaged(spoilt(cid, key)));
            };
            (self.parcel, self.at) = (parcel, 0);
        }
        let same = |read: &Read<'_>| read.sound && read.cid == *cid && read.key == key;
        let Some(read) = self.parcel.get(self.at).filter(same) else {
            return Err(Stop::Damaged(spoilt(cid, key)));
        };
        out.extend_from_slice(read.block);
        self.at += 1;
        self.read += 1;
        if self.read.is_multiple_of(LOOK_RECORDS) {
            self.renew(key)?;
        }
        Ok(())
    }

    /// Sees whether it may still be shown, and goes on from a newer view now and then,
    /// if that has the same state.
    fn renew(&mut self, last: &[u8]) -> Result<(), Stop> {
        match self.serving.still(&self.exact) {
            Ok(Still::Gone) => return Err(Stop::Gone),
            Ok(Still::Same(view)) => self.exact.view = view,
            Ok(Still::Moved) => {}
            Err(error) => return Err(error.into()),
        }
        if self.kept.is_none() && self.read.is_multiple_of(PART_RECORDS) {
            self.parcels = part(self.exact.view.records_after(self.exact.id, last));
        }
        Ok(())
    }
}

type Parcels = Box<dyn Iterator<Item = Result<Parcel, StoreError>>>;

/// As many as are read from one view.
fn part(rows: impl Iterator<Item = Result<Record, StoreError>> + Send + 'static) -> Parcels {
    Box::new(ahead(rows.take(PART_RECORDS)))
}

/// What leaves, piece by piece, and how long the reader made us wait.
struct Pieces<'a> {
    serving: &'a Serving,
    handle: &'a Handle,
    sender: Sender<Piece>,
    piece: Vec<u8>,
    bytes: u64,
    /// How long was waited since this was last looked at, and what came of it.
    waited: Duration,
    taken: u64,
}

impl<'a> Pieces<'a> {
    fn new(serving: &'a Serving, sender: Sender<Piece>, handle: &'a Handle) -> Pieces<'a> {
        Pieces {
            serving,
            handle,
            sender,
            piece: Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4),
            bytes: 0,
            waited: Duration::ZERO,
            taken: 0,
        }
    }

    fn push(&mut self) -> Result<(), Stop> {
        let piece = std::mem::replace(
            &mut self.piece,
            Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4),
        );
        let length = piece.len() as u64;
        self.hand_over(Piece::Bytes(Bytes::from(piece)))?;
        self.bytes += length;
        self.taken += length;
        Ok(())
    }

    /// Whether the reader was too slow for as long as we waited for it.
    fn too_slow(&mut self) -> bool {
        let limits = &self.serving.limits;
        if self.waited < limits.stall {
            return false;
        }
        let least = self.waited.as_secs_f64() * limits.min_rate as f64;
        let slow = (self.taken as f64) < least;
        (self.waited, self.taken) = (Duration::ZERO, 0);
        slow
    }

    fn hand_over(&mut self, piece: Piece) -> Result<(), Stop> {
        if self.serving.services.shutdown.has_begun() {
            return Err(Stop::Ending);
        }
        match self.sender.try_send(piece) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(Stop::Left),
            Err(TrySendError::Full(piece)) => self.wait_with(piece),
        }
    }

    fn wait_with(&mut self, piece: Piece) -> Result<(), Stop> {
        let began = Instant::now();
        let sent = self.handle.block_on(async {
            let stall = self.serving.limits.stall;
            tokio::select! {
                room = tokio::time::timeout(stall, self.sender.reserve()) => match room {
                    Err(_) => Err(Stop::Slow),
                    Ok(Err(_)) => Err(Stop::Left),
                    Ok(Ok(room)) => {
                        room.send(piece);
                        Ok(())
                    }
                },
                () = self.serving.services.shutdown.begun() => Err(Stop::Ending),
            }
        });
        self.waited += began.elapsed();
        if self.too_slow() {
            Err(Stop::Slow)
        } else {
            sent
        }
    }
}
