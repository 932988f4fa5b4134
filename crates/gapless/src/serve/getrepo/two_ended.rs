//! Reads every record of a repository from both ends at once: the caller reads forward
//! from the first record, a second thread reads backward from the last record, until the
//! two meet. Each side uses one core, and neither waits for the other before they meet.
//!
//! Each side claims the records of a batch after reading them and drops those that the
//! other side has claimed already, so every record is returned once. The batches of the
//! back side stay in memory until the caller reaches them. If the memory budget is used
//! up, or the second thread cannot start or cannot read a row, the caller reads the rest,
//! and returns the error of that row.

use std::sync::Arc;

use gapless_store::error::StoreError;
use tokio::sync::oneshot;

use crate::serve::getrepo::batch::{BatchContent, RecordBatch, RecordRows};
use crate::serve::getrepo::build_threads::BuildThread;
use crate::serve::getrepo::meeting_point::{MeetingPoint, Side};
use crate::serve::getrepo::record_budget::RecordBudget;

/// Records of a batch, which one side reads before it claims them.
const BATCH_RECORDS: usize = 128;
/// Records that the caller reads before the second thread starts: smaller repositories
/// need no second thread.
const FIRST_BATCH_RECORDS: usize = 16;

/// Fills a batch with at most `records` records, fewer if every record is claimed
/// meanwhile. Returns true if the rows have ended.
fn read(
    rows: &mut RecordRows,
    batch: &mut RecordBatch,
    records: usize,
    content: BatchContent,
    meeting: &MeetingPoint,
) -> Result<bool, StoreError> {
    while !batch.is_full(records) {
        if meeting.is_over() {
            break;
        }
        match rows.next().transpose()? {
            Some(record) => batch.push(&record, content),
            None => return Ok(true),
        }
    }
    Ok(false)
}

/// Returns the records as batches in key order. `front` has the rows from the first to the
/// last. `back` opens the same rows in reverse; it is called only for a repository with
/// more than `FIRST_BATCH_RECORDS` records.
pub(crate) fn read_from_both_ends<B>(
    front: RecordRows,
    back: B,
    thread: Arc<BuildThread>,
    budget: Arc<RecordBudget>,
) -> TwoEndedReader<B>
where
    B: FnOnce() -> RecordRows + Send + 'static,
{
    TwoEndedReader {
        state: ReaderState::Start(back),
        front,
        thread,
        budget,
        meeting: Arc::default(),
        next: RecordBatch::default(),
    }
}

/// An iterator over the batches of a repository, in key order.
pub(crate) struct TwoEndedReader<B> {
    state: ReaderState<B>,
    front: RecordRows,
    thread: Arc<BuildThread>,
    budget: Arc<RecordBudget>,
    meeting: Arc<MeetingPoint>,
    /// An empty batch with the capacity of the last one.
    next: RecordBatch,
}

/// Receives the batches that the back side has read.
type BackHalf = oneshot::Receiver<Vec<RecordBatch>>;

enum ReaderState<B> {
    Start(B),
    Reading(Option<BackHalf>),
    /// The caller has reached the back side: its remaining batches, the last one first.
    Rest(Vec<RecordBatch>),
}

