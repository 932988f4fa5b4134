//! One repository on one host, and how a commit is made.
//!
//! [`Repo::commit`] applies writes, builds the new tree, signs it, and lists the blocks
//! that an event must carry so that a verifier can undo the operations. Writes are
//! checked before anything changes: a refused batch leaves no trace.

use std::collections::{BTreeMap, BTreeSet};

use gapless_atp::cid::Cid;
use gapless_atp::crypto::SigningKey;
use gapless_atp::mst::{self, Tree, TreeError};
use gapless_atp::repo::Commit;
use gapless_atp::syntax::{Did, Rev, split_path};

use super::blocks::BlockStore;

/// The most operations of one commit, as the protocol limits them.
pub(crate) const WRITES_PER_COMMIT: usize = 200;

/// A repository as its host holds it.
#[derive(Debug, Clone)]
pub(crate) struct Repo {
    pub commit: Cid,
    /// The rev that the host names. After an import it is not the signed one.
    pub rev: Rev,
    pub data: Cid,
    pub records: BTreeMap<String, Cid>,
}

/// One write that a client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    Create { path: String, record: Vec<u8> },
    Update { path: String, record: Vec<u8> },
    Delete { path: String },
}

impl Write {
    pub fn path(&self) -> &str {
        match self {
            Write::Create { path, .. } | Write::Update { path, .. } | Write::Delete { path } => {
                path
            }
        }
    }
}

/// The effect of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub path: String,
    pub cid: Option<Cid>,
    pub prev: Option<Cid>,
}

/// A new commit, with everything that an event says about it.
#[derive(Debug, Clone)]
pub struct NewCommit {
    pub commit: Cid,
    pub rev: Rev,
    pub since: Option<Rev>,
    pub data: Cid,
    pub prev_data: Option<Cid>,
    pub changes: Vec<Change>,
    /// The commit, the nodes that are new or needed for the proof, and the records.
    pub blocks: Vec<Cid>,
}

/// Why writes were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("{0} is not an account of this network")]
    NoAccount(String),
    #[error("{0} is not active on its host")]
    Inactive(Did),
    #[error("'{0}' is not a record path: a collection, a slash and a record key")]
    Path(String),
    #[error("'{0}' already exists")]
    Exists(String),
    #[error("'{0}' does not exist")]
    NotFound(String),
    #[error("'{0}' is written twice in one commit")]
    Twice(String),
    #[error("a commit takes at most {WRITES_PER_COMMIT} writes, not {0}")]
    TooMany(usize),
}

impl Repo {
    /// Makes the first commit of an account, without records.
    pub(crate) fn create(
        did: &Did,
        key: &SigningKey,
        rev: Rev,
        store: &mut BlockStore,
    ) -> (Repo, NewCommit) {
        let mut node = Vec::new();
        let data = Tree::open(mst::empty_root(), store).finish(&mut |_, block| {
            node = block.to_vec();
        });
        store.put_as(data, &node);
        let commit = store.put(&sign(did, key, rev, &data));
        let repo = Repo {
            commit,
            rev,
            data,
            records: BTreeMap::new(),
        };
        let made = NewCommit {
            commit,
            rev,
            since: None,
            data,
            prev_data: None,
            changes: Vec::new(),
            blocks: vec![commit, data],
        };
        (repo, made)
    }

    /// Applies writes and signs the result. Without writes the commit is empty.
    pub(crate) fn commit(
        &mut self,
        did: &Did,
        key: &SigningKey,
        rev: Rev,
        writes: &[Write],
        store: &mut BlockStore,
    ) -> Result<NewCommit, WriteError> {
        let changes = self.plan(writes)?;
        let (data, new_nodes) = self.build_tree(&changes, store);
        let mut nodes: BTreeSet<Cid> = cover(data, &changes, store);
        nodes.extend(new_nodes);
        for write in writes {
            if let Write::Create { record, .. } | Write::Update { record, .. } = write {
                store.put(record);
            }
        }
        let commit = store.put(&sign(did, key, rev, &data));
        let mut blocks = vec![commit];
        blocks.extend(nodes);
        let records: BTreeSet<Cid> = changes.iter().filter_map(|change| change.cid).collect();
        blocks.extend(records);
        let made = NewCommit {
            commit,
            rev,
            since: Some(self.rev),
            data,
            prev_data: Some(self.data),
            changes,
            blocks,
        };
        self.take(&made);
        Ok(made)
    }

