//! The head file: records, outside the engine, which batch was acknowledged last.
//!
//! An engine that loses a durable batch cannot detect the loss: a damaged batch in
//! the middle of its journal looks like a torn end. The head file can show it. The
//! file is written after the engine's fsync and before any change is acknowledged,
//! so at the next start an engine behind the file has lost something, and an engine
//! ahead of the file was only interrupted before the acknowledgement.
//!
//! Two slots are written in turn, each on a page of its own and with a checksum, so
//! that a torn write leaves the other one. A write is one system call without an
//! fsync, so it survives the end of the process. A power cut may lose the writes of
//! the last second; the file is then behind, which can only hide a loss within that
//! second. If both slots are broken, the file is refused as damaged, because there
//! is nothing to compare the engine with.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::durable;

/// The file's name in the data folder.
pub const HEAD_FILE: &str = "head";

/// The longest time that a written slot stays unsynced while batches are written.
pub(crate) const SYNC_EVERY: Duration = Duration::from_secs(1);

const MAGIC: &[u8; 8] = b"GPLSHEAD";
/// A page each, so that no sector holds both.
const SLOT_STRIDE: u64 = 4096;
const SLOT_BYTES: usize = 8 + 3 * 8 + 4;
const FILE_BYTES: u64 = 2 * SLOT_STRIDE;

/// The newest batch that was acknowledged as durable, and the log number after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AcknowledgedHead {
    /// The number of the batch; batches count from 1.
    pub batch: u64,
    /// The log number with which the next batch begins.
    pub next_seq: u64,
}

/// Why the head file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HeadError {
    #[error(
        "{} is damaged, so Gapless cannot tell whether the store still has everything acknowledged. Run `gapless store repair --data DIR`, which checks every repository",
        file.display()
    )]
    Damaged { file: PathBuf },
    #[error("cannot use {}: {source}", file.display())]
    Io { file: PathBuf, source: io::Error },
}

/// The open head file.
#[derive(Debug)]
pub struct HeadFile {
    path: PathBuf,
    file: File,
    /// Counts writes; its parity chooses the slot.
    turn: u64,
    last: Option<AcknowledgedHead>,
    synced: Instant,
    unsynced: bool,
}