impl<B: FnOnce() -> RecordRows + Send + 'static> TwoEndedReader<B> {
    fn step(&mut self) -> Result<Option<RecordBatch>, StoreError> {
        loop {
            if let ReaderState::Rest(rest) = &mut self.state {
                return Ok(rest.pop());
            }
            let mut batch = std::mem::take(&mut self.next);
            let content = self.budget.content();
            let records = match self.state {
                ReaderState::Start(_) => FIRST_BATCH_RECORDS,
                _ => BATCH_RECORDS,
            };
            let ended = read(&mut self.front, &mut batch, records, content, &self.meeting)?;
            let all_claimed = self.meeting.claim(Side::Front, &mut batch, ended);
            if content == BatchContent::Both && !self.budget.reserve(&batch) {
                self.budget.stop_keeping();
            }
            self.next = batch.new_like();
            let rest = ReaderState::Rest(Vec::new());
            self.state = match (std::mem::replace(&mut self.state, rest), all_claimed) {
                (ReaderState::Start(back), false) => {
                    ReaderState::Reading(self.start_back_half(back))
                }
                (ReaderState::Reading(Some(back_half)), true) => {
                    ReaderState::Rest(wait_for_back_half(back_half)?)
                }
                (ReaderState::Start(_) | ReaderState::Reading(None), true) => {
                    ReaderState::Rest(Vec::new())
                }
                (state, _) => state,
            };
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
    }

    /// Starts the back side. Returns `None` if no thread can start; the caller then reads
    /// every record.
    fn start_back_half(&self, back: B) -> Option<BackHalf> {
        let (budget, meeting) = (self.budget.clone(), self.meeting.clone());
        self.thread
            .run(move || read_back(back(), &budget, &meeting))
    }
}

/// Reads batches backward from the last record until the sides meet, the budget is used
/// up, or a row cannot be read.
fn read_back(
    mut rows: RecordRows,
    budget: &RecordBudget,
    meeting: &MeetingPoint,
) -> Vec<RecordBatch> {
    let mut batches = Vec::new();
    let mut batch = RecordBatch::backward();
    // The caller reports a row that cannot be read.
    while let Ok(ended) = read(
        &mut rows,
        &mut batch,
        BATCH_RECORDS,
        budget.content(),
        meeting,
    ) {
        if !budget.reserve(&batch) {
            break;
        }
        let all_claimed = meeting.claim(Side::Back, &mut batch, ended);
        let next = batch.new_like();
        batches.push(std::mem::replace(&mut batch, next));
        if all_claimed {
            break;
        }
    }
    batches
}

fn wait_for_back_half(back_half: BackHalf) -> Result<Vec<RecordBatch>, StoreError> {
    back_half.blocking_recv().map_err(|_| {
        let why = "the thread that reads a repository ended before its end";
        StoreError::System(why.into())
    })
}

impl<B: FnOnce() -> RecordRows + Send + 'static> Iterator for TwoEndedReader<B> {
    type Item = Result<RecordBatch, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.state = ReaderState::Rest(Vec::new());
        }
        step.transpose()
    }
}

impl<B> Drop for TwoEndedReader<B> {
    fn drop(&mut self) {
        // The back side stops reading.
        self.meeting.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{SyncSender, sync_channel};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::serve::getrepo::batch::tests::{assert_read, record};
    use gapless_mirror::budget::Budget;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn budget(keeps: bool, bytes: u64) -> Arc<RecordBudget> {
        RecordBudget::new(keeps, Budget::new(bytes).lease())
    }

    fn rows(numbers: impl Iterator<Item = usize> + Send + 'static) -> RecordRows {
        Box::new(numbers.map(|number| Ok(record(number, number == 700))))
    }

    /// Rows that call `before` with the number of each record first.
    fn rows_after(
        numbers: impl Iterator<Item = usize> + Send + 'static,
        before: impl Fn(usize) + Send + 'static,
    ) -> RecordRows {
        rows(numbers.inspect(move |number| before(*number)))
    }

    /// Waits until one of the threads has come this far; panics after `PATIENCE`.
    fn until(far: &AtomicUsize, number: usize) {
        let began = Instant::now();
        while far.load(Ordering::SeqCst) < number {
            assert!(began.elapsed() < PATIENCE, "the other end never came");
            std::thread::yield_now();
        }
    }

    fn assert_all<B>(ends: TwoEndedReader<B>, many: usize)
    where
        B: FnOnce() -> RecordRows + Send + 'static,
    {
        let mut read = 0;
        for batch in ends {
            for one in batch.expect("all can be read").iter() {
                assert_read(&one, read, read == 700);
                read += 1;
            }
        }
        assert_eq!(read, many);
    }

    /// Claims these records. Returns those that are left, and whether all are claimed.
    fn claim(
        meeting: &MeetingPoint,
        side: Side,
        numbers: std::ops::Range<usize>,
    ) -> (Vec<usize>, bool) {
        let mut batch = match side {
            Side::Front => RecordBatch::default(),
            Side::Back => RecordBatch::backward(),
        };
        let mut push = |number| batch.push(&record(number, false), BatchContent::Keys);
        match side {
            Side::Front => numbers.for_each(&mut push),
            Side::Back => numbers.rev().for_each(&mut push),
        }
        let all_claimed = meeting.claim(side, &mut batch, false);
        let number = |read: crate::serve::getrepo::batch::BatchRecord<'_>| {
            let key = std::str::from_utf8(read.key).expect("a text");
            key.trim_start_matches("a/").parse().expect("a number")
        };
        (batch.iter().map(number).collect(), all_claimed)
    }

