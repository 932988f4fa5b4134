//! Where the nodes of a snapshot come from: the CAR first, and, when the CAR is
//! a difference, the tree that is held.
//!
//! Every block hashes to its CID: those of a CAR were hashed on arrival, those
//! of the held tree when it was built.

use std::borrow::Cow;

use gapless_atp::cid::Cid;
use gapless_atp::mst::{Blocks, SourceError};

use crate::repair::held_tree::HeldTree;
use crate::repair::spill::Fetched;

/// The nodes of a snapshot, by CID.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    fetched: &'a Fetched,
    held: Option<&'a HeldTree>,
}

impl<'a> Source<'a> {
    pub fn new(fetched: &'a Fetched, held: Option<&'a HeldTree>) -> Source<'a> {
        Source { fetched, held }
    }
}

impl Blocks for Source<'_> {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        let block = self.fetched.block(cid);
        let block = block.map_err(|error| SourceError(error.to_string()))?;
        let held = || self.held.and_then(|held| held.node(cid));
        Ok(block.or_else(|| held().map(Cow::Borrowed)))
    }
}
