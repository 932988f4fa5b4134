//! A host: its repositories, its stream and its answers. Every answer may be old, cut or
//! refused. A dishonest answer that the mirror cannot detect is recorded as a lie for the
//! checker.

use std::collections::BTreeMap;
use std::sync::Arc;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::fetch::HeadAnswer;
use gapless_core::ledger::sweep::ListingEntry;
use gapless_core::ledger::{Account, NamedHead};

use super::commit::{difference, root};
use super::{Commit, Fault, Log, OwnerId, PdsId, Records, World};

/// A repository on one host.
#[derive(Debug, Clone)]
pub struct Hosted {
    /// The commits of the repository, the newest last.
    pub line: Vec<Arc<Commit>>,
    pub account: Account,
    /// The key that this host signs with.
    pub key: u32,
    /// The head in the listing, if it is not the present one.
    pub listed: Option<NamedHead>,
    /// Whether the host denies that it has the repository.
    pub vanished: bool,
    /// Whether the host no longer knows the account, which was deleted.
    pub forgotten: bool,
}

impl Hosted {
    pub fn new(key: u32) -> Hosted {
        Hosted {
            line: Vec::new(),
            account: Account::Active,
            key,
            listed: None,
            vanished: false,
            forgotten: false,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Pds {
    pub log: Log,
    pub repos: BTreeMap<OwnerId, Hosted>,
    /// The repositories that the host had before it was wiped.
    pub lost: Option<BTreeMap<OwnerId, Hosted>>,
    /// Whether the host answers no request.
    pub down: bool,
    /// The numbers of requests, answered or refused.
    pub asked: Asked,
}

/// The numbers of requests to a host, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asked {
    pub heads: u64,
    pub repos: u64,
    pub pages: u64,
}

/// A repository as a host serves it.
#[derive(Debug, Clone)]
pub struct Served {
    pub commit: Arc<Commit>,
    /// The records in the file.
    pub records: Arc<Records>,
}

impl Served {
    /// Whether the records hash to the commit's root.
    pub fn is_whole(&self) -> bool {
        root(&self.records) == self.commit.head.data
    }
}

/// The difference of a repository since some rev, as a host serves it.
#[derive(Debug, Clone)]
pub struct Difference {
    pub commit: Arc<Commit>,
    /// The new record at each changed path; `None` deletes.
    pub changes: BTreeMap<String, Option<Cid>>,
}

/// One entry of a listing.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    pub owner: OwnerId,
    pub entry: ListingEntry,
}

/// The error of a request that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed;

/// The number of entries in one page.
pub const PAGE: usize = 3;

impl World {
    fn request_fails(&mut self, host: PdsId) -> bool {
        self.pds[host].down || self.strikes(Fault::HttpFailure)
    }

    fn hosted(&self, host: PdsId, owner: OwnerId) -> Option<&Hosted> {
        let hosted = self.pds[host].repos.get(&owner)?;
        let there = !hosted.vanished && !hosted.forgotten && !hosted.line.is_empty();
        there.then_some(hosted)
    }

    /// Answers `getLatestCommit`, and `getRepoStatus` if the repository is not served.
    pub fn latest(&mut self, host: PdsId, owner: OwnerId) -> Result<HeadAnswer, Failed> {
        self.pds[host].asked.heads += 1;
        if self.request_fails(host) {
            return Err(Failed);
        }
        let Some(hosted) = self.hosted(host, owner) else {
            return Ok(HeadAnswer::State(Account::NotFound));
        };
        if hosted.account != Account::Active {
            return Ok(HeadAnswer::State(hosted.account));
        }
        let newest = hosted.line.len() - 1;
        let older = hosted.line[newest.saturating_sub(1)].named();
        let named = hosted.line[newest].named();
        if newest > 0 && self.strikes(Fault::StaleHead) {
            self.lie(owner, "a stale head");
            return Ok(HeadAnswer::Head(older));
        }
        Ok(HeadAnswer::Head(named))
    }

