//! The events of the world: owners write, move, change keys and delete accounts; hosts lose
//! data, and streams carry forged commits.

use std::sync::Arc;

use gapless_atp::cid::Cid;
use gapless_atp::syntax::Tid;
use gapless_core::ledger::Account;

use super::commit::value;
use super::directory::Document;
use super::{Body, Commit, Fault, OwnerId, PdsId, Place, Records, World};

pub(crate) const PATHS: [&str; 6] = [
    "app.test.like/a",
    "app.test.like/b",
    "app.test.post/a",
    "app.test.post/b",
    "app.test.post/c",
    "org.other/a",
];

impl World {
    /// Creates the next commit of a repository on a host, without adding it.
    pub(crate) fn next_commit(
        &mut self,
        owner: OwnerId,
        host: PdsId,
        after: Records,
    ) -> Arc<Commit> {
        let hosted = &self.pds[host].repos[&owner];
        let key = hosted.key;
        let before = hosted.line.last().map(|last| last.records.clone());
        let rev = self.next_rev();
        let before = before.unwrap_or_default();
        Arc::new(Commit::new(owner, rev, &before, after, Some(key)))
    }

    /// A commit of an owner, signed with the key of the true host, that leads to these records.
    pub fn commit_of(&mut self, owner: OwnerId, before: &Records, after: Records) -> Arc<Commit> {
        let key = self.owners[owner].document().key;
        let rev = self.next_rev();
        Arc::new(Commit::new(owner, rev, before, after, Some(key)))
    }

    /// Makes a commit the head of its repository on a host.
    pub fn keep(&mut self, host: PdsId, commit: Arc<Commit>) {
        self.signed.insert(commit.head.commit, commit.clone());
        let stale = self.strikes(Fault::StaleListing);
        let Some(hosted) = self.pds[host].repos.get_mut(&commit.owner) else {
            return;
        };
        if !stale {
            hosted.listed = None;
        } else if hosted.listed.is_none() {
            hosted.listed = hosted.line.last().map(|last| last.named());
        }
        hosted.line.push(commit);
    }

    fn changed(&mut self, records: &Records) -> Records {
        let mut after = records.clone();
        for _ in 0..self.rng.between(1, 2) {
            let path = PATHS[self.rng.below(PATHS.len())];
            let delete = after.contains_key(path) && self.rng.per_mille(450);
            if delete {
                after.remove(path);
            } else {
                // Few different values, so that two paths can share a value and a
                // value can return.
                let value = value(self.rng.draw() as u8);
                after.insert(path.to_owned(), Cid::dag_cbor(&value));
            }
        }
        after
    }

    /// Lets the owner write at the true host. Returns whether that was possible.
    pub fn write(&mut self, owner: OwnerId) -> bool {
        match self.true_host(owner) {
            Some(host) => self.write_at(owner, host),
            None => false,
        }
    }

    pub fn write_at(&mut self, owner: OwnerId, host: PdsId) -> bool {
        let Some(hosted) = self.pds[host].repos.get(&owner) else {
            return false;
        };
        if hosted.account != Account::Active || hosted.vanished {
            return false;
        }
        let before = hosted.line.last().map(|last| last.records.clone());
        let before = before.unwrap_or_default();
        let after = if self.strikes(Fault::EmptyCommit) {
            Records::clone(&before)
        } else {
            self.changed(&before)
        };
        let commit = self.next_commit(owner, host, after);
        self.keep(host, commit.clone());
        self.tell_commit(host, commit);
        true
    }

    /// Sends a commit, possibly with a fault.
    pub(crate) fn tell_commit(&mut self, host: PdsId, commit: Arc<Commit>) {
        let owner = commit.owner;
        if self.strikes(Fault::Omitted) {
            self.lie(owner, "a host left an event out");
            return;
        }
        if self.strikes(Fault::Garbage) {
            return self.emit(host, owner, Body::Garbage);
        }
        if self.strikes(Fault::Unreadable) {
            return self.emit(host, owner, Body::Unreadable);
        }
        let too_big = self.strikes(Fault::TooBig);
        let proved = !self.strikes(Fault::Legacy);
        let mut ops = commit.ops.clone();
        if too_big {
            ops = Arc::default();
        } else if !ops.is_empty() && self.strikes(Fault::OpLeftOut) {
            ops = ops[1..].into();
        }
        let body = Body::Commit {
            commit,
            ops,
            proved,
            too_big,
        };
        self.emit(host, owner, body);
    }

