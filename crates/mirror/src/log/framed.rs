//! Reads rows of the log with their frames, one page at a time, for the firehose.
//!
//! The log determines the order; a frame belongs to the row whose first number it has. A page
//! reads only rows below the durable head of the view it is given, and at most [`PAGE_ROWS`] rows
//! and about [`PAGE_BYTES`] bytes. A reader keeps no view between two pages, so a reader that lags
//! holds nothing back.

use std::collections::VecDeque;
use std::sync::Arc;

use gapless_store::Store;
use gapless_store::error::StoreError;
use gapless_store::frames::{FramesError, StoredFrame};
use gapless_store::log_reader::{PageError, summaries_from};
use gapless_store::read_view::ReadView;
use gapless_store::table::log::LogRowSummary;

/// Bytes of a page, by the count of the reader's user; the last row may exceed this limit.
const PAGE_BYTES: usize = 1 << 20;
/// Rows of the log that a page reads, whether or not the reader's user needs them.
const PAGE_ROWS: usize = 4_096;

/// Why a page of the log cannot be read.
#[derive(Debug, Clone)]
pub enum FramedReadError {
    /// The next number is older than the window of kept frames.
    WindowPassed,
    Log(PageError),
}

impl From<StoreError> for FramedReadError {
    fn from(error: StoreError) -> FramedReadError {
        FramedReadError::Log(error.into())
    }
}

impl From<PageError> for FramedReadError {
    fn from(error: PageError) -> FramedReadError {
        match error {
            PageError::Trimmed { .. } => FramedReadError::WindowPassed,
            error => FramedReadError::Log(error),
        }
    }
}

/// The result of reading a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FramedPage {
    /// Every number below this one was read.
    pub next: u64,
    /// The log has more rows.
    pub more: bool,
}

/// Receives a row with its first number and the frame that is kept for it, and returns the bytes
/// that the row adds to the page.
pub type AddRow<'a> =
    dyn FnMut(u64, &LogRowSummary, Option<Vec<u8>>) -> Result<usize, StoreError> + 'a;

/// A position in the log, and the frames that were read ahead of it.
pub struct FramedReader {
    store: Arc<Store>,
    next: u64,
    /// Unused frames; every frame below `read_upto` was read.
    frames: VecDeque<StoredFrame>,
    read_upto: u64,
}

impl FramedReader {
    pub fn new(store: Arc<Store>, from: u64) -> FramedReader {
        FramedReader {
            store,
            next: from,
            frames: VecDeque::new(),
            read_upto: 0,
        }
    }

    /// The number that is read next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Passes the next rows to `add_row` until the page is full or the log ends.
    pub fn read_page(
        &mut self,
        view: &ReadView,
        add_row: &mut AddRow<'_>,
    ) -> Result<FramedPage, FramedReadError> {
        let end = view.counters()?.next_seq;
        if self.next < end {
            self.read_frames(end)?;
        }
        let (mut rows, mut bytes) = (0, 0);
        if self.next < self.read_upto {
            for row in summaries_from(view, self.next)? {
                let (first, row) = row?;
                if first >= self.read_upto || rows == PAGE_ROWS || bytes >= PAGE_BYTES {
                    break;
                }
                rows += 1;
                while self.frames.front().is_some_and(|frame| frame.seq < first) {
                    self.frames.pop_front();
                }
                let frame = self.frames.front().is_some_and(|frame| frame.seq == first);
                let frame = frame.then(|| self.frames.pop_front()).flatten();
                // A cursor may point into a row: its consumer has that row.
                if first >= self.next {
                    bytes += add_row(first, &row, frame.and_then(|frame| frame.bytes))?;
                }
                self.next = first.saturating_add(row.numbers);
            }
        }
        Ok(FramedPage {
            next: self.next,
            more: self.next < end,
        })
    }

    fn read_frames(&mut self, end: u64) -> Result<(), FramedReadError> {
        let Some(frames) = self.store.frames() else {
            return Err(FramedReadError::WindowPassed);
        };
        if self.next < frames.oldest_seq() {
            return Err(FramedReadError::WindowPassed);
        }
        if self.next < self.read_upto {
            return Ok(());
        }
        match frames.read(self.next, end, PAGE_BYTES) {
            Ok(page) => {
                self.read_upto = page.next_seq;
                self.frames = page.frames.into();
                Ok(())
            }
            Err(FramesError::Gone { .. }) => Err(FramedReadError::WindowPassed),
            Err(error) => Err(StoreError::from(error).into()),
        }
    }
}
