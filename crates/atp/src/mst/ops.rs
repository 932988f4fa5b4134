//! Undoes or applies the operations of a commit on a partial tree.
//!
//! [`invert`] is the proof behind every live commit: it undoes each operation on the tree
//! that the commit signs, and the result must be the tree of the previous commit. Whether
//! the nodes of the event suffice can depend on the order of undoing. The descending
//! order of paths needs the fewest nodes and is tried first, then other orders. A missing
//! node and a wrong operation are different answers.

use super::tree::{Blocks, SourceError, Tree, TreeError};
use crate::cid::Cid;

/// One operation of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op<'a> {
    pub path: &'a str,
    pub action: OpAction,
}

/// The effect of an operation, with the CIDs that prove it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpAction {
    Create { cid: Cid },
    Update { cid: Cid, prev: Cid },
    Delete { prev: Cid },
}

impl OpAction {
    /// The CID of the record that the operation wrote.
    pub fn cid(&self) -> Option<&Cid> {
        match self {
            OpAction::Create { cid } | OpAction::Update { cid, .. } => Some(cid),
            OpAction::Delete { .. } => None,
        }
    }
}

/// Why operations do not lead from one tree to the other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpsError {
    /// Not a verdict: with more nodes the operations may turn out right or wrong.
    #[error("the proof is incomplete: node {0} is missing")]
    Incomplete(Cid),
    #[error("operation on '{path}' does not fit the tree: {error}")]
    Tree { path: String, error: TreeError },
    #[error("operation on '{path}' names {said}, but the tree holds {found}")]
    Value { path: String, said: Cid, found: Cid },
    #[error("undoing the operations does not lead to the previous tree")]
    OtherRoot,
    /// Not a verdict: the source failed.
    #[error(transparent)]
    Source(SourceError),
}

/// Undoes `ops` on the tree `root` and checks that the result is `before`.
pub fn invert(root: Cid, before: Cid, ops: &[Op<'_>], source: &dyn Blocks) -> Result<(), OpsError> {
    if ops.is_empty() {
        return if root == before {
            Ok(())
        } else {
            Err(OpsError::OtherRoot)
        };
    }
    let mut order: Vec<&Op<'_>> = ops.iter().collect();
    order.sort_unstable_by(|a, b| b.path.cmp(a.path));
    let mut result = invert_in_order(root, before, &order, source);
    for deletes_first in [true, false] {
        if !matches!(result, Err(OpsError::Incomplete(_))) || ops.len() == 1 {
            break;
        }
        order.sort_by_key(|op| {
            let delete = matches!(op.action, OpAction::Delete { .. });
            (deletes_first && !delete, op.path)
        });
        result = invert_in_order(root, before, &order, source);
    }
    result
}

fn invert_in_order(
    root: Cid,
    before: Cid,
    ops: &[&Op<'_>],
    source: &dyn Blocks,
) -> Result<(), OpsError> {
    let mut tree = Tree::open(root, source);
    for op in ops {
        undo(&mut tree, op)?;
    }
    if tree.finish(&mut |_, _| ()) == before {
        Ok(())
    } else {
        Err(OpsError::OtherRoot)
    }
}

fn undo(tree: &mut Tree<'_>, op: &Op<'_>) -> Result<(), OpsError> {
    let key = op.path.as_bytes();
    let (said, found) = match op.action {
        OpAction::Create { cid } => (cid, tree.remove(key)),
        OpAction::Update { cid, prev } => (cid, tree.update(key, prev)),
        OpAction::Delete { prev } => (prev, tree.insert(key, prev).map(|()| prev)),
    };
    expect(op.path, said, found)
}

fn expect(path: &str, said: Cid, found: Result<Cid, TreeError>) -> Result<(), OpsError> {
    match found {
        Ok(found) if found == said => Ok(()),
        Ok(found) => Err(OpsError::Value {
            path: path.to_owned(),
            said,
            found,
        }),
        Err(error) => Err(classify(path, error)),
    }
}

fn classify(path: &str, error: TreeError) -> OpsError {
    match error {
        TreeError::Missing(cid) => OpsError::Incomplete(cid),
        TreeError::Source(error) => OpsError::Source(error),
        error => OpsError::Tree {
            path: path.to_owned(),
            error,
        },
    }
}

/// Applies `ops` to the tree `before` and returns the resulting root. New nodes go to the
/// sink. A mirror that holds all nodes can check any commit this way.
pub fn apply(
    before: Cid,
    ops: &[Op<'_>],
    source: &dyn Blocks,
    sink: &mut dyn FnMut(&Cid, &[u8]),
) -> Result<Cid, OpsError> {
    let mut tree = Tree::open(before, source);
    for op in ops {
        let key = op.path.as_bytes();
        let (said, found) = match op.action {
            OpAction::Create { cid } => (cid, tree.insert(key, cid).map(|()| cid)),
            OpAction::Update { cid, prev } => (prev, tree.update(key, cid)),
            OpAction::Delete { prev } => (prev, tree.remove(key)),
        };
        expect(op.path, said, found)?;
    }
    Ok(tree.finish(sink))
}
