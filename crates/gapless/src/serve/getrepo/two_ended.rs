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

use crate::serve::getrepo::batch::{Parcel, Rows, Wanted};
use crate::serve::getrepo::build_threads::Hand;
use gapless_mirror::budget::Share;

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

    /// Whether records are kept.
    pub fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    /// They are hashed then.
    fn wanted(&self) -> Wanted {
        if self.keeps() {
            Wanted::Both
        } else {
            Wanted::Keys
        }
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
    wanted: Wanted,
    meeting: &Meeting,
) -> Result<bool, StoreError> {
    while !parcel.is_full(records) {
        if meeting.over.load(Ordering::Relaxed) {
            break;
        }
        match rows.next().transpose()? {
            Some(record) => parcel.push(&record, wanted),
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
            let wanted = self.room.wanted();
            let records = match self.state {
                State::Begins(_) => FIRST,
                _ => RECORDS,
            };
            let ended = read(&mut self.front, &mut parcel, records, wanted, &self.meeting)?;
            let over = self.meeting.claim(End::First, &mut parcel, ended);
            if wanted == Wanted::Both && !self.room.takes(&parcel) {
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
    while let Ok(ended) = read(&mut rows, &mut parcel, RECORDS, room.wanted(), meeting) {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{SyncSender, sync_channel};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::serve::getrepo::batch::tests::{assert_read, record};
    use gapless_mirror::budget::Memory;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn room(keeps: bool, bytes: u64) -> Arc<Room> {
        Room::new(keeps, Memory::new(bytes).share())
    }

    fn rows(numbers: impl Iterator<Item = usize> + Send + 'static) -> Rows {
        Box::new(numbers.map(|number| Ok(record(number, number == 700))))
    }

    /// The same, each of them after `before` was called with its number.
    fn rows_after(
        numbers: impl Iterator<Item = usize> + Send + 'static,
        before: impl Fn(usize) + Send + 'static,
    ) -> Rows {
        rows(numbers.inspect(move |number| before(*number)))
    }

    /// Waits until one of the threads is as far as this; not for ever, if it never comes.
    fn until(far: &AtomicUsize, number: usize) {
        let began = Instant::now();
        while far.load(Ordering::SeqCst) < number {
            assert!(began.elapsed() < PATIENCE, "the other end never came");
            std::thread::yield_now();
        }
    }

    fn assert_all<B>(ends: BothEnds<B>, many: usize)
    where
        B: FnOnce() -> Rows + Send + 'static,
    {
        let mut read = 0;
        for parcel in ends {
            for one in parcel.expect("all can be read").iter() {
                assert_read(&one, read, read == 700);
                read += 1;
            }
        }
        assert_eq!(read, many);
    }

    /// Claims these, and says which of them are left, and whether all are claimed.
    fn claim(meeting: &Meeting, end: End, numbers: std::ops::Range<usize>) -> (Vec<usize>, bool) {
        let mut parcel = match end {
            End::First => Parcel::default(),
            End::Last => Parcel::backward(),
        };
        let mut push = |number| parcel.push(&record(number, false), Wanted::Keys);
        match end {
            End::First => numbers.for_each(&mut push),
            End::Last => numbers.rev().for_each(&mut push),
        }
        let over = meeting.claim(end, &mut parcel, false);
        let number = |read: crate::serve::getrepo::batch::Read<'_>| {
            let key = std::str::from_utf8(read.key).expect("a text");
            key.trim_start_matches("a/").parse().expect("a number")
        };
        (parcel.iter().map(number).collect(), over)
    }

    #[test]
    fn what_one_end_has_claimed_the_other_leaves_out() {
        let all = |range: std::ops::Range<usize>| range.collect::<Vec<_>>();
        for beyond in [91, 95, 200] {
            let meeting = Meeting::default();
            assert_eq!(claim(&meeting, End::Last, 90..100), (all(90..100), false));
            assert_eq!(claim(&meeting, End::First, 0..50), (all(0..50), false));
            let left = (all(50..90), true);
            assert_eq!(claim(&meeting, End::First, 50..beyond), left);
            assert_eq!(claim(&meeting, End::Last, 80..90), (Vec::new(), true));
        }
        let meeting = Meeting::default();
        assert_eq!(claim(&meeting, End::First, 0..10), (all(0..10), false));
        assert_eq!(claim(&meeting, End::Last, 10..20), (all(10..20), false));
        assert_eq!(claim(&meeting, End::Last, 9..10), (Vec::new(), true));
        assert_eq!(claim(&meeting, End::First, 10..20), (Vec::new(), true));
    }

    const SIZES: [usize; 9] = [
        0,
        1,
        FIRST - 1,
        FIRST,
        FIRST + 1,
        FIRST + RECORDS,
        2 * RECORDS,
        10 * RECORDS + 1,
        40 * RECORDS,
    ];

    #[test]
    fn all_come_out_once_and_in_order() {
        for many in SIZES {
            let back = move || rows((0..many).rev());
            let hand = Hand::new("a hand");
            assert_all(
                both_ends(rows(0..many), back, hand, room(true, 1 << 30)),
                many,
            );
        }
    }

    #[test]
    fn all_come_out_once_when_the_caller_is_the_slow_one() {
        for many in SIZES.into_iter().filter(|many| *many > 2 * RECORDS) {
            let (far, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (told, counted) = (far.clone(), seen.clone());
            let front = rows_after(0..many, move |number| {
                counted.fetch_add(1, Ordering::SeqCst);
                if number == FIRST {
                    until(&far, many - FIRST - 1);
                }
            });
            let back = move || {
                rows_after((0..many).rev(), move |number| {
                    told.store(many - number, Ordering::SeqCst);
                })
            };
            let ends = both_ends(front, back, Hand::new("a hand"), room(true, 1 << 30));
            assert_all(ends, many);
            let seen = seen.load(Ordering::SeqCst);
            assert!(seen <= FIRST + 2 * RECORDS, "the caller read {seen}");
        }
    }

    #[test]
    fn all_come_out_once_when_the_thread_is_the_slow_one() {
        for many in SIZES.into_iter().filter(|many| *many > 2 * RECORDS) {
            let (far, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (told, counted) = (far.clone(), seen.clone());
            let front = rows_after(0..many, move |number| {
                told.store(number, Ordering::SeqCst);
            });
            let back = move || {
                rows_after((0..many).rev(), move |number| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    if number == many - 2 {
                        until(&far, many - 1);
                    }
                })
            };
            let ends = both_ends(front, back, Hand::new("a hand"), room(true, 1 << 30));
            assert_all(ends, many);
            let seen = seen.load(Ordering::SeqCst);
            assert!(seen <= RECORDS + 1, "the thread read {seen}");
        }
    }

    #[test]
    fn the_thread_reads_no_more_than_there_is_room_for() {
        let many = 400 * RECORDS;
        let seen = Arc::new(AtomicUsize::new(0));
        let counted = seen.clone();
        let (ended, ends) = sync_channel::<()>(1);
        let back = move || {
            rows_after((0..many).rev(), move |_| {
                // Lives as long as the rows do.
                let _ = &ended;
                counted.fetch_add(1, Ordering::SeqCst);
            })
        };
        let front = rows_after(0..many, move |number| {
            if number == FIRST {
                assert!(ends.recv().is_err(), "nothing is sent");
            }
        });
        let room = room(false, 0);
        let (mut read, hand) = (0, Hand::new("a hand"));
        for parcel in both_ends(front, back, hand, room) {
            for one in parcel.expect("all can be read").iter() {
                assert_eq!(one.key, record(read, false).path());
                assert!(one.block.is_empty() && !one.sound, "keys alone are wanted");
                read += 1;
            }
        }
        assert_eq!(read, many);
        let seen = seen.load(Ordering::SeqCst);
        assert!(seen > RECORDS && seen < many / 2, "the thread read {seen}");
    }

    #[test]
    fn what_there_is_no_room_for_is_not_kept_and_comes_all_the_same() {
        let many = 400 * RECORDS;
        let room = room(true, 0);
        let back = move || rows((0..many).rev());
        let ends = both_ends(rows(0..many), back, Hand::new("a hand"), room.clone());
        let read = ends.map(|parcel| parcel.expect("all can be read").len());
        assert_eq!(read.sum::<usize>(), many);
        assert!(!room.keeps());
    }

    #[test]
    fn a_row_that_cannot_be_read_is_told_wherever_it_is() {
        let many = 10 * RECORDS;
        for broken in [0, FIRST, many / 2, many - 1] {
            let rows = move |backward: bool| -> Rows {
                let row = move |number| {
                    if number == broken {
                        Err(StoreError::System("a spoilt row".into()))
                    } else {
                        Ok(record(number, false))
                    }
                };
                if !backward {
                    Box::new((0..many).map(row))
                } else {
                    Box::new((0..many).rev().map(row))
                }
            };
            let hand = Hand::new("a hand");
            let ends = both_ends(rows(false), move || rows(true), hand, room(true, 1 << 30));
            let (mut read, mut errors) = (0, 0);
            for parcel in ends {
                match parcel {
                    Ok(parcel) => read += parcel.len(),
                    Err(_) => errors += 1,
                }
            }
            assert_eq!(errors, 1, "row {broken}");
            assert!(read <= broken, "row {broken}: {read} came");
        }
    }

    #[test]
    fn a_thread_that_ends_before_it_should_is_an_error_and_no_end() {
        let many = 10 * RECORDS;
        let (gone, waits) = sync_channel::<()>(0);
        let back = move || {
            rows_after((0..many).rev(), move |number| {
                let _ = &gone;
                assert!(number > many - 2 * RECORDS, "a fault while reading");
            })
        };
        let front = rows_after(0..many, move |number| {
            if number == FIRST {
                assert!(waits.recv().is_err(), "nothing is sent");
            }
        });
        let hand = Hand::new("a hand");
        let ends = both_ends(front, back, hand, room(true, 1 << 30));
        let last = ends.last().expect("something came");
        let words = last.err().map(|error| error.to_string());
        let words = words.unwrap_or_default();
        assert!(words.contains("before its end"), "{words}");
    }

    #[test]
    fn whoever_wants_no_more_ends_the_reading() {
        let (sender, reads): (SyncSender<()>, _) = sync_channel(1);
        let back = move || {
            let rows: Rows = Box::new(std::iter::repeat_with(move || {
                // Lives as long as the rows do.
                let _ = &sender;
                Ok(record(1 << 20, false))
            }));
            rows
        };
        let hand = Hand::new("a hand");
        let mut ends = both_ends(rows(0..100 * RECORDS), back, hand, room(true, 1 << 40));
        assert!(ends.next().is_some_and(|parcel| parcel.is_ok()));
        drop(ends);
        assert!(reads.recv().is_err(), "the thread has let go of the rows");
    }
}