    /// Makes a commit the state of this copy.
    fn take(&mut self, made: &NewCommit) {
        self.commit = made.commit;
        self.rev = made.rev;
        self.data = made.data;
        for change in &made.changes {
            match change.cid {
                Some(cid) => self.records.insert(change.path.clone(), cid),
                None => self.records.remove(&change.path),
            };
        }
    }

    fn plan(&self, writes: &[Write]) -> Result<Vec<Change>, WriteError> {
        if writes.len() > WRITES_PER_COMMIT {
            return Err(WriteError::TooMany(writes.len()));
        }
        let mut seen = BTreeSet::new();
        let mut changes = Vec::with_capacity(writes.len());
        for write in writes {
            let path = write.path();
            if split_path(path).is_err() {
                return Err(WriteError::Path(path.to_owned()));
            }
            if !seen.insert(path) {
                return Err(WriteError::Twice(path.to_owned()));
            }
            let prev = self.records.get(path).copied();
            let cid = match (write, prev) {
                (Write::Create { .. }, Some(_)) => {
                    return Err(WriteError::Exists(path.to_owned()));
                }
                (Write::Update { .. } | Write::Delete { .. }, None) => {
                    return Err(WriteError::NotFound(path.to_owned()));
                }
                (Write::Create { record, .. } | Write::Update { record, .. }, _) => {
                    Some(Cid::dag_cbor(record))
                }
                (Write::Delete { .. }, Some(_)) => None,
            };
            // Writing what is already there is not an operation.
            if cid != prev {
                let path = path.to_owned();
                changes.push(Change { path, cid, prev });
            }
        }
        Ok(changes)
    }

    /// Builds the new tree. Returns its root and its new nodes, which are added to the
    /// store.
    fn build_tree(&self, changes: &[Change], store: &mut BlockStore) -> (Cid, Vec<Cid>) {
        if changes.is_empty() {
            return (self.data, Vec::new());
        }
        let mut nodes = Vec::new();
        let mut tree = Tree::open(self.data, store);
        for change in changes {
            own(apply(&mut tree, change));
        }
        let data = tree.finish(&mut |cid, block| nodes.push((*cid, block.to_vec())));
        for (cid, block) in &nodes {
            store.put_as(*cid, block);
        }
        (data, nodes.into_iter().map(|(cid, _)| cid).collect())
    }
}

fn apply(tree: &mut Tree<'_>, change: &Change) -> Result<(), TreeError> {
    let key = change.path.as_bytes();
    match (change.cid, change.prev) {
        (Some(cid), None) => tree.insert(key, cid),
        (Some(cid), Some(_)) => tree.update(key, cid).map(drop),
        (None, _) => tree.remove(key).map(drop),
    }
}

/// The nodes that a verifier needs besides the new ones to undo the changes.
fn cover(data: Cid, changes: &[Change], store: &BlockStore) -> BTreeSet<Cid> {
    if changes.is_empty() {
        return BTreeSet::new();
    }
    let mut tree = Tree::open(data, store);
    for change in changes {
        own(tree.cover(change.path.as_bytes()));
    }
    tree.untouched().collect()
}

/// Unwraps a result on a tree of the network itself: the tree is whole and the writes
/// were checked, so an error is a bug.
fn own<T>(result: Result<T, TreeError>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the network's own tree is broken: {error}"),
    }
}

/// Encodes and signs a commit.
pub(crate) fn sign(did: &Did, key: &SigningKey, rev: Rev, data: &Cid) -> Vec<u8> {
    let signature = key.sign(&Commit::unsigned(did.as_str(), rev, data, None));
    Commit::encode(did.as_str(), rev, &signature, data, None)
}
