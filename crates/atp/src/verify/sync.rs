//! Checks `#sync` events.
//!
//! The rev in the event is not trusted: after an import a reference PDS sends one that
//! differs from the rev in the commit. The signed rev counts.

use super::{Authentic, Fault, Held, authenticate, check_outside, open_commit, parse_rev};
use crate::cid::Cid;
use crate::crypto::PublicKey;
use crate::frame::SyncEvent;
use crate::limits;
use crate::syntax::Rev;

/// What a `#sync` proved to be.
#[derive(Debug, Clone, PartialEq)]
pub enum SyncVerdict<'a> {
    /// Not newer than the held head.
    Replay,
    /// Newer, with the held root: only the rev changes.
    SameRoot(Authentic<'a>),
    /// Newer, with another root: the repository must be fetched.
    OtherRoot(Authentic<'a>),
    /// Signed, with the held rev but another commit.
    Fork(Authentic<'a>),
    Invalid(Fault),
}

/// Checks a `#sync` against the owner's key and the held head.
pub fn check_sync<'a>(
    event: &SyncEvent<'a>,
    key: &PublicKey,
    held: Option<&Held>,
    now_micros: u64,
) -> SyncVerdict<'a> {
    let authentic = match check(event, key, now_micros) {
        Ok(authentic) => authentic,
        Err(fault) => return SyncVerdict::Invalid(fault),
    };
    let Some(held) = held else {
        return SyncVerdict::OtherRoot(authentic);
    };
    if authentic.rev < held.rev || authentic.commit == held.commit {
        return SyncVerdict::Replay;
    }
    if authentic.rev == held.rev {
        return SyncVerdict::Fork(authentic);
    }
    if authentic.data == held.data {
        SyncVerdict::SameRoot(authentic)
    } else {
        SyncVerdict::OtherRoot(authentic)
    }
}

/// Opens a `#sync` that was checked before, and returns its commit's CID and signed
/// block.
pub fn reopen_sync<'a>(event: &SyncEvent<'a>) -> Result<(Cid, &'a [u8]), Fault> {
    let (cid, commit, _) = open_commit(event.did, event.blocks, None)?;
    Ok((cid, commit.block()))
}

/// The head that a `#sync` claims, when no key is known to check it with. Only hashes and
/// form are checked.
pub fn claimed_sync(event: &SyncEvent<'_>, now_micros: u64) -> Result<(Cid, Rev, Cid), Fault> {
    let stated = parse_rev(event.rev)?;
    let most = limits::SYNC_BLOCKS_BYTES;
    check_outside(event.did, stated, event.blocks, most, now_micros)?;
    let (cid, commit, _) = open_commit(event.did, event.blocks, None)?;
    if commit.rev.is_future(now_micros) {
        Err(Fault::FutureRev(commit.rev))
    } else {
        Ok((cid, commit.rev, commit.data))
    }
}

fn check<'a>(
    event: &SyncEvent<'a>,
    key: &PublicKey,
    now_micros: u64,
) -> Result<Authentic<'a>, Fault> {
    let stated = parse_rev(event.rev)?;
    let most = limits::SYNC_BLOCKS_BYTES;
    check_outside(event.did, stated, event.blocks, most, now_micros)?;
    let (cid, commit, _) = open_commit(event.did, event.blocks, None)?;
    if commit.rev.is_future(now_micros) {
        return Err(Fault::FutureRev(commit.rev));
    }
    authenticate(cid, &commit, key)
}
