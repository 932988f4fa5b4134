//! Rows of a large repository, read and checked ahead by a thread of its own: that and
//! making something of them take about as long, and a core each.
//!
//! Few are read ahead, by number and by bytes. The thread ends with the rows, or when
//! nobody wants them any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use gapless_store::error::StoreError;
use gapless_store::table::record::Record;

/// Rows that are read without one: most repositories have no more.
const BY_ITSELF: usize = 1_000;
/// Rows that are handed over at a time, or fewer of so many bytes.
const ROWS: usize = 256;
const BYTES: usize = 256 << 10;
/// Such parcels that wait.
const PARCELS: usize = 4;

type Row = Result<Read, StoreError>;
pub type Rows = Box<dyn Iterator<Item = Row> + Send>;

/// A record that was read.
pub struct Read {
    pub record: Record,
    /// Whether it was hashed, and found to be the one that its CID names.
    pub sound: bool,
}

/// The same rows, each hashed where it is read for as long as `check` says so.
pub fn ahead(
    rows: impl Iterator<Item = Result<Record, StoreError>> + Send + 'static,
    check: Arc<AtomicBool>,
) -> Ahead {
    let rows = rows.map(move |record| {
        let record = record?;
        let sound = check.load(Ordering::Relaxed) && is_sound(&record);
        Ok(Read { record, sound })
    });
    Ahead::of(Box::new(rows))
}

fn is_sound(record: &Record) -> bool {
    let bytes = record.bytes();
    bytes.is_some_and(|bytes| record.cid.matches(bytes))
}

pub struct Ahead {
    source: Source,
    read: usize,
}

enum Source {
    Here(Rows),
    There {
        parcels: Receiver<Parcel>,
        opened: std::vec::IntoIter<Row>,
    },
    Ended,
}

/// What the thread hands over; an end that it does not tell of is a fault.
enum Parcel {
    Rows(Vec<Row>),
    Last(Vec<Row>),
}

impl Iterator for Ahead {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        if self.read == BY_ITSELF
            && let Err(error) = self.send_ahead()
        {
            return Some(Err(error));
        }
        self.read += 1;
        loop {
            let (row, parcel) = match &mut self.source {
                Source::Ended => return None,
                Source::Here(rows) => return rows.next(),
                Source::There { parcels, opened } => match opened.next() {
                    Some(row) => (Some(row), None),
                    None => (None, parcels.recv().ok()),
                },
            };
            match (row, parcel) {
                (Some(row), _) => return Some(row),
                (None, Some(Parcel::Rows(rows))) => self.open(rows),
                (None, Some(Parcel::Last(rows))) => {
                    self.source = Source::Here(Box::new(rows.into_iter()));
                }
                (None, None) => {
                    self.source = Source::Ended;
                    let why = "the thread that reads a repository ended before its end";
                    return Some(Err(StoreError::System(why.into())));
                }
            }
        }
    }
}

impl Ahead {
    fn of(rows: Rows) -> Ahead {
        Ahead {
            source: Source::Here(rows),
            read: 0,
        }
    }

    fn open(&mut self, rows: Vec<Row>) {
        if let Source::There { opened, .. } = &mut self.source {
            *opened = rows.into_iter();
        }
    }

    fn send_ahead(&mut self) -> Result<(), StoreError> {
        let (sender, parcels) = sync_channel(PARCELS);
        let opened = Vec::new().into_iter();
        let there = Source::There { parcels, opened };
        if let Source::Here(rows) = std::mem::replace(&mut self.source, there) {
            let thread = std::thread::Builder::new().name("read ahead".to_owned());
            let started = thread.spawn(move || read(rows, &sender));
            started.map_err(|error| StoreError::System(error.to_string().into()))?;
        }
        Ok(())
    }
}

fn read(rows: Rows, sender: &SyncSender<Parcel>) {
    let (mut parcel, mut bytes) = (Vec::with_capacity(ROWS), 0);
    for row in rows {
        if let Ok(Read { record, .. }) = &row {
            bytes += record.bytes().map_or(0, <[u8]>::len);
        }
        parcel.push(row);
        if parcel.len() == ROWS || bytes >= BYTES {
            bytes = 0;
            let full = std::mem::replace(&mut parcel, Vec::with_capacity(ROWS));
            if sender.send(Parcel::Rows(full)).is_err() {
                return;
            }
        }
    }
    // Nobody may want them any more.
    let _ = sender.send(Parcel::Last(parcel));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Row {
        Err(StoreError::System("a spoilt row".into()))
    }

    #[test]
    fn as_many_come_out_as_go_in_however_many_they_are() {
        for many in [
            0,
            1,
            BY_ITSELF,
            BY_ITSELF + 1,
            BY_ITSELF + ROWS,
            10 * ROWS * PARCELS,
        ] {
            let rows = (0..many).map(|_| failed());
            assert_eq!(Ahead::of(Box::new(rows)).count(), many);
        }
    }

    #[test]
    fn a_thread_that_ends_before_the_rows_is_an_error_and_no_end() {
        let rows = (0..BY_ITSELF + 10).map(|at| {
            assert!(at <= BY_ITSELF, "a fault while reading");
            failed()
        });
        let mut read = Ahead::of(Box::new(rows));
        let last = read.by_ref().last();
        let words = last.map(|row| row.err().map(|error| error.to_string()));
        let words = words.flatten().unwrap_or_default();
        assert!(words.contains("before its end"), "{words}");
        assert!(read.next().is_none());
    }

    #[test]
    fn whoever_wants_no_more_ends_the_reading() {
        let (sender, reads) = std::sync::mpsc::sync_channel(1);
        let rows = std::iter::repeat_with(move || {
            // Lives as long as the rows do.
            let _ = &sender;
            failed()
        });
        let mut read = Ahead::of(Box::new(rows));
        assert_eq!(read.by_ref().take(BY_ITSELF + 1).count(), BY_ITSELF + 1);
        drop(read);
        let reads: &Receiver<()> = &reads;
        assert!(reads.recv().is_err(), "the thread has let go of the rows");
    }
}
