//! Records of a repository, read and checked ahead by a thread of its own: that and making
//! something of them take about as long, and a core each.
//!
//! They are handed over in parcels, as they stand in a CAR. What the store handed out is
//! let go of where it was read: few large pieces of memory change hands, and not one for
//! every record. Few parcels are read ahead, each of few records and few bytes. The thread
//! ends with the records, or when nobody wants them any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use gapless_atp::car::write_block;
use gapless_atp::cid::Cid;
use gapless_store::error::StoreError;
use gapless_store::table::record::Record;

/// Records of a parcel, or fewer of so many bytes. Most repositories have no more, and
/// need no thread.
const RECORDS: usize = 256;
const BYTES: usize = 256 << 10;
/// Parcels that wait.
const PARCELS: usize = 8;

pub type Rows = Box<dyn Iterator<Item = Result<Record, StoreError>> + Send>;

/// Some records, in order.
#[derive(Default)]
pub struct Parcel {
    /// Their blocks as a CAR has them, and their keys, one after the other.
    blocks: Vec<u8>,
    keys: Vec<u8>,
    ends: Vec<End>,
    /// Why it ends here.
    failed: Option<StoreError>,
    /// Nothing comes after it.
    is_last: bool,
}

/// Where a record's parts end.
struct End {
    block: usize,
    key: usize,
    cid: Cid,
    sound: bool,
}

/// One record of a parcel.
pub struct Read<'p> {
    pub key: &'p [u8],
    pub cid: Cid,
    /// As a CAR has it.
    pub block: &'p [u8],
    /// Whether it was hashed, and found to be the one that its CID names.
    pub sound: bool,
}

impl Parcel {
    /// With room for as much as the one before it had.
    fn like(other: &Parcel) -> Parcel {
        Parcel {
            blocks: Vec::with_capacity(other.blocks.len() + other.blocks.len() / 8),
            keys: Vec::with_capacity(other.keys.len() + other.keys.len() / 8),
            ends: Vec::with_capacity(other.ends.len()),
            ..Parcel::default()
        }
    }

    fn push(&mut self, record: &Record, check: bool) {
        let bytes = record.bytes();
        let sound = check && bytes.is_some_and(|bytes| record.cid.matches(bytes));
        write_block(&mut self.blocks, &record.cid, bytes.unwrap_or_default());
        self.keys.extend_from_slice(record.path());
        self.ends.push(End {
            block: self.blocks.len(),
            key: self.keys.len(),
            cid: record.cid,
            sound,
        });
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= RECORDS || self.blocks.len() >= BYTES
    }

    /// What it takes in memory, about.
    pub fn bytes(&self) -> usize {
        self.blocks.capacity() + self.keys.capacity() + self.ends.capacity() * size_of::<End>()
    }

    /// The record at a place.
    pub fn get(&self, at: usize) -> Option<Read<'_>> {
        let end = self.ends.get(at)?;
        let before = at.checked_sub(1).and_then(|before| self.ends.get(before));
        let (block, key) = before.map_or((0, 0), |before| (before.block, before.key));
        Some(Read {
            key: &self.keys[key..end.key],
            cid: end.cid,
            block: &self.blocks[block..end.block],
            sound: end.sound,
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = Read<'_>> {
        (0..self.ends.len()).map_while(|at| self.get(at))
    }
}

/// Reads a parcel.
fn read(rows: &mut Rows, check: &AtomicBool, mut parcel: Parcel) -> Parcel {
    while !parcel.is_full() {
        match rows.next() {
            Some(Ok(record)) => parcel.push(&record, check.load(Ordering::Relaxed)),
            Some(Err(error)) => {
                parcel.failed = Some(error);
                parcel.is_last = true;
                break;
            }
            None => {
                parcel.is_last = true;
                break;
            }
        }
    }
    parcel
}

/// Records in parcels, each hashed where it is read for as long as `check` says so.
pub fn ahead(
    rows: impl Iterator<Item = Result<Record, StoreError>> + Send + 'static,
    check: Arc<AtomicBool>,
) -> Ahead {
    Ahead(Source::Here(Box::new(rows), check))
}

pub struct Ahead(Source);

enum Source {
    Here(Rows, Arc<AtomicBool>),
    There(Receiver<Parcel>),
    Failed(StoreError),
    Ended,
}

impl Iterator for Ahead {
    type Item = Result<Parcel, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let parcel = match std::mem::replace(&mut self.0, Source::Ended) {
            Source::Ended => return None,
            Source::Failed(error) => return Some(Err(error)),
            Source::Here(mut rows, check) => {
                let parcel = read(&mut rows, &check, Parcel::default());
                if !parcel.is_last {
                    match send_ahead(rows, check, Parcel::like(&parcel)) {
                        Ok(parcels) => self.0 = Source::There(parcels),
                        Err(error) => return Some(Err(error)),
                    }
                }
                parcel
            }
            Source::There(parcels) => match parcels.recv() {
                Ok(parcel) => {
                    if !parcel.is_last {
                        self.0 = Source::There(parcels);
                    }
                    parcel
                }
                Err(_) => {
                    let why = "the thread that reads a repository ended before its end";
                    return Some(Err(StoreError::System(why.into())));
                }
            },
        };
        let mut parcel = parcel;
        if let Some(error) = parcel.failed.take() {
            // After what came before it.
            self.0 = Source::Failed(error);
        }
        Some(Ok(parcel))
    }
}