impl HeadFile {
    /// Opens the head file of a data folder; creates an empty one if it is missing.
    pub fn open(folder: &Path) -> Result<HeadFile, HeadError> {
        let path = folder.join(HEAD_FILE);
        let io = |source| HeadError::Io {
            file: path.clone(),
            source,
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        let slots = match length {
            0 => {
                // The name must be durable before anything relies on the file.
                file.set_len(FILE_BYTES)
                    .and_then(|()| file.sync_all())
                    .and_then(|()| durable::sync_name(&path))
                    .map_err(io)?;
                [HeadSlot::Empty, HeadSlot::Empty]
            }
            FILE_BYTES => [
                HeadSlot::read(&file, 0).map_err(io)?,
                HeadSlot::read(&file, 1).map_err(io)?,
            ],
            _ => return Err(HeadError::Damaged { file: path }),
        };
        let newest = match slots {
            [HeadSlot::Whole(a, first), HeadSlot::Whole(b, second)] => {
                Some(if a > b { (a, first) } else { (b, second) })
            }
            [HeadSlot::Whole(turn, last), _] | [_, HeadSlot::Whole(turn, last)] => {
                Some((turn, last))
            }
            [HeadSlot::Empty, HeadSlot::Empty] => None,
            // The very first write, torn by a power cut: nothing was synced yet.
            [HeadSlot::Empty, HeadSlot::Broken] | [HeadSlot::Broken, HeadSlot::Empty] => None,
            [HeadSlot::Broken, HeadSlot::Broken] => return Err(HeadError::Damaged { file: path }),
        };
        Ok(HeadFile {
            path,
            file,
            turn: newest.map_or(0, |(turn, _)| turn),
            last: newest.map(|(_, last)| last),
            synced: Instant::now(),
            unsynced: false,
        })
    }

    /// Replaces a damaged file by a new one. Only a repair may call this: it has checked
    /// by other means what the file can no longer show.
    pub fn replace(folder: &Path, acknowledged: AcknowledgedHead) -> Result<(), HeadError> {
        let path = folder.join(HEAD_FILE);
        let mut bytes = vec![0; FILE_BYTES as usize];
        let slot = encode(1, acknowledged);
        for (to, from) in bytes.iter_mut().zip(slot) {
            *to = from;
        }
        durable::write_whole(&path, &bytes).map_err(|source| HeadError::Io { file: path, source })
    }

    /// The last acknowledged head; `None` in a new store.
    pub fn last(&self) -> Option<AcknowledgedHead> {
        self.last
    }

    /// Writes the head that is about to be acknowledged. The write survives the end of
    /// the process at once. It survives a power cut after the next sync, which the first
    /// write after [`SYNC_EVERY`] makes.
    pub fn write(&mut self, acknowledged: AcknowledgedHead) -> Result<(), HeadError> {
        let turn = self.turn + 1;
        self.file
            .write_all_at(&encode(turn, acknowledged), (turn % 2) * SLOT_STRIDE)
            .map_err(|source| self.failed(source))?;
        self.turn = turn;
        self.last = Some(acknowledged);
        self.unsynced = true;
        if self.synced.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    /// Makes the last write survive a power cut. Called when the store closes; until
    /// then [`HeadFile::write`] syncs at most once per [`SYNC_EVERY`].
    pub fn sync(&mut self) -> Result<(), HeadError> {
        if self.unsynced {
            self.file
                .sync_data()
                .map_err(|source| self.failed(source))?;
            self.unsynced = false;
        }
        self.synced = Instant::now();
        Ok(())
    }

    fn failed(&self, source: io::Error) -> HeadError {
        HeadError::Io {
            file: self.path.clone(),
            source,
        }
    }
}

/// One of the two slots of the file.
enum HeadSlot {
    Empty,
    Whole(u64, AcknowledgedHead),
    Broken,
}

impl HeadSlot {
    fn read(file: &File, index: u64) -> io::Result<HeadSlot> {
        let mut bytes = [0; SLOT_BYTES];
        file.read_exact_at(&mut bytes, index * SLOT_STRIDE)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(HeadSlot::Empty);
        }
        Ok(decode(&bytes).map_or(HeadSlot::Broken, |(turn, last)| HeadSlot::Whole(turn, last)))
    }
}

fn encode(turn: u64, acknowledged: AcknowledgedHead) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    let (body, checksum) = bytes.split_at_mut(SLOT_BYTES - 4);
    let fields = [turn, acknowledged.batch, acknowledged.next_seq];
    let values = fields.iter().flat_map(|field| field.to_le_bytes());
    for (to, from) in body.iter_mut().zip(MAGIC.iter().copied().chain(values)) {
        *to = from;
    }
    checksum.copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<(u64, AcknowledgedHead)> {
    let (body, checksum) = bytes.split_last_chunk::<4>()?;
    let (magic, fields) = body.split_first_chunk::<8>()?;
    if magic != MAGIC || crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let (fields, _) = fields.as_chunks::<8>();
    let [turn, batch, next_seq] = fields else {
        return None;
    };
    Some((
        u64::from_le_bytes(*turn),
        AcknowledgedHead {
            batch: u64::from_le_bytes(*batch),
            next_seq: u64::from_le_bytes(*next_seq),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(batch: u64) -> AcknowledgedHead {
        AcknowledgedHead {
            batch,
            next_seq: batch * 10,
        }
    }

    fn written(upto: u64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut head = HeadFile::open(folder.path()).unwrap();
        assert_eq!(head.last(), None);
        for batch in 1..=upto {
            head.write(at(batch)).unwrap();
        }
        folder
    }

    fn overwrite(folder: &Path, slot: u64, bytes: &[u8]) {
        let file = OpenOptions::new()
            .write(true)
            .open(folder.join(HEAD_FILE))
            .unwrap();
        file.write_all_at(bytes, slot * SLOT_STRIDE).unwrap();
    }

    #[test]
    fn the_newest_is_read_back_and_writing_goes_on() {
        for upto in 1..5 {
            let folder = written(upto);
            let mut head = HeadFile::open(folder.path()).unwrap();
            assert_eq!(head.last(), Some(at(upto)));
            head.write(at(upto + 1)).unwrap();
            assert_eq!(head.last(), Some(at(upto + 1)));
            drop(head);
            let head = HeadFile::open(folder.path()).unwrap();
            assert_eq!(head.last(), Some(at(upto + 1)));
        }
    }

    #[test]
    fn a_torn_slot_leaves_the_one_before() {
        for upto in 2..6 {
            for torn_at in [0, 8, 17, SLOT_BYTES - 4] {
                let folder = written(upto);
                let mut slot = encode(upto, at(upto));
                slot[torn_at] ^= 1;
                overwrite(folder.path(), upto % 2, &slot);
                let head = HeadFile::open(folder.path()).unwrap();
                assert_eq!(head.last(), Some(at(upto - 1)), "torn at {torn_at}");
            }
        }
    }

    #[test]
    fn after_a_torn_slot_the_whole_one_is_not_overwritten_first() {
        let folder = written(4);
        overwrite(folder.path(), 0, &[0xff; SLOT_BYTES]);
        let mut head = HeadFile::open(folder.path()).unwrap();
        assert_eq!(head.last(), Some(at(3)));
        head.write(at(9)).unwrap();
        drop(head);
        // The slot that was just written is torn in its turn.
        overwrite(folder.path(), 0, &[0xff; SLOT_BYTES]);
        let head = HeadFile::open(folder.path()).unwrap();
        assert_eq!(head.last(), Some(at(3)));
    }

    #[test]
    fn the_very_first_write_may_be_torn() {
        let folder = written(1);
        overwrite(folder.path(), 1, &[0xff; 5]);
        let head = HeadFile::open(folder.path()).unwrap();
        assert_eq!(head.last(), None);
    }

    #[test]
    fn two_broken_slots_are_refused_and_can_only_be_replaced() {
        let folder = written(5);
        overwrite(folder.path(), 0, &[1; 4]);
        overwrite(folder.path(), 1, &[1; 4]);
        let refused = HeadFile::open(folder.path()).unwrap_err();
        assert!(matches!(refused, HeadError::Damaged { .. }));
        assert!(refused.to_string().contains("store repair"), "{refused}");
        HeadFile::replace(folder.path(), at(7)).unwrap();
        let head = HeadFile::open(folder.path()).unwrap();
        assert_eq!(head.last(), Some(at(7)));
    }

    #[test]
    fn a_file_of_another_length_is_damage() {
        let folder = written(5);
        let path = folder.path().join(HEAD_FILE);
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(100).unwrap();
        assert!(matches!(
            HeadFile::open(folder.path()),
            Err(HeadError::Damaged { .. })
        ));
    }
}
