//! Decides which host a repository lives on (R7).
//!
//! Only a freshly resolved DID document moves a repository. An event or a listing that
//! shows it on another host makes Gapless resolve the DID. A document older than one
//! already seen moves nothing. After a move the held state stays, because it is still an
//! exact state, but nothing is known about what came after it.

use gapless_atp::syntax::{DidMethod, Handle};

use super::account;
use super::cover::{self, Covers};
use super::debt::{self, DebtKind};
use super::notice::Notice;
use super::state::{Account, DebtReason, DocumentKeys, Held, HostId, KeyBytes, Repo, SignerKey};
use super::time::{Now, Tick};

/// The content of a DID document, with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    pub host: Option<HostId>,
    /// The signing key, if the document names a usable one.
    pub key: Option<KeyBytes>,
    /// The handle that the document claims, not verified.
    pub handle: Option<Handle>,
    /// Grows with every change of the document.
    pub version: u64,
    /// Whether the DID was given up for good.
    pub tombstoned: bool,
}

/// Handles a document that was requested at `asked`. A document older than one already
/// seen pays no debt and adds [`Notice::OldDocument`].
pub fn resolved(
    now: Now,
    repo: &mut Repo,
    covers: &Covers,
    asked: Tick,
    document: &Document,
    notices: &mut Vec<Notice>,
) {
    if document.version < repo.document {
        // An older document does not answer what is owed: the debt stays, and is retried later.
        notices.push(Notice::OldDocument);
        return;
    }
    let newer = document.version > repo.document;
    repo.document = document.version;
    if !document.tombstoned {
        remember_owner(now, repo, asked, document);
    }
    let owed = repo.debt.resolve.is_some();
    debt::pay(now, repo, DebtKind::Resolve, asked);
    if owed && repo.debt.resolve.is_none() {
        debt::ask_host_next(now, repo);
    }
    if document.tombstoned {
        account::set_account(now, repo, Account::Deleted, true, notices);
        return;
    }
    if newer && repo.account == Account::Deleted {
        // Perhaps the directory reported the deletion and has withdrawn it: ask the host.
        account::end_grace(repo);
        debt::owe(now, repo, DebtKind::Compare, DebtReason::AccountEvent);
    }
    if document.host == repo.host {
        if repo.account == Account::Deleted && repo.held == Held::Nothing {
            // A purge has cleared the handle, or there is nothing that a purge would clear.
            repo.handle = None;
        }
        cover::update_cover(repo, covers);
        return;
    }
    notices.push(Notice::Moved {
        from: repo.host,
        to: document.host,
    });
    repo.host = document.host;
    repo.host_since = now.tick;
    if newer && repo.did.method() == DidMethod::Plc {
        debt::refill_strangers(repo);
    }
    account::set_account(now, repo, Account::Unknown, false, notices);
    repo.first_rev_since_reset = None;
    repo.behind = None;
    repo.stale_listing = None;
    repo.confirmed_at = None;
    repo.swept = None;
    cover::unset_marker(now.tick, repo);
    cover::update_cover(repo, covers);
    debt::owe(now, repo, DebtKind::Compare, DebtReason::Moved);
    debt::retry_soon(now, repo);
}

/// Remembers the owner's handle and key, and the key before it. A document that was requested
/// before the one already read changes nothing.
fn remember_owner(now: Now, repo: &mut Repo, asked: Tick, document: &Document) {
    let (old, key) = (repo.signing, document.key);
    if old.is_some_and(|old| old.asked > asked) {
        return;
    }
    repo.handle = document.handle.clone();
    let former = match old {
        Some(old) if old.key != key && old.key.is_some() => {
            // The held state was signed with the previous key.
            repo.key = SignerKey::Previous;
            old.key
        }
        Some(old) => old.former,
        None => None,
    };
    repo.signing = Some(DocumentKeys {
        key,
        former,
        asked,
        at: now.time,
    });
}