    /// Puts an event into a host's stream.
    pub fn emit(&mut self, host: PdsId, owner: OwnerId, body: Body) {
        let frame = self.frame(owner, body);
        let swap = self.pds[host].log.held_back.is_none() && self.strikes(Fault::Swapped);
        let log = &mut self.pds[host].log;
        if swap {
            log.held_back = Some(frame)
        } else {
            let swapped = log.push(frame);
            // A reset between the two events hides the one that was sent too early.
            if swapped {
                self.lie(owner, "two events came in the wrong order");
            }
        }
    }

    pub(crate) fn sync_event(&mut self, owner: OwnerId) {
        let Some(host) = self.true_host(owner) else {
            return;
        };
        let Some((commit, Account::Active)) = self.truth(owner) else {
            return;
        };
        let commit = commit.clone();
        self.emit(host, owner, Body::Sync { commit });
    }

    /// Sends a commit that the host then loses.
    pub fn phantom(&mut self, owner: OwnerId) {
        if self.write(owner) {
            self.roll_back(owner, 1);
        }
    }

    /// Takes the last commits of a repository back on its host.
    pub fn roll_back(&mut self, owner: OwnerId, commits: usize) {
        let Some(host) = self.true_host(owner) else {
            return;
        };
        let Some(hosted) = self.pds[host].repos.get_mut(&owner) else {
            return;
        };
        let keep = hosted.line.len().saturating_sub(commits).max(1);
        hosted.line.truncate(keep);
        hosted.listed = None;
        self.lie(owner, "the host lost commits");
    }

    /// Restores a host from a backup: every repository loses some commits.
    pub(crate) fn restore_backup(&mut self, host: PdsId) {
        let owners: Vec<OwnerId> = self.pds[host].repos.keys().copied().collect();
        for owner in owners {
            if self.true_host(owner) == Some(host) {
                let lost = self.rng.below(3);
                self.roll_back(owner, lost);
            }
        }
        self.pds[host].log.life += 1;
    }

    /// Moves an account to another host. The directory's answer may lag.
    pub fn migrate(&mut self, owner: OwnerId, to: PdsId) {
        let Some(from) = self.true_host(owner) else {
            return;
        };
        let Some((_, Account::Active)) = self.truth(owner) else {
            return;
        };
        if from == to || self.pds[from].repos[&owner].vanished {
            return;
        }
        let mut imported = self.pds[from].repos[&owner].clone();
        let late = self.strikes(Fault::LateWrite);
        if late {
            self.write_at(owner, from);
        }
        imported.key += 1;
        imported.listed = None;
        if self.strikes(Fault::EmptyListing) {
            let rev = Tid::from_micros(self.now.0, 1);
            let empty = Commit::new(owner, rev, &Records::new(), Records::new(), None);
            imported.listed = Some(empty.named());
        }
        let key = imported.key;
        self.pds[to].repos.insert(owner, imported);
        let lags = self.strikes(Fault::DirectoryStale);
        let found = &mut self.owners[owner];
        found.documents.push(Document {
            host: Some(to),
            key,
        });
        found.lags = lags;
        self.lie(owner, "it moved");
        self.announce(owner, from, to);
    }

    fn announce(&mut self, owner: OwnerId, from: PdsId, to: PdsId) {
        let head = self.pds[to].repos[&owner].line.last().cloned();
        self.emit(to, owner, Body::Identity);
        self.emit(to, owner, Body::Account(Account::Active));
        if let Some(commit) = head {
            self.emit(to, owner, Body::Sync { commit });
        }
        if self.rng.per_mille(700) {
            if let Some(old) = self.pds[from].repos.get_mut(&owner) {
                old.account = Account::Deactivated;
            }
            self.emit(from, owner, Body::Account(Account::Deactivated));
        }
    }

    /// Changes the owner's key at the true host.
    pub fn change_key(&mut self, owner: OwnerId) {
        let Some(host) = self.true_host(owner) else {
            return;
        };
        let old_head = self.strikes(Fault::OldKeyHead);
        let document = self.owners[owner].document();
        let key = document.key + 1;
        let lags = self.strikes(Fault::DirectoryStale);
        let found = &mut self.owners[owner];
        found.documents.push(Document { key, ..document });
        found.lags = lags;
        if let Some(hosted) = self.pds[host].repos.get_mut(&owner) {
            hosted.key = key;
        }
        self.emit(host, owner, Body::Identity);
        if !old_head {
            self.write(owner);
        }
    }

