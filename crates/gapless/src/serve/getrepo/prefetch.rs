//! Records of a repository, read and checked ahead by a thread of its own while others are
//! sent.
//!
//! Few parcels are read ahead, each of few records and few bytes. The thread ends with the
//! records, or when nobody wants them any more.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use gapless_store::error::StoreError;
use gapless_store::table::record::Record;

use crate::serve::getrepo::batch::{Parcel, Rows, Wanted};

/// Records of a parcel. Most repositories have no more, and need no thread.
const RECORDS: usize = 256;
/// Parcels that wait.
const PARCELS: usize = 8;

/// What is handed over.
#[derive(Default)]
struct Sent {
    parcel: Parcel,
    /// Why it ends here.
    failed: Option<StoreError>,
    /// Nothing comes after it.
    is_last: bool,
}

/// Reads a parcel.
fn read(rows: &mut Rows, parcel: Parcel) -> Sent {
    let mut sent = Sent {
        parcel,
        ..Sent::default()
    };
    while !sent.parcel.is_full(RECORDS) {
        match rows.next() {
            Some(Ok(record)) => sent.parcel.push(&record, Wanted::Blocks),
            Some(Err(error)) => {
                sent.failed = Some(error);
                sent.is_last = true;
                break;
            }
            None => {
                sent.is_last = true;
                break;
            }
        }
    }
    sent
}

/// Records in parcels, each hashed where it is read.
pub fn ahead(rows: impl Iterator<Item = Result<Record, StoreError>> + Send + 'static) -> Ahead {
    Ahead(Source::Here(Box::new(rows)))
}

pub struct Ahead(Source);

enum Source {
    Here(Rows),
    There(Receiver<Sent>),
    Failed(StoreError),
    Ended,
}

impl Iterator for Ahead {
    type Item = Result<Parcel, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut sent = match std::mem::replace(&mut self.0, Source::Ended) {
            Source::Ended => return None,
            Source::Failed(error) => return Some(Err(error)),
            Source::Here(mut rows) => {
                let sent = read(&mut rows, Parcel::default());
                if !sent.is_last {
                    match send_ahead(rows, sent.parcel.another()) {
                        Ok(parcels) => self.0 = Source::There(parcels),
                        Err(error) => return Some(Err(error)),
                    }
                }
                sent
            }
            Source::There(parcels) => match parcels.recv() {
                Ok(sent) => {
                    if !sent.is_last {
                        self.0 = Source::There(parcels);
                    }
                    sent
                }
                Err(_) => {
                    let why = "the thread that reads a repository ended before its end";
                    return Some(Err(StoreError::System(why.into())));
                }
            },
        };
        if let Some(error) = sent.failed.take() {
            // After what came before it.
            self.0 = Source::Failed(error);
        }
        Some(Ok(sent.parcel))
    }
}

fn send_ahead(mut rows: Rows, first: Parcel) -> Result<Receiver<Sent>, StoreError> {
    let (sender, parcels): (SyncSender<Sent>, _) = sync_channel(PARCELS);
    let thread = std::thread::Builder::new().name("read ahead".to_owned());
    let started = thread.spawn(move || {
        let mut next = first;
        loop {
            let sent = read(&mut rows, next);
            next = sent.parcel.another();
            let is_last = sent.is_last;
            // Nobody may want them any more.
            if sender.send(sent).is_err() || is_last {
                return;
            }
        }
    });
    started.map_err(|error| StoreError::System(error.to_string().into()))?;
    Ok(parcels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::getrepo::batch::tests::{assert_read, record};

    #[test]
    fn as_many_come_out_as_go_in_and_as_they_were() {
        for many in [0, 1, RECORDS - 1, RECORDS, RECORDS + 1, 20 * RECORDS] {
            let mut read = 0;
            for parcel in ahead((0..many).map(|number| Ok(record(number, number == 700)))) {
                for one in parcel.expect("all can be read").iter() {
                    assert_read(&one, read, read == 700);
                    read += 1;
                }
            }
            assert_eq!(read, many);
        }
    }

    #[test]
    fn a_row_that_cannot_be_read_is_told_after_what_came_before_it() {
        for before in [0, 10, 3 * RECORDS] {
            let failed = Err(StoreError::System("a spoilt row".into()));
            let rows = (0..before).map(|number| Ok(record(number, false)));
            let (mut read, mut errors) = (0, 0);
            for parcel in ahead(rows.chain([failed])) {
                match parcel {
                    Ok(parcel) => read += parcel.iter().count(),
                    Err(_) => errors += 1,
                }
            }
            assert_eq!((read, errors), (before, 1));
        }
    }

    #[test]
    fn a_thread_that_ends_before_the_rows_is_an_error_and_no_end() {
        let rows = (0..2 * RECORDS).map(|at| {
            assert!(at <= RECORDS, "a fault while reading");
            Ok(record(at, false))
        });
        let mut read = ahead(rows);
        assert!(read.next().is_some_and(|parcel| parcel.is_ok()));
        let words = read
            .next()
            .map(|parcel| parcel.err().map(|error| error.to_string()));
        let words = words.flatten().unwrap_or_default();
        assert!(words.contains("before its end"), "{words}");
        assert!(read.next().is_none());
    }

    #[test]
    fn whoever_wants_no_more_ends_the_reading() {
        let (sender, reads) = std::sync::mpsc::sync_channel::<()>(1);
        let rows = std::iter::repeat_with(move || {
            // Lives as long as the rows do.
            let _ = &sender;
            Ok(record(1, false))
        });
        let mut read = ahead(rows);
        assert!(read.next().is_some());
        drop(read);
        assert!(reads.recv().is_err(), "the thread has let go of the rows");
    }
}
