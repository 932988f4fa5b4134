//! Every record of a repository, read from both ends at once: by the caller from the
//! first one on, by a thread of its own from the last one back, until the two meet. Each
//! takes a core, and neither waits for the other before that.
//!
//! Who has read some claims them, and leaves out what the other end has claimed already:
//! so all are there once, whoever was faster. What the thread has read waits until the
//! caller is there, and is in memory for that long; where there is no room for more, the
//! thread ends, and the caller reads the rest. So it does where the thread cannot read a
//! row, or is never begun: then the caller meets the same row, and tells.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gapless_store::error::StoreError;
use tokio::sync::oneshot;

use super::ahead::Rows;
use super::hands::Hand;
use super::parcel::Parcel;
use crate::fetch::memory::Share;

/// Records that are read before they are claimed.
const RECORDS: usize = 128;
/// Records that are read before a thread is begun: so many are read while it begins.
const FIRST: usize = 16;

/// The memory of what was read and is kept, and whether records are kept at all.
pub struct Room {
    /// Once they are not, they never are again.
    keeps: AtomicBool,
    taken: Mutex<(Share, u64)>,
}

impl Room {
    pub fn new(keeps: bool, share: Share) -> Arc<Room> {
        Arc::new(Room {
            keeps: AtomicBool::new(keeps),
            taken: Mutex::new((share, 0)),
        })
    }

    /// Whether records are kept: they are read whole then, and hashed.
    pub fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    /// Whether there is room for this one as well.
    fn takes(&self, parcel: &Parcel) -> bool {
        // Nothing in here can panic half way.
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (share, bytes) = &mut *taken;
        *bytes += parcel.bytes() as u64;
        share.reaches(*bytes)
    }
}

/// Which end is read from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Last,
}

/// How far the two are.
#[derive(Default)]
struct Meeting {
    /// All are claimed.
    over: AtomicBool,
    /// The keys that were claimed last, by the caller and by the thread.
    claimed: Mutex<[Option<Vec<u8>>; 2]>,
}

impl Meeting {
    /// Claims what was read, and cuts what the other end has; whether all are claimed
    /// now. `ended`: there is nothing more to be read.
    fn claim(&self, end: End, parcel: &mut Parcel, ended: bool) -> bool {
        // Nothing in here can panic half way.
        let claimed = self.claimed.lock();
        let [first, last] = &mut *claimed.unwrap_or_else(PoisonError::into_inner);
        if self.over.load(Ordering::Relaxed) {
            parcel.cut(|_| true);
            return true;
        }
        let (own, other) = match end {
            End::First => (first, last),
            End::Last => (last, first),
        };
        let cut = parcel.cut(|key| match (end, other.as_deref()) {
            (_, None) => false,
            (End::First, Some(other)) => key >= other,
            (End::Last, Some(other)) => key <= other,
        });
        if let Some(key) = parcel.last_read() {
            *own = Some(key.to_vec());
        }
        if cut || ended {
            self.over.store(true, Ordering::Relaxed);
        }
        cut || ended
    }
}

/// Reads a parcel, or less of it when all are claimed meanwhile. True if that was the
/// last one.
fn read(
    rows: &mut Rows,
    parcel: &mut Parcel,
    records: usize,
    whole: bool,
    meeting: &Meeting,
) -> Result<bool, StoreError> {
    while !parcel.is_full(records) {
        if meeting.over.load(Ordering::Relaxed) {
            break;
        }
        match rows.next().transpose()? {
            Some(record) => parcel.push(&record, whole),
            None => return Ok(true),
        }
    }
    Ok(false)
}

/// Parcels in order. `front` are the rows from the first one on, `back` the same ones from
/// the last one back; those are asked for where there are many.
pub fn both_ends<B>(front: Rows, back: B, hand: Arc<Hand>, room: Arc<Room>) -> BothEnds<B>
where
    B: FnOnce() -> Rows + Send + 'static,
{
    BothEnds {
        state: State::Begins(back),
        front,
        hand,
        room,
        meeting: Arc::default(),
        next: Parcel::default(),
    }
}

pub struct BothEnds<B> {
    state: State<B>,
    front: Rows,
    hand: Arc<Hand>,
    room: Arc<Room>,
    meeting: Arc<Meeting>,
    /// Empty, with room for as much as the last one had.
    next: Parcel,
}

/// What the other thread has read comes by this.
type Told = oneshot::Receiver<Vec<Parcel>>;

enum State<B> {
    Begins(B),
    Reads(Option<Told>),
    /// The caller has come to where the thread was: the last parcel first.
    Rest(Vec<Parcel>),
}

impl<B: FnOnce() -> Rows + Send + 'static> BothEnds<B> {
    fn step(&mut self) -> Result<Option<Parcel>, StoreError> {
        loop {
            if let State::Rest(rest) = &mut self.state {
                return Ok(rest.pop());
            }
            let mut parcel = std::mem::take(&mut self.next);
            let whole = self.room.keeps();
            let records = match self.state {
                State::Begins(_) => FIRST,
                _ => RECORDS,
            };
            let ended = read(&mut self.front, &mut parcel, records, whole, &self.meeting)?;
            let over = self.meeting.claim(End::First, &mut parcel, ended);
            if whole && !self.room.takes(&parcel) {
                // From now on keys alone are wanted.
                self.room.keeps.store(false, Ordering::Relaxed);
            }
            self.next = parcel.another();
            let rest = State::Rest(Vec::new());
            self.state = match (std::mem::replace(&mut self.state, rest), over) {
                (State::Begins(back), false) => State::Reads(self.begin(back)),
                (State::Reads(Some(told)), true) => State::Rest(joined(told)?),
                (State::Begins(_) | State::Reads(None), true) => State::Rest(Vec::new()),
                (state, _) => state,
            };
            if !parcel.is_empty() {
                return Ok(Some(parcel));
            }
        }
    }

    /// Begins to read from the other end. Where no thread can be had, the caller reads
    /// all of them.
    fn begin(&self, back: B) -> Option<Told> {
        let (room, meeting) = (self.room.clone(), self.meeting.clone());
        self.hand.give(move || read_back(back(), &room, &meeting))
    }
}

/// Reads from the last one back, as long as there is room for what was read.
fn read_back(mut rows: Rows, room: &Room, meeting: &Meeting) -> Vec<Parcel> {
    let mut parcels = Vec::new();
    let mut parcel = Parcel::backward();
    // What cannot be read is left to the caller.
    while let Ok(ended) = read(&mut rows, &mut parcel, RECORDS, room.keeps(), meeting) {
        if !room.takes(&parcel) {
            break;
        }
        let over = meeting.claim(End::Last, &mut parcel, ended);
        let next = parcel.another();
        parcels.push(std::mem::replace(&mut parcel, next));
        if over {
            break;
        }
    }
    parcels
}

fn joined(told: Told) -> Result<Vec<Parcel>, StoreError> {
    told.blocking_recv().map_err(|_| {
        let why = "the thread that reads a repository ended before its end";
        StoreError::System(why.into())
    })
}

impl<B: FnOnce() -> Rows + Send + 'static> Iterator for BothEnds<B> {
    type Item = Result<Parcel, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.state = State::Rest(Vec::new());
        }
        step.transpose()
    }
}

impl<B> Drop for BothEnds<B> {
    fn drop(&mut self) {
        // Nobody wants the rest.
        self.meeting.over.store(true, Ordering::Relaxed);
    }
}
