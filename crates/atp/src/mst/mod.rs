//! The Merkle search tree: the shape of a repository, as a pure function of
//! its (path, CID) pairs.
//!
//! - [`node`](mod@node): one node, strictly decoded; key heights.
//! - [`build`](mod@build): sorted keys to nodes and root, in one pass, holding
//!   one open node per level.
//! - [`built`](mod@built): a whole tree in memory, as it was built.
//! - [`walk`](mod@walk): a whole tree of blocks to sorted keys, every rule checked.
//! - [`tree`](mod@tree): a tree of which only some nodes are there: insert,
//!   update, remove, and the root that results.
//! - [`ops`](mod@ops): a commit's operations, undone or applied.
//! - [`way`](mod@way): from the root to one key, as a proof of it.
//! - [`diff`](mod@diff): what changed between two sorted key sets.

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
pub use walk::{Values, Visit, WalkStats, walk};
pub use way::{Way, way_down};

use crate::cid::Cid;

/// The root of a repository without records: the CID of the empty node.
pub fn empty_root() -> Cid {
    Cid::dag_cbor(&build::EMPTY_NODE)
}
