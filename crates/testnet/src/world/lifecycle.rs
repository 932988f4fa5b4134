//! Changes to existing accounts: keys, hosts, states.

use gapless_atp::syntax::Did;

use super::account::{Hosted, Status};
use super::repo::{NewCommit, Write, WriteError};
use super::{ActionError, POST, World, encode_record};
use crate::plc::Operation;

impl World {
    /// Gives an account a new signing key. If `quiet`, only the directory shows the key:
    /// no event is sent, and the head stays signed by the old key.
    pub(crate) fn rotate_key(&mut self, did: &Did, quiet: bool) -> Result<(), ActionError> {
        self.change_key(did)?;
        self.publish(did);
        if !quiet {
            let account = self.account(did)?;
            let (host, handle) = (account.host, account.handle.clone());
            self.emit_identity(host, did, Some(handle));
            self.write(did, &[])?;
        }
        Ok(())
    }

    fn change_key(&mut self, did: &Did) -> Result<(), ActionError> {
        let curve = self.account(did)?.signing.public().curve();
        let key = self.rng.key(curve);
        if let Some(account) = self.accounts.get_mut(did) {
            account.keys.push(key.public().to_did_key());
            account.former = Some(std::mem::replace(&mut account.signing, key));
        }
        Ok(())
    }

    /// Publishes the present key, handle and host in the directory. A did:web is not in
    /// the directory; its document always shows them.
    fn publish(&mut self, did: &Did) {
        let (Some(account), Some(prev)) = (self.accounts.get(did), self.plc.head(did)) else {
            return;
        };
        let statement = self.statement(account);
        let operation = Operation::update(statement, Some(&prev), &account.rotation);
        self.plc.append(did, operation, self.clock.tick());
    }

    /// Ends an identity: the directory answers 410 from now on.
    pub(crate) fn tombstone(&mut self, did: &Did) -> Result<(), ActionError> {
        let account = self.account(did)?;
        let prev = self.plc.head(did);
        let prev = prev.ok_or_else(|| ActionError::NotInDirectory(did.clone()))?;
        let operation = Operation::tombstone(&prev, &account.rotation);
        let (host, now) = (account.host, self.clock.tick());
        self.plc.append(did, operation, now);
        self.emit_identity(host, did, None);
        Ok(())
    }

    /// Moves an account to another host, with a new key.
    ///
    /// The new host signs the repository again before it announces the account. With
    /// `import` it keeps the commit of the old key and announces it under another rev, as
    /// the reference PDS does after importRepo.
    pub(crate) fn migrate(
        &mut self,
        did: &Did,
        to: usize,
        import: bool,
    ) -> Result<(), ActionError> {
        let account = self.account(did)?;
        let (from, handle) = (account.host, account.handle.clone());
        if to >= self.hosts.len() {
            return Err(ActionError::NoHost(to));
        }
        if to == from {
            return Err(ActionError::SameHost(did.clone(), to));
        }
        let copy = self.hosts[from].accounts.get(did);
        let copy = copy.filter(|copy| copy.status.is_active());
        let mut repo = copy
            .map(|copy| copy.repo.clone())
            .ok_or_else(|| WriteError::Inactive(did.clone()))?;

        self.change_key(did)?;
        if let Some(account) = self.accounts.get_mut(did) {
            account.host = to;
        }
        self.publish(did);
        let rev = self.clock.rev();
        if import {
            repo.rev = rev;
        } else {
            let made = self.resign(did, &mut repo, rev)?;
            self.record(did, &made, to);
        }
        let status = Status::Active;
        self.hosts[to].put(did, Hosted { status, repo });
        self.emit_account(to, did, status);
        self.emit_identity(to, did, Some(handle));
        self.emit_sync(to, did);
        if let Some(old) = self.hosts[from].accounts.get_mut(did) {
            old.status = Status::Deactivated;
        }
        self.emit_account(from, did, Status::Deactivated);
        Ok(())
    }

