//! Every block that ever existed in the network, by CID.
//!
//! One store for all repositories: blocks are named by their content, so
//! sharing costs nothing and an old tree can always be walked again. Nothing is
//! ever removed; a long run with traffic grows by a few kB per commit.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;
use gapless_atp::cid::Cid;
use gapless_atp::mst::{self, SourceError};

#[derive(Debug, Default)]
pub struct BlockStore(HashMap<Cid, Bytes>);

impl BlockStore {
    /// Keeps a DAG-CBOR block and gives its CID.
    pub fn put(&mut self, block: &[u8]) -> Cid {
        let cid = Cid::dag_cbor(block);
        self.put_as(cid, block);
        cid
    }

    /// Keeps a block whose CID is known.
    pub fn put_as(&mut self, cid: Cid, block: &[u8]) {
        self.0
            .entry(cid)
            .or_insert_with(|| Bytes::copy_from_slice(block));
    }

    pub fn get(&self, cid: &Cid) -> Option<&Bytes> {
        self.0.get(cid)
    }
}

impl mst::Blocks for BlockStore {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        Ok(self.get(cid).map(|block| Cow::Borrowed(&block[..])))
    }
}
