//! Blocks of a snapshot: from the CAR and, if the CAR is a difference, from the tree of
//! the held records.
//!
//! Every block hashes to its CID: blocks of a CAR were hashed on arrival, blocks of the
//! held tree when the tree was built.

use std::borrow::Cow;

use gapless_atp::cid::Cid;
use gapless_atp::mst::{Blocks, SourceError};

use crate::repair::held_tree::HeldTree;
use crate::repair::spill::SpilledCar;

/// The nodes of a snapshot, by CID.
#[derive(Clone, Copy)]
pub(crate) struct BlockSource<'a> {
    car: &'a SpilledCar,
    held: Option<&'a HeldTree>,
}

impl<'a> BlockSource<'a> {
    pub(crate) fn new(car: &'a SpilledCar, held: Option<&'a HeldTree>) -> BlockSource<'a> {
        BlockSource { car, held }
    }
}

impl Blocks for BlockSource<'_> {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        let block = self.car.block(cid);
        let block = block.map_err(|error| SourceError(error.to_string()))?;
        let held = || self.held.and_then(|held| held.node(cid));
        Ok(block.or_else(|| held().map(Cow::Borrowed)))
    }
}
