//! Every commit that every owner ever signed, and what it did.
//!
//! A commit names its parent, so that a repository that was restored from a
//! backup and went another way keeps both ways. States are folded from
//! operations, never read from trees: this is the oracle for trees.

use std::collections::{BTreeMap, HashMap};

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev};

use super::repo::{Change, NewCommit};

#[derive(Debug, Clone)]
pub struct CommitTruth {
    pub rev: Rev,
    pub commit: Cid,
    pub data: Cid,
    /// The commit before it, as an index into the same list.
    pub parent: Option<usize>,
    pub changes: Vec<Change>,
    /// The key that signed it, as did:key.
    pub key: String,
    pub host: usize,
}

#[derive(Debug, Default)]
pub struct RepoTruth {
    pub commits: Vec<CommitTruth>,
    /// The commit that the account's host stands at.
    pub head: Option<usize>,
}

#[derive(Debug, Default)]
pub struct History(HashMap<Did, RepoTruth>);

impl History {
    pub fn append(&mut self, did: &Did, made: &NewCommit, key: String, host: usize) {
        let repo = self.0.entry(did.clone()).or_default();
        repo.commits.push(CommitTruth {
            rev: made.rev,
            commit: made.commit,
            data: made.data,
            parent: repo.head,
            changes: made.changes.clone(),
            key,
            host,
        });
        repo.head = Some(repo.commits.len() - 1);
    }

    pub fn repo(&self, did: &Did) -> Option<&RepoTruth> {
        self.0.get(did)
    }

    /// Goes back to an earlier commit.
    pub fn set_head(&mut self, did: &Did, head: usize) {
        if let Some(repo) = self.0.get_mut(did) {
            repo.head = Some(head);
        }
    }
}

impl RepoTruth {
    /// Where the commit with this rev is.
    pub fn find(&self, rev: Rev) -> Option<usize> {
        self.commits.iter().rposition(|commit| commit.rev == rev)
    }

    /// The commit `steps` before the head, on the way that the head came.
    pub fn back(&self, steps: usize) -> Option<usize> {
        let mut at = self.head?;
        for _ in 0..steps {
            at = self.commits[at].parent?;
        }
        Some(at)
    }

    /// The last commit on the head's way whose rev is not above this one.
    pub fn at_or_before(&self, rev: Rev) -> Option<usize> {
        let mut at = self.head?;
        while self.commits[at].rev > rev {
            at = self.commits[at].parent?;
        }
        Some(at)
    }

    /// All records after a commit.
    pub fn records(&self, at: usize) -> BTreeMap<String, Cid> {
        let mut way = Vec::new();
        let mut next = Some(at);
        while let Some(at) = next {
            way.push(at);
            next = self.commits[at].parent;
        }
        let mut records = BTreeMap::new();
        for at in way.into_iter().rev() {
            for change in &self.commits[at].changes {
                match change.cid {
                    Some(cid) => records.insert(change.path.clone(), cid),
                    None => records.remove(&change.path),
                };
            }
        }
        records
    }
}
