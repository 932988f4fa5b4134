//! Prefetches the records of a repository: a second thread reads and hashes the next
//! batches while earlier ones are sent.
//!
//! At most [`QUEUED_BATCHES`] batches are read ahead, each with a limited number of records
//! and bytes. The thread ends after the last record, or when the iterator is dropped.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use gapless_store::error::StoreError;
use gapless_store::table::record::Record;

use crate::serve::getrepo::batch::{BatchContent, RecordBatch, RecordRows};

/// Records of a batch. Most repositories have no more and need no thread.
const BATCH_RECORDS: usize = 256;
/// Batches that wait to be taken.
const QUEUED_BATCHES: usize = 8;

/// A batch, and whether others follow.
#[derive(Default)]
struct ReadBatch {
    batch: RecordBatch,
    /// The error that ended the reading, after the records of the batch.
    failed: Option<StoreError>,
    /// No further batch follows.
    is_last: bool,
}

/// Reads the next batch.
fn read_next(rows: &mut RecordRows, batch: RecordBatch) -> ReadBatch {
    let mut read_batch = ReadBatch {
        batch,
        ..ReadBatch::default()
    };
    while !read_batch.batch.is_full(BATCH_RECORDS) {
        match rows.next() {
            Some(Ok(record)) => read_batch.batch.push(&record, BatchContent::Blocks),
            Some(Err(error)) => {
                read_batch.failed = Some(error);
                read_batch.is_last = true;
                break;
            }
            None => {
                read_batch.is_last = true;
                break;
            }
        }
    }
    read_batch
}

/// Returns the records in batches, each verified by the thread that reads it.
pub(crate) fn prefetch(
    rows: impl Iterator<Item = Result<Record, StoreError>> + Send + 'static,
) -> PrefetchedBatches {
    PrefetchedBatches(ReadAhead::Inline(Box::new(rows)))
}

/// An iterator over batches that are read ahead.
pub(crate) struct PrefetchedBatches(ReadAhead);

/// Where the next batch comes from.
enum ReadAhead {
    /// The first batch, which the caller reads itself.
    Inline(RecordRows),
    /// Later batches, from the second thread.
    Thread(Receiver<ReadBatch>),
    Failed(StoreError),
    Ended,
}

impl Iterator for PrefetchedBatches {
    type Item = Result<RecordBatch, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut read_batch = match std::mem::replace(&mut self.0, ReadAhead::Ended) {
            ReadAhead::Ended => return None,
            ReadAhead::Failed(error) => return Some(Err(error)),
            ReadAhead::Inline(mut rows) => {
                let read_batch = read_next(&mut rows, RecordBatch::default());
                if !read_batch.is_last {
                    match start_thread(rows, read_batch.batch.new_like()) {
                        Ok(batches) => self.0 = ReadAhead::Thread(batches),
                        Err(error) => return Some(Err(error)),
                    }
                }
                read_batch
            }
            ReadAhead::Thread(batches) => match batches.recv() {
                Ok(read_batch) => {
                    if !read_batch.is_last {
                        self.0 = ReadAhead::Thread(batches);
                    }
                    read_batch
                }
                Err(_) => {
                    let why = "the thread that reads a repository ended before its end";
                    return Some(Err(StoreError::System(why.into())));
                }
            },
        };
        if let Some(error) = read_batch.failed.take() {
            // Returned after the records that precede it.
            self.0 = ReadAhead::Failed(error);
        }
        Some(Ok(read_batch.batch))
    }
}

fn start_thread(
    mut rows: RecordRows,
    first: RecordBatch,
) -> Result<Receiver<ReadBatch>, StoreError> {
    let (sender, batches): (SyncSender<ReadBatch>, _) = sync_channel(QUEUED_BATCHES);
    let thread = std::thread::Builder::new().name("read ahead".to_owned());
    let started = thread.spawn(move || {
        let mut next = first;
        loop {
            let read_batch = read_next(&mut rows, next);
            next = read_batch.batch.new_like();
            let is_last = read_batch.is_last;
            // The iterator may have been dropped.
            if sender.send(read_batch).is_err() || is_last {
                return;
            }
        }
    });
    started.map_err(|error| StoreError::System(error.to_string().into()))?;
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::getrepo::batch::tests::{assert_read, record};

    #[test]
    fn as_many_come_out_as_go_in_and_as_they_were() {
        for many in [
            0,
            1,
            BATCH_RECORDS - 1,
            BATCH_RECORDS,
            BATCH_RECORDS + 1,
            20 * BATCH_RECORDS,
        ] {
            let mut read = 0;
            for batch in prefetch((0..many).map(|number| Ok(record(number, number == 700)))) {
                for one in batch.expect("all can be read").iter() {
                    assert_read(&one, read, read == 700);
                    read += 1;
                }
            }
            assert_eq!(read, many);
        }
    }

    #[test]
    fn a_row_that_cannot_be_read_is_told_after_what_came_before_it() {
        for before in [0, 10, 3 * BATCH_RECORDS] {
            let failed = Err(StoreError::System("a spoilt row".into()));
            let rows = (0..before).map(|number| Ok(record(number, false)));
            let (mut read, mut errors) = (0, 0);
            for batch in prefetch(rows.chain([failed])) {
                match batch {
                    Ok(batch) => read += batch.iter().count(),
                    Err(_) => errors += 1,
                }
            }
            assert_eq!((read, errors), (before, 1));
        }
    }

    #[test]
    fn a_thread_that_ends_before_the_rows_is_an_error_and_no_end() {
        let rows = (0..2 * BATCH_RECORDS).map(|at| {
            assert!(at <= BATCH_RECORDS, "a fault while reading");
            Ok(record(at, false))
        });
        let mut read = prefetch(rows);
        assert!(read.next().is_some_and(|batch| batch.is_ok()));
        let words = read
            .next()
            .map(|batch| batch.err().map(|error| error.to_string()));
        let words = words.flatten().unwrap_or_default();
        assert!(words.contains("before its end"), "{words}");
        assert!(read.next().is_none());
    }

    #[test]
    fn dropping_the_iterator_ends_the_reading() {
        let (sender, reads) = std::sync::mpsc::sync_channel::<()>(1);
        let rows = std::iter::repeat_with(move || {
            // Lives as long as the rows do.
            let _ = &sender;
            Ok(record(1, false))
        });
        let mut read = prefetch(rows);
        assert!(read.next().is_some());
        drop(read);
        assert!(reads.recv().is_err(), "the thread has let go of the rows");
    }
}
