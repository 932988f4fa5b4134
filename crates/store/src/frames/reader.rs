//! Reading frames back, from a number on.
//!
//! A reader is a handle that many may have; it never waits for the writer. It
//! sees durable bytes only, and below the number its caller gives, because a
//! frame is on disk before the batch that names it. What was dropped is said to
//! be gone; what is damaged is left out and said.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::FramesError;
use super::scan::{Scan, ScanItem};
use super::segment::Segment;
use crate::sync::RwLock;

/// A frame as it was received and verified, read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFrame {
    pub seq: u64,
    /// None where it was redacted: its number stays, its bytes are gone.
    pub bytes: Option<Vec<u8>>,
}

/// Bytes that are no frame any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    pub file: PathBuf,
    pub at: u64,
    pub until: u64,
    /// The last whole frame before it in this page, if any.
    pub after_seq: Option<u64>,
}

/// A page of frames, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramesPage {
    pub frames: Vec<StoredFrame>,
    pub damaged: Vec<Damage>,
    /// Where to go on: every frame from the asked number up to here was looked at.
    pub next_seq: u64,
}

/// The segments there are, lowest first; never empty.
#[derive(Debug, Default)]
pub struct Segments {
    list: RwLock<Vec<Arc<Segment>>>,
}

impl Segments {
    pub fn new(list: Vec<Segment>) -> Segments {
        Segments {
            list: RwLock::new(list.into_iter().map(Arc::new).collect()),
        }
    }

    /// The list as it is now.
    pub fn current(&self) -> Vec<Arc<Segment>> {
        self.list.read().clone()
    }

    pub fn update(&self, update: impl FnOnce(&mut Vec<Arc<Segment>>)) {
        update(&mut self.list.write());
    }
}

/// A handle for reading; clones share what is known of the segments.
#[derive(Debug, Clone)]
pub struct FramesReader {
    pub(super) segments: Arc<Segments>,
}

impl FramesReader {
    /// The lowest number that was not dropped. From it on, every frame there was
    /// is there, or reported as damaged.
    pub fn oldest_seq(&self) -> u64 {
        let segments = self.segments.current();
        segments.first().map_or(0, |segment| segment.first_seq)
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        let segments = self.segments.current();
        segments.iter().map(|segment| segment.bytes()).sum()
    }

    /// Frames from `from_seq` on and below `below_seq`, until they are
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
                // Dropped between our look at the list and now.
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
    /// Takes what the segment has; whether to go on with the next.
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