    /// Answers `getRepo` with the file, or with the account state that forbids it.
    pub fn repo(&mut self, host: PdsId, owner: OwnerId) -> Result<Result<Served, Account>, Failed> {
        let commit = match self.served(host, owner)? {
            Ok(commit) => commit,
            Err(state) => return Ok(Err(state)),
        };
        let mut records = commit.records.clone();
        if commit.key.is_some() && !records.is_empty() && self.strikes(Fault::CutRepo) {
            Arc::make_mut(&mut records).pop_last();
        }
        Ok(Ok(Served { commit, records }))
    }

    /// The commit to serve, or the account state that forbids it.
    fn served(
        &mut self,
        host: PdsId,
        owner: OwnerId,
    ) -> Result<Result<Arc<Commit>, Account>, Failed> {
        self.pds[host].asked.repos += 1;
        if self.request_fails(host) {
            return Err(Failed);
        }
        let Some(hosted) = self.hosted(host, owner) else {
            return Ok(Err(Account::NotFound));
        };
        if hosted.account != Account::Active {
            return Ok(Err(hosted.account));
        }
        let line = hosted.line.clone();
        let back = if line.len() > 1 && self.strikes(Fault::StaleRepo) {
            1 + self.rng.below((line.len() - 1).min(2))
        } else {
            0
        };
        let commit = line[line.len() - 1 - back].clone();
        if self.strikes(Fault::StrangersRepo) {
            let mut stranger = Commit::clone(&commit);
            stranger.key = None;
            return Ok(Ok(Arc::new(stranger)));
        }
        Ok(Ok(commit))
    }

    /// Answers `getRepo?since=` with the difference since a rev, by the host's own history,
    /// which may differ from the one that the mirror follows.
    pub(crate) fn repo_since(
        &mut self,
        host: PdsId,
        owner: OwnerId,
        since: Rev,
    ) -> Result<Result<Difference, Account>, Failed> {
        let commit = match self.served(host, owner)? {
            Ok(commit) => commit,
            Err(state) => return Ok(Err(state)),
        };
        let line = self.pds[host].repos[&owner].line.clone();
        let known = line.iter().filter(|old| old.head.rev <= since).count();
        let mut base = known.checked_sub(1);
        if line.len() > 1 && self.strikes(Fault::DifferenceFromElsewhere) {
            let other = self.rng.below(line.len() - 1);
            base = Some(other + usize::from(Some(other) >= base));
        }
        let nothing = Records::new();
        let base = base.map_or(&nothing, |base| &*line[base].records);
        let ops = difference(base, &commit.records).into_iter();
        let mut changes: BTreeMap<_, _> = ops.map(|op| (op.path, op.after)).collect();
        if !changes.is_empty() && self.strikes(Fault::DifferenceLacks) {
            changes.pop_first();
        }
        if !changes.is_empty() && self.strikes(Fault::DifferenceEmpty) {
            changes.clear();
        }
        Ok(Ok(Difference { commit, changes }))
    }

    /// Answers `listRepos` with the page after an account.
    pub fn list(&mut self, host: PdsId, after: Option<OwnerId>) -> Result<Vec<Line>, Failed> {
        self.pds[host].asked.pages += 1;
        if self.request_fails(host) {
            return Err(Failed);
        }
        let from = after.map_or(0, |owner| owner + 1);
        let owners: Vec<OwnerId> = self.pds[host]
            .repos
            .range(from..)
            .map(|(id, _)| *id)
            .collect();
        let mut page = Vec::new();
        for owner in owners {
            if page.len() == PAGE {
                break;
            }
            if let Some(line) = self.line(host, owner) {
                page.push(line);
            }
        }
        Ok(page)
    }

    fn line(&mut self, host: PdsId, owner: OwnerId) -> Option<Line> {
        let hosted = self.hosted(host, owner)?;
        if hosted.account == Account::Deleted {
            return None;
        }
        let (account, listed) = (hosted.account, hosted.listed);
        let head = hosted.line.last()?.named();
        if self.strikes(Fault::ShortListing) {
            return None;
        }
        if listed.is_some() {
            self.lie(owner, "a stale listing");
        }
        let named = listed.unwrap_or(head);
        Some(Line {
            owner,
            entry: ListingEntry { named, account },
        })
    }
}