    #[test]
    fn what_one_end_has_claimed_the_other_leaves_out() {
        let all = |range: std::ops::Range<usize>| range.collect::<Vec<_>>();
        for beyond in [91, 95, 200] {
            let meeting = MeetingPoint::default();
            assert_eq!(claim(&meeting, Side::Back, 90..100), (all(90..100), false));
            assert_eq!(claim(&meeting, Side::Front, 0..50), (all(0..50), false));
            let left = (all(50..90), true);
            assert_eq!(claim(&meeting, Side::Front, 50..beyond), left);
            assert_eq!(claim(&meeting, Side::Back, 80..90), (Vec::new(), true));
        }
        let meeting = MeetingPoint::default();
        assert_eq!(claim(&meeting, Side::Front, 0..10), (all(0..10), false));
        assert_eq!(claim(&meeting, Side::Back, 10..20), (all(10..20), false));
        assert_eq!(claim(&meeting, Side::Back, 9..10), (Vec::new(), true));
        assert_eq!(claim(&meeting, Side::Front, 10..20), (Vec::new(), true));
    }

    const SIZES: [usize; 9] = [
        0,
        1,
        FIRST_BATCH_RECORDS - 1,
        FIRST_BATCH_RECORDS,
        FIRST_BATCH_RECORDS + 1,
        FIRST_BATCH_RECORDS + BATCH_RECORDS,
        2 * BATCH_RECORDS,
        10 * BATCH_RECORDS + 1,
        40 * BATCH_RECORDS,
    ];

    #[test]
    fn all_come_out_once_and_in_order() {
        for many in SIZES {
            let back = move || rows((0..many).rev());
            let thread = BuildThread::new("a thread");
            assert_all(
                read_from_both_ends(rows(0..many), back, thread, budget(true, 1 << 30)),
                many,
            );
        }
    }

