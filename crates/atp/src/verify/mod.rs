//! Checks whether an event is what it claims to be: one function per kind of event, one
//! verdict.
//!
//! Checks run cheapest first. No outcome from before the check of the signature may
//! change anyone's state. No input causes a panic.
//!
//! The caller finds the owner's key. On [`Fault::Signature`] it refreshes the key and
//! tries once more. The caller also decides which host may speak for an account, and what
//! the account's state is.

mod commit;
mod sync;

pub use commit::{CheckedCommit, CheckedOp, Verdict, check_commit, claimed_commit, reopen_commit};
pub use sync::{SyncVerdict, check_sync, claimed_sync, reopen_sync};

use crate::car::{BlockMap, CarError, read_blocks};
use crate::cid::Cid;
use crate::crypto::{PublicKey, SignatureError};
use crate::limits;
use crate::mst::OpsError;
use crate::repo::{Commit, CommitError};
use crate::syntax::{PathError, Rev, did};

/// The proved head that the mirror holds of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    pub rev: Rev,
    pub data: Cid,
    pub commit: Cid,
}

/// A commit that the owner signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authentic<'a> {
    pub did: &'a str,
    pub rev: Rev,
    pub data: Cid,
    pub commit: Cid,
    /// The signed block, which is kept as evidence.
    pub block: &'a [u8],
}

/// What is wrong with an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("'{0}' is not a supported DID")]
    Did(String),
    #[error("'{0}' is not a rev")]
    Rev(String),
    #[error("rev {0} is more than five minutes ahead of the clock")]
    FutureRev(Rev),
    #[error("the blocks have {0} bytes, more than {1}")]
    BlocksSize(usize, usize),
    #[error("more than {} operations", limits::COMMIT_OPS)]
    Ops(usize),
    #[error("the blocks cannot be read: {0}")]
    Car(#[from] CarError),
    #[error("the event names no commit")]
    NoCommitCid,
    #[error("the commit {0} is not named as DAG-CBOR")]
    CommitCodec(Cid),
    #[error("the root of the blocks is not the commit {0}")]
    OtherCommit(Cid),
    #[error("the blocks lack the commit {0}")]
    NoCommitBlock(Cid),
    #[error(transparent)]
    Commit(#[from] CommitError),
    #[error("the commit belongs to {0}")]
    OtherDid(String),
    #[error("the commit has rev {0}")]
    OtherRev(Rev),
    #[error("signature: {0}")]
    Signature(#[from] SignatureError),
    #[error("the event says that it is too big to carry its operations")]
    TooBig,
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("two operations on '{0}'")]
    PathTwice(String),
    #[error("operation '{action}' on '{path}' lacks a required CID or has a forbidden one")]
    OpShape { path: String, action: &'static str },
    #[error("record {cid} of '{path}' is not in the blocks")]
    NoRecord { path: String, cid: Cid },
    #[error(
        "record of '{path}' has {bytes} bytes, more than {}",
        limits::RECORD_BYTES
    )]
    RecordSize { path: String, bytes: usize },
    #[error("{0}")]
    Operations(OpsError),
}

fn parse_rev(text: &str) -> Result<Rev, Fault> {
    text.parse()
        .map_err(|_| Fault::Rev(text.chars().take(40).collect()))
}

/// The checks that need only the event: DID, rev, size.
fn check_outside(
    did: &str,
    rev: Rev,
    blocks: &[u8],
    most: usize,
    now_micros: u64,
) -> Result<(), Fault> {
    if did::validate(did).is_err() {
        return Err(Fault::Did(did.chars().take(80).collect()));
    }
    if rev.is_future(now_micros) {
        return Err(Fault::FutureRev(rev));
    }
    match blocks.len() {
        len if len > most => Err(Fault::BlocksSize(len, most)),
        _ => Ok(()),
    }
}

/// Reads the blocks and their commit, and checks hashes, root and DID.
fn open_commit<'a>(
    did: &str,
    blocks: &'a [u8],
    named: Option<Cid>,
) -> Result<(Cid, Commit<'a>, BlockMap<'a>), Fault> {
    let blocks = read_blocks(blocks)?.into_map()?;
    let Some(cid) = blocks.roots().first().copied() else {
        return Err(Fault::NoCommitCid);
    };
    // A commit has one CID. Under another codec it would pass for a second commit of the
    // same rev.
    if !cid.is_dag_cbor() {
        return Err(Fault::CommitCodec(cid));
    }
    if let Some(named) = named
        && named != cid
    {
        return Err(Fault::OtherCommit(named));
    }
    let block = blocks.get(&cid).ok_or(Fault::NoCommitBlock(cid))?;
    let commit = Commit::decode(block)?;
    if commit.did != did {
        return Err(Fault::OtherDid(commit.did.chars().take(80).collect()));
    }
    Ok((cid, commit, blocks))
}

fn authenticate<'a>(
    cid: Cid,
    commit: &Commit<'a>,
    key: &PublicKey,
) -> Result<Authentic<'a>, Fault> {
    commit.verify(key)?;
    Ok(Authentic {
        did: commit.did,
        rev: commit.rev,
        data: commit.data,
        commit: cid,
        block: commit.block(),
    })
}
