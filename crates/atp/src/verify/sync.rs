//! The verdict on a `#sync`.
//!
//! The event's own rev is not trusted: after an import a reference PDS sends
//! one that differs from the rev in the commit. The signed rev counts.

use super::{Authentic, Fault, Held, authenticate, check_outside, open_commit, parse_rev};
use crate::cid::Cid;
use crate::crypto::PublicKey;
use crate::frame::SyncEvent;
use crate::limits;
use crate::syntax::Rev;

/// What a `#sync` turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum SyncVerdict<'a> {
    /// Not newer than what is held.
    Replay,
    /// Newer, with the root that is held: only the rev moves.
    SameRoot(Authentic<'a>),
    /// Newer, with another root: the repository must be fetched.
    OtherRoot(Authentic<'a>),
    /// Signed, with the rev that is held but another commit.
    Fork(Authentic<'a>),
    Invalid(Fault),
}

/// Checks a `#sync` against the owner's key and what is held.
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

/// Opens a `#sync` that was judged before: the signed block.
pub fn reopen_sync<'a>(event: &SyncEvent<'a>) -> Result<(Cid, &'a [u8]), Fault> {
    let (cid, commit, _) = open_commit(event.did, event.blocks, None)?;
    Ok((cid, commit.block()))
}

/// The head that a commit or a `#sync` claims, with no key to check it by: hashes
/// and shape alone.
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