    #[test]
    fn all_come_out_once_when_the_caller_is_the_slow_one() {
        for many in SIZES.into_iter().filter(|many| *many > 2 * BATCH_RECORDS) {
            let (far, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (told, counted) = (far.clone(), seen.clone());
            let front = rows_after(0..many, move |number| {
                counted.fetch_add(1, Ordering::SeqCst);
                if number == FIRST_BATCH_RECORDS {
                    until(&far, many - FIRST_BATCH_RECORDS - 1);
                }
            });
            let back = move || {
                rows_after((0..many).rev(), move |number| {
                    told.store(many - number, Ordering::SeqCst);
                })
            };
            let ends = read_from_both_ends(
                front,
                back,
                BuildThread::new("a thread"),
                budget(true, 1 << 30),
            );
            assert_all(ends, many);
            let seen = seen.load(Ordering::SeqCst);
            assert!(
                seen <= FIRST_BATCH_RECORDS + 2 * BATCH_RECORDS,
                "the caller read {seen}"
            );
        }
    }

    #[test]
    fn all_come_out_once_when_the_thread_is_the_slow_one() {
        for many in SIZES.into_iter().filter(|many| *many > 2 * BATCH_RECORDS) {
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
            let ends = read_from_both_ends(
                front,
                back,
                BuildThread::new("a thread"),
                budget(true, 1 << 30),
            );
            assert_all(ends, many);
            let seen = seen.load(Ordering::SeqCst);
            assert!(seen <= BATCH_RECORDS + 1, "the thread read {seen}");
        }
    }

    #[test]
    fn the_thread_reads_no_more_than_there_is_room_for() {
        let many = 400 * BATCH_RECORDS;
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
            if number == FIRST_BATCH_RECORDS {
                assert!(ends.recv().is_err(), "nothing is sent");
            }
        });
        let budget = budget(false, 0);
        let (mut read, thread) = (0, BuildThread::new("a thread"));
        for batch in read_from_both_ends(front, back, thread, budget) {
            for one in batch.expect("all can be read").iter() {
                assert_eq!(one.key, record(read, false).path());
                assert!(
                    one.block.is_empty() && !one.verified,
                    "only keys are wanted"
                );
                read += 1;
            }
        }
        assert_eq!(read, many);
        let seen = seen.load(Ordering::SeqCst);
        assert!(
            seen > BATCH_RECORDS && seen < many / 2,
            "the thread read {seen}"
        );
    }

    #[test]
    fn what_there_is_no_room_for_is_not_kept_and_comes_all_the_same() {
        let many = 400 * BATCH_RECORDS;
        let budget = budget(true, 0);
        let back = move || rows((0..many).rev());
        let ends = read_from_both_ends(
            rows(0..many),
            back,
            BuildThread::new("a thread"),
            budget.clone(),
        );
        let read = ends.map(|batch| batch.expect("all can be read").len());
        assert_eq!(read.sum::<usize>(), many);
        assert!(!budget.keeps_records());
    }

    #[test]
    fn a_row_that_cannot_be_read_is_told_wherever_it_is() {
        let many = 10 * BATCH_RECORDS;
        for broken in [0, FIRST_BATCH_RECORDS, many / 2, many - 1] {
            let rows = move |backward: bool| -> RecordRows {
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
            let thread = BuildThread::new("a thread");
            let ends = read_from_both_ends(
                rows(false),
                move || rows(true),
                thread,
                budget(true, 1 << 30),
            );
            let (mut read, mut errors) = (0, 0);
            for batch in ends {
                match batch {
                    Ok(batch) => read += batch.len(),
                    Err(_) => errors += 1,
                }
            }
            assert_eq!(errors, 1, "row {broken}");
            assert!(read <= broken, "row {broken}: {read} came");
        }
    }

    #[test]
    fn a_thread_that_ends_before_it_should_is_an_error_and_no_end() {
        let many = 10 * BATCH_RECORDS;
        let (gone, waits) = sync_channel::<()>(0);
        let back = move || {
            rows_after((0..many).rev(), move |number| {
                let _ = &gone;
                assert!(number > many - 2 * BATCH_RECORDS, "a fault while reading");
            })
        };
        let front = rows_after(0..many, move |number| {
            if number == FIRST_BATCH_RECORDS {
                assert!(waits.recv().is_err(), "nothing is sent");
            }
        });
        let thread = BuildThread::new("a thread");
        let ends = read_from_both_ends(front, back, thread, budget(true, 1 << 30));
        let last = ends.last().expect("something came");
        let words = last.err().map(|error| error.to_string());
        let words = words.unwrap_or_default();
        assert!(words.contains("before its end"), "{words}");
    }

    #[test]
    fn dropping_the_iterator_ends_the_reading() {
        let (sender, reads): (SyncSender<()>, _) = sync_channel(1);
        let back = move || {
            let rows: RecordRows = Box::new(std::iter::repeat_with(move || {
                // Lives as long as the rows do.
                let _ = &sender;
                Ok(record(1 << 20, false))
            }));
            rows
        };
        let thread = BuildThread::new("a thread");
        let mut ends = read_from_both_ends(
            rows(0..100 * BATCH_RECORDS),
            back,
            thread,
            budget(true, 1 << 40),
        );
        assert!(ends.next().is_some_and(|batch| batch.is_ok()));
        drop(ends);
        assert!(reads.recv().is_err(), "the thread has let go of the rows");
    }
}