    /// Makes the hosts that an account has left serve it as if it had stayed, without an
    /// event.
    pub(super) fn haunt(&mut self, did: &Did) -> Result<(), ActionError> {
        let home = self.account(did)?.host;
        let mut left = false;
        for (index, host) in self.hosts.iter_mut().enumerate() {
            if let Some(copy) = host.accounts.get_mut(did).filter(|_| index != home) {
                copy.status = Status::Active;
                left = true;
            }
        }
        left.then_some(()).ok_or(ActionError::NoAccount)
    }

    /// Makes a host that the account has left write once more, with the account's former
    /// key. The truth does not count the commit.
    pub(super) fn write_late(&mut self, did: &Did) -> Result<(), ActionError> {
        let account = self.account(did)?;
        let home = account.host;
        let key = account.former.clone().ok_or(ActionError::NoAccount)?;
        let copies = self.hosts.iter().enumerate();
        let mut left =
            copies.filter(|(index, host)| *index != home && host.accounts.contains_key(did));
        let from = left
            .next()
            .map(|(index, _)| index)
            .ok_or(ActionError::NoAccount)?;
        let rev = self.clock.rev();
        let made = match self.hosts[from].accounts.get_mut(did) {
            Some(copy) => copy.repo.commit(did, &key, rev, &[], &mut self.blocks)?,
            None => return Err(ActionError::NoAccount),
        };
        self.emit_commit(from, did, &made);
        Ok(())
    }

    /// Makes the host of a deleted account send one more commit, correctly signed: an
    /// event that was in flight, or a faulty host. The truth does not count the commit.
    pub(super) fn write_dead(&mut self, did: &Did, text: &str) -> Result<(), ActionError> {
        let account = self.account(did)?;
        let (host, key) = (account.host, account.signing.clone());
        let rev = self.clock.rev();
        let json = serde_json::json!({ "$type": POST, "text": text });
        let record = encode_record(&json).ok_or(ActionError::NoAccount)?;
        let path = format!("{POST}/{rev}");
        let writes = [Write::Create { path, record }];
        let made = match self.hosts[host].deleted.get_mut(did) {
            Some(copy) => copy
                .repo
                .commit(did, &key, rev, &writes, &mut self.blocks)?,
            None => return Err(ActionError::NoAccount),
        };
        self.emit_commit(host, did, &made);
        Ok(())
    }

    fn resign(
        &mut self,
        did: &Did,
        repo: &mut super::Repo,
        rev: gapless_atp::syntax::Rev,
    ) -> Result<NewCommit, WriteError> {
        let key = self.account(did)?.signing.clone();
        repo.commit(did, &key, rev, &[], &mut self.blocks)
    }

    /// Changes the state of an account on its host, and announces it.
    pub(crate) fn set_status(&mut self, did: &Did, status: Status) -> Result<(), ActionError> {
        let account = self.account(did)?;
        let (host, handle) = (account.host, account.handle.clone());
        if status.is_active()
            && let Some(copy) = self.hosts[host].deleted.remove(did)
        {
            self.hosts[host].put(did, copy);
        }
        let copy = self.hosts[host].accounts.get_mut(did);
        let copy = copy.ok_or_else(|| WriteError::Inactive(did.clone()))?;
        let before = std::mem::replace(&mut copy.status, status);
        self.clock.tick();
        if status == Status::Deleted {
            // A PDS removes the account's earlier events, then announces the deletion.
            self.hosts[host].feed.purge(did);
            if let Some(copy) = self.hosts[host].remove(did) {
                self.hosts[host].deleted.insert(did.clone(), copy);
            }
        }
        self.emit_account(host, did, status);
        if status.is_active() && before == Status::Deactivated {
            self.emit_identity(host, did, Some(handle));
            self.emit_sync(host, did);
        }
        Ok(())
    }
}