    /// Changes the account's state, possibly without an event.
    pub fn set_account(&mut self, owner: OwnerId, account: Account) {
        let Some(host) = self.true_host(owner) else {
            return;
        };
        let Some(hosted) = self.pds[host].repos.get_mut(&owner) else {
            return;
        };
        hosted.account = account;
        hosted.forgotten = false;
        if account == Account::Deleted {
            self.deleted.insert(owner);
            if self.strikes(Fault::Forgotten)
                && let Some(hosted) = self.pds[host].repos.get_mut(&owner)
            {
                hosted.forgotten = true;
            }
        }
        if self.strikes(Fault::AccountLost) {
            self.lie(owner, "an account's event was left out");
            return;
        }
        self.emit(host, owner, Body::Account(account));
    }

    /// Makes the host deny that it has the repository, or find it again.
    pub fn set_vanished(&mut self, owner: OwnerId, vanished: bool) {
        let Some(host) = self.true_host(owner) else {
            return;
        };
        if let Some(hosted) = self.pds[host].repos.get_mut(&owner) {
            hosted.vanished = vanished;
            self.denied.insert(owner);
            self.lie(owner, "it vanished, or came back");
        }
    }

    /// Makes the host lose everything, its sequence numbers included.
    pub fn wipe(&mut self, host: PdsId) {
        if self.pds[host].lost.is_some() {
            return;
        }
        let lost = std::mem::take(&mut self.pds[host].repos);
        for owner in lost.keys() {
            self.lies.push(super::Lie {
                owner: *owner,
                what: "its host was wiped",
                relay: None,
            });
        }
        self.pds[host].lost = Some(lost);
        self.pds[host].log.restart(0);
    }

    /// Restores a wiped host.
    pub fn unwipe(&mut self, host: PdsId) {
        let Some(lost) = self.pds[host].lost.take() else {
            return;
        };
        for (owner, hosted) in lost {
            self.lie(owner, "its host was restored");
            self.pds[host].repos.entry(owner).or_insert(hosted);
        }
    }

    /// Sends a commit that the owner did not sign.
    pub fn forge(&mut self, owner: OwnerId, place: Place) {
        let Some((head, _)) = self.truth(owner) else {
            return;
        };
        let before = head.records.clone();
        let mut after = Records::clone(&before);
        after.insert("app.test.post/forged".to_owned(), Cid::dag_cbor(b"forged"));
        let ahead = [0, 1, 50_000_000, 3_600_000_000];
        let ahead = ahead[self.rng.below(ahead.len())];
        let rev = Tid::from_micros(self.now.0 + ahead, 7);
        let commit = Arc::new(Commit::new(owner, rev, &before, after, None));
        let body = if self.rng.per_mille(700) {
            Body::Commit {
                ops: commit.ops.clone(),
                commit,
                proved: true,
                too_big: false,
            }
        } else {
            Body::Sync { commit }
        };
        let frame = self.frame(owner, body);
        self.log_mut(place).push(frame);
    }

    /// Makes a host send an event of an account that does not live there.
    pub(crate) fn misroute(&mut self, owner: OwnerId, host: PdsId) {
        let Some(home) = self.true_host(owner) else {
            return;
        };
        let Some(hosted) = self.pds[home].repos.get(&owner) else {
            return;
        };
        if home == host || hosted.line.is_empty() {
            return;
        }
        let line = hosted.line.clone();
        let commit = line[self.rng.below(line.len())].clone();
        let body = match self.rng.below(4) {
            0 => Body::Sync { commit },
            1 => Body::Account(Account::Deactivated),
            _ => Body::Commit {
                ops: commit.ops.clone(),
                commit,
                proved: true,
                too_big: false,
            },
        };
        let frame = self.frame(owner, body);
        self.pds[host].log.push(frame);
    }

    /// Brings the listing of a host up to date.
    pub(crate) fn refresh_listing(&mut self, host: PdsId) {
        for hosted in self.pds[host].repos.values_mut() {
            hosted.listed = None;
        }
    }

    /// Ends all faults and restores everything that hosts have lost.
    pub fn heal(&mut self) {
        self.faults.heal();
        for owner in 0..self.owners.len() {
            self.owners[owner].lags = false;
        }
        for host in 0..self.pds.len() {
            self.unwipe(host);
            self.pds[host].down = false;
            self.pds[host].log.release();
            // An imported listing stays until the next write.
            for hosted in self.pds[host].repos.values_mut() {
                let signed = &self.signed;
                hosted
                    .listed
                    .take_if(|listed| signed.contains_key(&listed.commit));
            }
            let gone: Vec<OwnerId> = self.pds[host]
                .repos
                .iter()
                .filter(|(_, hosted)| hosted.vanished)
                .map(|(owner, _)| *owner)
                .collect();
            for owner in gone {
                self.lie(owner, "it came back");
                if let Some(hosted) = self.pds[host].repos.get_mut(&owner) {
                    hosted.vanished = false;
                }
            }
        }
    }
}
