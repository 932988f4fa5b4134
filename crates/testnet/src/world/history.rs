//! Every commit that each owner signed, and its changes.
//!
//! A commit names its parent, so a repository that was restored from a backup and
//! continued differently keeps both branches. States are computed from operations, never
//! read from trees: the history is the oracle for trees.

use std::collections::{BTreeMap, HashMap};

use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev};

use super::repo::{Change, NewCommit};

/// A commit as its owner signed it.
#[derive(Debug, Clone)]
pub struct CommitTruth {
    pub rev: Rev,
    pub commit: Cid,
    pub data: Cid,
    /// The index of the previous commit in the same list.
    pub parent: Option<usize>,
    pub changes: Vec<Change>,
    /// The key that signed the commit, as did:key.
    pub key: String,
    pub host: usize,
}

/// All commits of one repository.
#[derive(Debug, Default)]
pub(crate) struct RepoTruth {
    pub commits: Vec<CommitTruth>,
    /// The index of the commit that is the head on the account's host.
    pub head: Option<usize>,
}

/// The commits of all repositories.
#[derive(Debug, Default)]
pub(crate) struct History(HashMap<Did, RepoTruth>);

impl History {
    pub(crate) fn append(&mut self, did: &Did, made: &NewCommit, key: String, host: usize) {
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

    pub(crate) fn repo(&self, did: &Did) -> Option<&RepoTruth> {
        self.0.get(did)
    }

    /// Sets the head to an earlier commit.
    pub(crate) fn set_head(&mut self, did: &Did, head: usize) {
        if let Some(repo) = self.0.get_mut(did) {
            repo.head = Some(head);
        }
    }
}

impl RepoTruth {
    /// The index of the last commit with this rev.
    pub(crate) fn find(&self, rev: Rev) -> Option<usize> {
        self.commits.iter().rposition(|commit| commit.rev == rev)
    }

    /// The index of the commit `steps` before the head, along the parents.
    pub(crate) fn back(&self, steps: usize) -> Option<usize> {
        let mut at = self.head?;
        for _ in 0..steps {
            at = self.commits[at].parent?;
        }
        Some(at)
    }

    /// The index of the last commit among the head and its ancestors whose rev is not
    /// above `rev`.
    pub(crate) fn at_or_before(&self, rev: Rev) -> Option<usize> {
        let mut at = self.head?;
        while self.commits[at].rev > rev {
            at = self.commits[at].parent?;
        }
        Some(at)
    }

    /// All records after the commit with the index `at`.
    pub(crate) fn records(&self, at: usize) -> BTreeMap<String, Cid> {
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
