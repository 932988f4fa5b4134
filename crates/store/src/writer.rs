//! The disk's side of a group: makes it durable, in the one right order.
//!
//! Frames first, then the batch that names them, then the acknowledged head
//! beside the engine; only then may anybody see it or be told. Whatever fails on
//! the way latches: nothing is answered as durable that may not be, and nothing
//! is tried twice.

use std::sync::Arc;

use crate::engine::{Engine, View};
use crate::error::StoreError;
use crate::group::Group;

/// How far the store is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurableHead {
    pub batch: u64,
    /// Every log number below this one is durable and can be read.
    pub next_seq: u64,
}

/// Whether there is room to go on. Asked before a group is applied: what was
/// applied must be written, because later groups stand on it.
pub trait Room: Send {
    fn check(&mut self) -> Result<(), StoreError>;

    /// So many bytes are on their way to the disk.
    fn taken(&mut self, bytes: u64);
}

/// What is done beside the engine's own batch.
pub trait Beside: Send {
    /// Who knows how much room there is.
    fn room(&mut self) -> Box<dyn Room>;

    /// Makes frames durable, each under its log number, in order.
    fn keep_frames(&mut self, frames: &[(u64, Vec<u8>)]) -> Result<(), StoreError>;

    /// Takes the bytes of frames away for good, by their numbers. Those that are not
    /// there are gone already.
    fn redact_frames(&mut self, _numbers: &[u64]) -> Result<(), StoreError> {
        Ok(())
    }

    /// Writes down outside the engine that a batch is about to be acknowledged.
    fn acknowledge(&mut self, head: DurableHead) -> Result<(), StoreError>;

    /// The last of it, before the end.
    fn close(&mut self) -> Result<(), StoreError>;
}

/// Nothing is beside the engine, and there is always room.
pub struct Nothing;

impl Room for Nothing {
    fn check(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn taken(&mut self, _: u64) {}
}

impl Beside for Nothing {
    fn room(&mut self) -> Box<dyn Room> {
        Box::new(Nothing)
    }

    fn keep_frames(&mut self, _: &[(u64, Vec<u8>)]) -> Result<(), StoreError> {
        Ok(())
    }

    fn acknowledge(&mut self, _: DurableHead) -> Result<(), StoreError> {
        Ok(())
    }

    fn close(&mut self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// The one owner of an engine and of what lies beside it.
pub(crate) struct Writer {
    engine: Box<dyn Engine>,
    beside: Box<dyn Beside>,
    /// Why nothing is written any more.
    latched: Option<StoreError>,
}

impl Writer {
    pub fn new(engine: Box<dyn Engine>, beside: Box<dyn Beside>) -> Writer {
        Writer {
            engine,
            beside,
            latched: None,
        }
    }

    pub fn room(&mut self) -> Box<dyn Room> {
        self.beside.room()
    }

    pub fn snapshot(&self) -> Arc<dyn View> {
        self.engine.snapshot()
    }

    /// Makes a group durable. Returns everything written so far.
    pub fn write(&mut self, group: &Group) -> Result<Arc<dyn View>, StoreError> {
        if let Some(failure) = &self.latched {
            return Err(failure.clone());
        }
        match self.try_write(group) {
            Ok(()) => Ok(self.engine.snapshot()),
            Err(failure) => {
                // What comes after stands on this: there is no second try.
                let failure = match failure.is_final() {
                    true => failure,
                    false => StoreError::System(failure.to_string().into()),
                };
                self.latched = Some(failure.clone());
                Err(failure)
            }
        }
    }

    fn try_write(&mut self, group: &Group) -> Result<(), StoreError> {
        if group.is_empty() {
            return Ok(());
        }
        if !group.frames.is_empty() {
            self.beside.keep_frames(&group.frames)?;
        }
        if !group.redact.is_empty() {
            // Before the batch that says so: if it is never durable, it is done again.
            self.beside.redact_frames(&group.redact)?;
        }
        self.engine.commit(&group.batch)?;
        self.beside.acknowledge(group.head)
    }

    /// Ends in good order.
    pub fn close(mut self) -> Result<(), StoreError> {
        match self.latched.take() {
            Some(failure) => Err(failure),
            None => self.beside.close(),
        }
    }
}
