//! The Merkle search tree: the shape of a repository, as a pure function of its (path,
//! CID) pairs.
//!
//! - `node`: decodes one node strictly; the height of a key.
//! - `build`: builds nodes and root from sorted keys, in one pass, with one
//!   open node per level.
//! - `built`: a whole tree in memory, as it was built.
//! - `walk`: walks a whole tree of blocks in key order and checks every rule.
//! - `tree`: a partial tree: insert, update, remove, and the resulting root.
//! - `ops`: undoes or applies the operations of a commit.
//! - `way`: the nodes from the root to one key, as a proof of the key.
//! - `diff`: compares two sorted sets of keys.

mod build;
mod built;
mod diff;
mod node;
mod ops;
mod tree;
mod walk;
mod way;

pub use build::{BuildError, Builder, ClosedNode, Proof, record_proof, root};
pub use built::{Built, Met};
pub use diff::{Change, diff};
pub use node::{NodeError, common_prefix, key_height};
pub use ops::{Op, OpAction, OpsError, apply, invert};
pub use tree::{Blocks, SourceError, Tree, TreeError};
pub use walk::{TreeKeys, Values, Visit, WalkStats, walk};
pub use way::{Way, way_down};

use crate::cid::Cid;

/// The root of a repository without records: the CID of the empty node.
pub fn empty_root() -> Cid {
    Cid::dag_cbor(&build::EMPTY_NODE)
}
