//! Reads frames, from a number on.
//!
//! There may be many readers, and a reader never waits for the writer. A reader sees
//! only durable bytes, and only numbers below the one that its caller gives, because
//! a frame is on disk before the batch that names it. For dropped numbers a reader
//! returns [`FramesError::Gone`]; damaged frames are skipped and reported.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::FramesError;
use super::entry::SEGMENT_HEADER_BYTES;
use super::scan::{Scan, ScanItem};
use super::segment::Segment;
use crate::sync::RwLock;

/// A frame as it was received and verified, read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFrame {
    pub seq: u64,
    /// `None` if the frame was redacted: its number stays, its bytes are gone.
    pub bytes: Option<Vec<u8>>,
}

/// A range of bytes in a segment that is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub file: PathBuf,
    pub at: u64,
    pub until: u64,
    /// The number of the last whole frame before the damage in this page, if any.
    pub after_seq: Option<u64>,
}

/// A page of frames, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramesPage {
    pub frames: Vec<StoredFrame>,
    pub damaged: Vec<Damage>,
    /// Where to continue: the page covers every number from the requested one up to this one.
    pub next_seq: u64,
}

/// The existing segments, lowest first; never empty once opened.
#[derive(Debug, Default)]
pub(super) struct Segments {
    list: RwLock<Vec<Arc<Segment>>>,
    /// Whether the wall clock is not believed, so that no segment is too old.
    clock_doubted: AtomicBool,
}

impl Segments {
    pub(super) fn new(list: Vec<Segment>) -> Segments {
        Segments {
            list: RwLock::new(list.into_iter().map(Arc::new).collect()),
            clock_doubted: AtomicBool::default(),
        }
    }

    pub(super) fn is_clock_doubted(&self) -> bool {
        self.clock_doubted.load(Ordering::Relaxed)
    }

    /// Returns the present list.
    pub(super) fn current(&self) -> Vec<Arc<Segment>> {
        self.list.read().clone()
    }

    pub(super) fn update(&self, update: impl FnOnce(&mut Vec<Arc<Segment>>)) {
        update(&mut self.list.write());
    }
}

/// A handle for reading frames; clones share the list of segments.
#[derive(Debug, Clone)]
pub struct FramesReader {
    pub(super) segments: Arc<Segments>,
}

impl FramesReader {
    /// Sets whether the wall clock is not believed. While it is not, no frame is dropped because of
    /// its age.
    pub fn doubt_clock(&self, doubted: bool) {
        self.segments
            .clock_doubted
            .store(doubted, Ordering::Relaxed);
    }

    /// The lowest number that was not dropped. From that number on, every stored frame
    /// can be read or is reported as damaged.
    pub fn oldest_seq(&self) -> u64 {
        let segments = self.segments.current();
        segments.first().map_or(0, |segment| segment.first_seq)
    }

    /// Whether any frame is kept.
    pub fn holds_any(&self) -> bool {
        let segments = self.segments.current();
        let empty = SEGMENT_HEADER_BYTES as u64;
        segments.iter().any(|segment| segment.bytes() > empty)
    }

    /// The size of all segments in bytes.
    pub fn bytes(&self) -> u64 {
        let segments = self.segments.current();
        segments.iter().map(|segment| segment.bytes()).sum()
    }

    /// Reads frames from `from_seq` on and below `below_seq`, until they have
    /// `page_bytes` together; at least one, if there is one.
    pub fn read(
        &self,
        from_seq: u64,
        below_seq: u64,
        page_bytes: usize,
    ) -> Result<FramesPage, FramesError> {
        let segments = self.segments.current();
        let oldest_seq = segments.first().map_or(0, |segment| segment.first_seq);
        if from_seq < oldest_seq {
            return Err(FramesError::Gone {
                from_seq,
                oldest_seq,
            });
        }
        let mut builder = PageBuilder {
            from_seq,
            below_seq,
            left: page_bytes,
            page: FramesPage {
                frames: Vec::new(),
                damaged: Vec::new(),
                next_seq: below_seq.max(from_seq),
            },
        };
        let first = segments.partition_point(|segment| segment.first_seq <= from_seq);
        for segment in segments.iter().skip(first.saturating_sub(1)) {
            if segment.first_seq >= below_seq {
                break;
            }
            match builder.read(segment) {
                Ok(true) => {}
                Ok(false) => break,
                // The segment was dropped after the list was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(FramesError::Gone {
                        from_seq,
                        oldest_seq: self.oldest_seq(),
                    });
                }
                Err(source) => {
                    return Err(FramesError::Io {
                        file: segment.path.clone(),
                        source,
                    });
                }
            }
        }
        Ok(builder.page)
    }
}

/// A page while it is being read.
struct PageBuilder {
    from_seq: u64,
    below_seq: u64,
    left: usize,
    page: FramesPage,
}

impl PageBuilder {
    /// Adds the frames of a segment. Returns whether to continue with the next segment.
    fn read(&mut self, segment: &Segment) -> io::Result<bool> {
        let file = File::open(&segment.path)?;
        let place = segment.offset_before(self.from_seq, &file)?;
        let mut scan = Scan::new(&file, segment.mark, place, segment.bytes());
        while let Some(met) = scan.next()? {
            let (header, payload) = match met {
                ScanItem::Entry {
                    header, payload, ..
                } => (header, payload),
                ScanItem::Damaged { at, until } => {
                    self.page.damaged.push(Damage {
                        file: segment.path.clone(),
                        at,
                        until,
                        after_seq: self.page.frames.last().map(|frame| frame.seq),
                    });
                    continue;
                }
            };
            if header.seq < self.from_seq {
                continue;
            }
            if header.seq >= self.below_seq {
                return Ok(false);
            }
            if self.left == 0 {
                self.page.next_seq = header.seq;
                return Ok(false);
            }
            self.left = self.left.saturating_sub(payload.len().max(1));
            self.page.frames.push(StoredFrame {
                seq: header.seq,
                bytes: (!header.redacted).then_some(payload),
            });
        }
        Ok(true)
    }
}
