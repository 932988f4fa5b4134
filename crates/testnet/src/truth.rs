//! The truth: the contents of every repository at every rev.
//!
//! The truth is derived from the operations that owners signed, never read from a tree or
//! an event, so faults do not affect it. With more than [`HISTORY_REPOS`] repositories
//! the past is not kept: [`Truth::records_at`] then knows only the head, and
//! [`Truth::keeps_history`] returns false.
//!
//! [`HISTORY_REPOS`]: crate::config::HISTORY_REPOS

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use gapless_atp::cid::Cid;
use gapless_atp::syntax::{Did, Rev};
use serde_json::{Value as Json, json};

use crate::net::Net;
use crate::world::{CommitTruth, Status, World};

/// The records of a repository: each path with its CID and bytes.
pub type Records = BTreeMap<String, (Cid, Bytes)>;

/// The head of a repository on the host that its document names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The rev that the owner signed.
    pub rev: Rev,
    /// The rev that the host names. After an import it differs from the signed rev.
    pub host_rev: Rev,
    pub commit: Cid,
    pub data: Cid,
    pub host: usize,
    pub status: Status,
}

/// Reads the truth from the same process.
#[derive(Clone)]
pub struct Truth(pub(crate) Arc<Net>);

impl Truth {
    pub fn keeps_history(&self) -> bool {
        self.0.world().history.is_some()
    }

    /// All accounts in the order of their creation, including deleted ones.
    pub fn dids(&self) -> Vec<Did> {
        self.0.world().dids.clone()
    }

    /// The head of an account; `None` if the account is unknown or deleted.
    pub fn head(&self, did: &Did) -> Option<Head> {
        head(&self.0.world(), did)
    }

    pub fn status(&self, did: &Did) -> Option<Status> {
        self.0.world().status(did)
    }

    /// Every signing key that the account has had, as did:key, the present one last.
    pub fn keys(&self, did: &Did) -> Option<Vec<String>> {
        let world = self.0.world();
        Some(world.accounts.get(did)?.keys.clone())
    }

    pub fn handle(&self, did: &Did) -> Option<String> {
        let world = self.0.world();
        Some(world.accounts.get(did)?.handle.clone())
    }

    /// Every commit that the owner signed; `None` if no history is kept.
    pub fn commits(&self, did: &Did) -> Option<Vec<CommitTruth>> {
        let world = self.0.world();
        Some(world.history.as_ref()?.repo(did)?.commits.clone())
    }

    /// The records at a rev that the owner signed; `None` if the owner signed no such
    /// rev, or if it is not the head and no history is kept.
    pub fn records_at(&self, did: &Did, rev: Rev) -> Option<Records> {
        let world = self.0.world();
        let cids = cids_at(&world, did, rev)?;
        with_bytes(&world, &cids)
    }

    /// The records at the head; `None` if the account is unknown or deleted.
    pub fn records(&self, did: &Did) -> Option<Records> {
        let world = self.0.world();
        with_bytes(&world, &world.hosted(did)?.repo.records)
    }
}

fn head(world: &World, did: &Did) -> Option<Head> {
    let copy = world.hosted(did)?;
    let block = world.blocks.get(&copy.repo.commit)?;
    let signed = gapless_atp::repo::Commit::decode(block).ok()?;
    Some(Head {
        rev: signed.rev,
        host_rev: copy.repo.rev,
        commit: copy.repo.commit,
        data: copy.repo.data,
        host: world.accounts.get(did)?.host,
        status: copy.status,
    })
}

fn cids_at(world: &World, did: &Did, rev: Rev) -> Option<BTreeMap<String, Cid>> {
    match &world.history {
        Some(history) => {
            let repo = history.repo(did)?;
            Some(repo.records(repo.find(rev)?))
        }
        None => {
            let is_head = head(world, did)?.rev == rev;
            is_head.then(|| world.hosted(did).map(|copy| copy.repo.records.clone()))?
        }
    }
}

fn with_bytes(world: &World, cids: &BTreeMap<String, Cid>) -> Option<Records> {
    let mut records = Records::new();
    for (path, cid) in cids {
        records.insert(path.clone(), (*cid, world.blocks.get(cid)?.clone()));
    }
    Some(records)
}

/// All facts about an account except its records, as JSON.
pub(crate) fn repo_json(world: &World, did: &Did) -> Option<Json> {
    let account = world.accounts.get(did)?;
    let head = head(world, did);
    let history = world.history.as_ref().and_then(|all| all.repo(did));
    let commits = history.map(|repo| {
        let commits = repo.commits.iter().map(|commit| {
            let ops = commit.changes.iter().map(|change| {
                json!({
                    "path": change.path,
                    "cid": change.cid.map(|cid| cid.to_string()),
                    "prev": change.prev.map(|cid| cid.to_string()),
                })
            });
            json!({
                "rev": commit.rev.to_string(),
                "commit": commit.commit.to_string(),
                "data": commit.data.to_string(),
                "key": commit.key,
                "host": commit.host,
                "parent": commit.parent,
                "ops": ops.collect::<Vec<_>>(),
            })
        });
        commits.collect::<Vec<_>>()
    });
    Some(json!({
        "did": did.as_str(),
        "handle": account.handle,
        "host": account.host,
        "url": world.hosts[account.host].url,
        "status": world.status(did),
        "keys": account.keys,
        "rev": head.as_ref().map(|head| head.rev.to_string()),
        "host_rev": head.as_ref().map(|head| head.host_rev.to_string()),
        "commit": head.as_ref().map(|head| head.commit.to_string()),
        "data": head.as_ref().map(|head| head.data.to_string()),
        "history": commits.is_some(),
        "commits": commits,
    }))
}

/// The records at a rev, or at the head, as JSON: each path with its CID.
pub(crate) fn records_json(world: &World, did: &Did, rev: Option<Rev>) -> Option<Json> {
    let cids = match rev {
        Some(rev) => cids_at(world, did, rev)?,
        None => world.hosted(did)?.repo.records.clone(),
    };
    let pairs = cids.iter();
    let pairs = pairs.map(|(path, cid)| (path.clone(), Json::String(cid.to_string())));
    Some(Json::Object(pairs.collect()))
}
