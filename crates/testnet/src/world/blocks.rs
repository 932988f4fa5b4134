//! Every block that ever existed in the network, by CID.
//!
//! All repositories share one store: blocks are named by their contents, so sharing costs
//! nothing, and an old tree can always be walked again. Nothing is ever removed; each
//! commit adds a few kB.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use gapless_atp::cid::Cid;
use gapless_atp::mst::{self, SourceError};

/// A store of blocks in memory.
#[derive(Debug, Default)]
pub(crate) struct BlockStore(HashMap<Cid, Bytes>);

impl BlockStore {
    /// Stores a DAG-CBOR block and returns its CID.
    pub(crate) fn put(&mut self, block: &[u8]) -> Cid {
        let cid = Cid::dag_cbor(block);
        self.put_as(cid, block);
        cid
    }

    /// Stores a block whose CID is already known.
    pub(crate) fn put_as(&mut self, cid: Cid, block: &[u8]) {
        self.0
            .entry(cid)
            .or_insert_with(|| Bytes::copy_from_slice(block));
    }

    pub(crate) fn get(&self, cid: &Cid) -> Option<&Bytes> {
        self.0.get(cid)
    }
}

impl mst::Blocks for BlockStore {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        Ok(self.get(cid).map(|block| Cow::Borrowed(&block[..])))
    }
}