fn send_ahead(
    mut rows: Rows,
    check: Arc<AtomicBool>,
    first: Parcel,
) -> Result<Receiver<Parcel>, StoreError> {
    let (sender, parcels): (SyncSender<Parcel>, _) = sync_channel(PARCELS);
    let thread = std::thread::Builder::new().name("read ahead".to_owned());
    let started = thread.spawn(move || {
        let mut next = first;
        loop {
            let parcel = read(&mut rows, &check, next);
            next = Parcel::like(&parcel);
            let is_last = parcel.is_last;
            // Nobody may want them any more.
            if sender.send(parcel).is_err() || is_last {
                return;
            }
        }
    });
    started.map_err(|error| StoreError::System(error.to_string().into()))?;
    Ok(parcels)
}

#[cfg(test)]
mod tests {
    use gapless_atp::syntax::Rev;
    use gapless_store::table::record::{RecordRow, encode};

    use super::*;

    fn record(number: usize, spoilt: bool) -> Record {
        let bytes = format!("record {number}").into_bytes();
        let row = encode(&RecordRow {
            rev: Rev::from_bits(7),
            cid: match spoilt {
                false => Cid::dag_cbor(&bytes),
                true => Cid::dag_cbor(b"another"),
            },
            bytes: Some(&bytes),
        });
        let key = [&7u64.to_be_bytes()[..], format!("a/{number:06}").as_bytes()].concat();
        Record::new(key.into(), row.into()).expect("a row")
    }

    fn checked(rows: impl Iterator<Item = Result<Record, StoreError>> + Send + 'static) -> Ahead {
        ahead(rows, Arc::new(AtomicBool::new(true)))
    }

    #[test]
    fn as_many_come_out_as_go_in_and_as_they_were() {
        for many in [0, 1, RECORDS - 1, RECORDS, RECORDS + 1, 20 * RECORDS] {
            let mut read = 0;
            for parcel in checked((0..many).map(|number| Ok(record(number, number == 700)))) {
                let parcel = parcel.expect("all can be read");
                for one in parcel.iter() {
                    let whole = record(read, read == 700);
                    let mut block = Vec::new();
                    write_block(&mut block, &whole.cid, whole.bytes().expect("it has some"));
                    assert_eq!((one.key, one.block), (whole.path(), &block[..]));
                    assert_eq!((one.cid, one.sound), (whole.cid, read != 700));
                    read += 1;
                }
            }
            assert_eq!(read, many);
        }
    }

    #[test]
    fn what_is_not_hashed_is_not_called_sound() {
        let rows = ahead([Ok(record(1, false))].into_iter(), Arc::default());
        for parcel in rows {
            assert!(parcel.expect("it can be read").iter().all(|one| !one.sound));
        }
    }

    #[test]
    fn a_row_that_cannot_be_read_is_told_after_what_came_before_it() {
        for before in [0, 10, 3 * RECORDS] {
            let failed = Err(StoreError::System("a spoilt row".into()));
            let rows = (0..before).map(|number| Ok(record(number, false)));
            let (mut read, mut errors) = (0, 0);
            for parcel in checked(rows.chain([failed])) {
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
        let mut read = checked(rows);
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
        let mut read = checked(rows);
        assert!(read.next().is_some());
        drop(read);
        assert!(reads.recv().is_err(), "the thread has let go of the rows");
    }
}
