//! Creates accounts.

use gapless_atp::crypto::{Curve, SigningKey};
use gapless_atp::syntax::{Did, DidError};

use super::account::{Account, Hosted, Status};
use super::records::Drawer;
use super::repo::{Repo, WriteError};
use super::{ActionError, World};
use crate::plc::{Operation, Statement};

/// The number of records of a commit while an account is filled, similar to what clients
/// send.
const FIRST_BATCH: usize = 20;

const NAMES: &[&str] = &[
    "alice", "bob", "carla", "dan", "emma", "frank", "gita", "hugo", "ines", "jonas", "kira",
    "leo", "mona", "nils", "olga", "pavel", "quinn", "rosa", "sven", "tara", "uma", "vito",
    "wanda", "xaver", "yara", "zeno",
];

/// The properties of a new account.
#[derive(Debug, Clone, Copy)]
pub struct NewAccount {
    pub host: usize,
    pub curve: Curve,
    /// Whether the account gets a did:web. That is the host's own name, so each host has
    /// at most one.
    pub web: bool,
    pub records: usize,
}

impl World {
    /// Creates the accounts that the configuration asks for.
    pub(crate) fn populate(&mut self) -> Result<(), ActionError> {
        let (repos, hosts) = (self.config.repos, self.hosts.len());
        for index in 0..repos {
            self.create_account(NewAccount {
                host: index % hosts,
                // P-256 is the rarer of the two on the real network too.
                curve: if index % 4 == 3 {
                    Curve::P256
                } else {
                    Curve::K256
                },
                web: self.config.did_web && index < hosts,
                records: self.config.records,
            })?;
        }
        Ok(())
    }

    /// Creates an account and announces it as a PDS does.
    pub(crate) fn create_account(&mut self, new: NewAccount) -> Result<Did, ActionError> {
        if new.host >= self.hosts.len() {
            return Err(ActionError::NoHost(new.host));
        }
        let account = self.found(&new)?;
        let did = account.did.clone();
        let rev = self.clock.rev();
        let (repo, made) = Repo::create(&did, &account.signing, rev, &mut self.blocks);
        let handle = account.handle.clone();
        self.accounts.insert(did.clone(), account);
        self.dids.push(did.clone());
        let status = Status::Active;
        self.hosts[new.host].put(&did, Hosted { status, repo });
        self.record(&did, &made, new.host);
        self.emit_identity(new.host, &did, Some(handle));
        self.emit_account(new.host, &did, status);
        self.emit_commit(new.host, &did, &made);
        self.emit_sync(new.host, &did);
        self.fill(&did, new.records)?;
        Ok(did)
    }

    /// Writes the first records of an account in small batches.
    fn fill(&mut self, did: &Did, count: usize) -> Result<(), WriteError> {
        let writes = Drawer {
            rng: &mut self.rng,
            clock: &mut self.clock,
            others: &self.dids,
        }
        .first_records(count);
        for batch in writes.chunks(FIRST_BATCH) {
            self.write(did, batch)?;
        }
        Ok(())
    }

    /// Creates the keys, the handle and the DID of an account.
    fn found(&mut self, new: &NewAccount) -> Result<Account, ActionError> {
        let signing = self.rng.key(new.curve);
        let rotation = self.rng.key(Curve::K256);
        let number = self.dids.len();
        let name = NAMES[number % NAMES.len()];
        let statement = Statement {
            rotation_key: rotation.public().to_did_key(),
            signing_key: signing.public().to_did_key(),
            handle: format!("{name}{number}.pds{}.test", new.host),
            endpoint: self.hosts[new.host].url.clone(),
        };
        let (handle, key) = (statement.handle.clone(), statement.signing_key.clone());
        let did = if new.web {
            let host = self.hosts[new.host].hostname.replace(':', "%3A");
            Did::parse(&format!("did:web:{host}"))
        } else {
            self.found_in_directory(new.host, statement, &rotation)
        };
        match did {
            Ok(did) if !self.accounts.contains_key(&did) => Ok(Account {
                did,
                handle,
                host: new.host,
                signing,
                former: None,
                rotation,
                keys: vec![key],
            }),
            _ => Err(ActionError::DidTaken),
        }
    }

    /// Registers a DID with two operations. The first determines the DID and names the
    /// host by a name without a port, so that DIDs do not depend on ports; the second
    /// gives the host's address.
    fn found_in_directory(
        &mut self,
        host: usize,
        statement: Statement,
        rotation: &SigningKey,
    ) -> Result<Did, DidError> {
        let first = Statement {
            endpoint: format!("https://pds{host}.test"),
            ..statement.clone()
        };
        let genesis = Operation::update(first, None, rotation);
        let second = Operation::update(statement, Some(&genesis.cid), rotation);
        let did = Did::parse(&genesis.founded_did())?;
        self.plc.append(&did, genesis, self.clock.tick());
        self.plc.append(&did, second, self.clock.tick());
        Ok(did)
    }
}
