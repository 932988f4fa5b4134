//! Checks `#commit` events.

use std::borrow::Cow;

use super::{Authentic, Fault, Held, authenticate, check_outside, open_commit, parse_rev};
use crate::car::BlockMap;
use crate::cid::Cid;
use crate::crypto::PublicKey;
use crate::frame::{Action, CommitEvent, RawOp};
use crate::limits;
use crate::mst::{
    Blocks, Op, OpAction, OpsError, SourceError, Tree, TreeError, empty_root, invert,
};
use crate::syntax::{Rev, split_path};

/// What a `#commit` proved to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict<'a> {
    /// Proved, and it follows the held head: its operations may be applied. If nothing is
    /// held, the commit's operations are the whole repository.
    Applies(CheckedCommit<'a>),
    /// Not newer than the held head. Not authenticated; it changes nothing.
    Replay,
    /// Signed, with the held rev but another commit: the owner's key signed two
    /// histories.
    Fork(Authentic<'a>),
    /// Proved, but it follows another root than the held one.
    Discontinuous(CheckedCommit<'a>),
    /// Signed, but its producer sends no proof of the previous state.
    Legacy(CheckedCommit<'a>),
    /// Signed, but a node that the event lacks is needed to check the operations.
    ProofIncomplete {
        commit: CheckedCommit<'a>,
        missing: Cid,
    },
    /// Signed, but the nodes that the caller offered could not be read. This says nothing
    /// about the event: try again.
    Undecided {
        commit: CheckedCommit<'a>,
        error: SourceError,
    },
    /// Wrong. If it is signed nevertheless (`authentic`), a commit newer than the held
    /// one exists, and this event does not show what is in it.
    Invalid {
        fault: Fault,
        authentic: Option<Authentic<'a>>,
    },
}

impl Verdict<'_> {
    /// The class of the verdict as one word, for counters and logs.
    pub fn class(&self) -> &'static str {
        match self {
            Verdict::Applies(_) => "applies",
            Verdict::Replay => "replay",
            Verdict::Fork(_) => "fork",
            Verdict::Discontinuous(_) => "discontinuous",
            Verdict::Legacy(_) => "legacy",
            Verdict::ProofIncomplete { .. } => "proof_incomplete",
            Verdict::Undecided { .. } => "undecided",
            Verdict::Invalid { .. } => "invalid",
        }
    }
}

/// A signed commit and its operations, as far as the verdict vouches for them.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedCommit<'a> {
    pub authentic: Authentic<'a>,
    /// The previous rev, as the event claims it. It is not signed.
    pub since: Option<&'a str>,
    /// The previous root, proved by inversion except in `Legacy` and `ProofIncomplete`.
    pub before: Cid,
    pub ops: Vec<CheckedOp<'a>>,
}

/// One operation, with the record that it wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedOp<'a> {
    pub path: &'a str,
    pub action: Action,
    pub cid: Option<Cid>,
    pub prev: Option<Cid>,
    /// The bytes of the record, which hash to `cid`; `None` for a delete.
    pub record: Option<&'a [u8]>,
}

/// Checks a `#commit` against the owner's key and the held head. `extra` may supply tree
/// nodes that the event does not carry.
pub fn check_commit<'a>(
    event: &CommitEvent<'a>,
    key: &PublicKey,
    held: Option<&Held>,
    now_micros: u64,
    extra: Option<&dyn Blocks>,
) -> Verdict<'a> {
    let invalid = |fault| Verdict::Invalid {
        fault,
        authentic: None,
    };
    let rev = match check_event(event, now_micros) {
        Ok(rev) => rev,
        Err(fault) => return invalid(fault),
    };
    if let Some(held) = held
        && (rev < held.rev || (rev == held.rev && event.commit == Some(held.commit)))
    {
        return Verdict::Replay;
    }
    let (authentic, blocks) = match check_signed(event, rev, key) {
        Ok(signed) => signed,
        Err(fault) => return invalid(fault),
    };
    if held.is_some_and(|held| rev == held.rev) {
        return Verdict::Fork(authentic);
    }
    let ops = match check_ops(event, &blocks) {
        Ok(ops) => ops,
        Err(fault) => {
            return Verdict::Invalid {
                fault,
                authentic: Some(authentic),
            };
        }
    };
    let source = Nodes {
        blocks: &blocks,
        extra,
    };
    let commit = CheckedCommit {
        authentic,
        since: event.since,
        before: event.prev_data.unwrap_or_else(empty_root),
        ops,
    };
    judge(event, commit, held, &source)
}

/// Opens a `#commit` that was checked before, because its operations are needed again.
/// Hashes are checked, as always when blocks are read; what the first verdict proved is
/// not proved again.
pub fn reopen_commit<'a>(
    event: &CommitEvent<'a>,
) -> Result<(Cid, &'a [u8], Vec<CheckedOp<'a>>), Fault> {
    let named = event.commit.ok_or(Fault::NoCommitCid)?;
    let (cid, commit, blocks) = open_commit(event.repo, event.blocks, Some(named))?;
    Ok((cid, commit.block(), check_ops(event, &blocks)?))
}

/// The head that a `#commit` claims, when no key is known to check it with. Only hashes
/// and form are checked.
pub fn claimed_commit(event: &CommitEvent<'_>, now_micros: u64) -> Result<(Cid, Rev, Cid), Fault> {
    let rev = check_event(event, now_micros)?;
    let named = event.commit.ok_or(Fault::NoCommitCid)?;
    let (cid, commit, _) = open_commit(event.repo, event.blocks, Some(named))?;
    if commit.rev == rev {
        Ok((cid, rev, commit.data))
    } else {
        Err(Fault::OtherRev(commit.rev))
    }
}

/// Checks shape, limits and clock, which costs almost nothing.
fn check_event(event: &CommitEvent<'_>, now_micros: u64) -> Result<Rev, Fault> {
    let rev = parse_rev(event.rev)?;
    let most = limits::COMMIT_BLOCKS_BYTES;
    check_outside(event.repo, rev, event.blocks, most, now_micros)?;
    match event.ops.len() {
        count if count > limits::COMMIT_OPS => Err(Fault::Ops(count)),
        _ => Ok(rev),
    }
}

/// Checks hashes, the commit object and the signature.
fn check_signed<'a>(
    event: &CommitEvent<'a>,
    rev: Rev,
    key: &PublicKey,
) -> Result<(Authentic<'a>, BlockMap<'a>), Fault> {
    let named = event.commit.ok_or(Fault::NoCommitCid)?;
    let (cid, commit, blocks) = open_commit(event.repo, event.blocks, Some(named))?;
    if commit.rev != rev {
        return Err(Fault::OtherRev(commit.rev));
    }
    Ok((authenticate(cid, &commit, key)?, blocks))
}

/// Checks the form of the operations and finds the records that they wrote.
fn check_ops<'a>(
    event: &CommitEvent<'a>,
    blocks: &BlockMap<'a>,
) -> Result<Vec<CheckedOp<'a>>, Fault> {
    if event.too_big {
        return Err(Fault::TooBig);
    }
    let mut ops = Vec::with_capacity(event.ops.len());
    for op in &event.ops {
        ops.push(check_op(op, blocks)?);
    }
    if ops.len() > 1 {
        let mut paths: Vec<&str> = ops.iter().map(|op| op.path).collect();
        paths.sort_unstable();
        if let Some(pair) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Fault::PathTwice(pair[0].to_owned()));
        }
    }
    Ok(ops)
}

fn check_op<'a>(op: &RawOp<'a>, blocks: &BlockMap<'a>) -> Result<CheckedOp<'a>, Fault> {
    split_path(op.path)?;
    let sound = match op.action {
        Action::Create => op.cid.is_some() && op.prev.is_none(),
        // Without `prev` an update or delete is legacy, not wrong.
        Action::Update => op.cid.is_some(),
        Action::Delete => op.cid.is_none(),
    };
    if !sound {
        return Err(Fault::OpShape {
            path: op.path.to_owned(),
            action: op.action.as_str(),
        });
    }
    let record = match op.cid {
        None => None,
        Some(cid) => {
            let path = || op.path.to_owned();
            let record = blocks
                .get(&cid)
                .ok_or_else(|| Fault::NoRecord { path: path(), cid })?;
            let bytes = record.len();
            if bytes > limits::RECORD_BYTES {
                return Err(Fault::RecordSize {
                    path: path(),
                    bytes,
                });
            }
            Some(record)
        }
    };
    Ok(CheckedOp {
        path: op.path,
        action: op.action,
        cid: op.cid,
        prev: op.prev,
        record,
    })
}

/// Checks the tree: whether the operations lead from the previous root to the signed one,
/// and whether the previous root is the held one.
fn judge<'a>(
    event: &CommitEvent<'a>,
    commit: CheckedCommit<'a>,
    held: Option<&Held>,
    source: &dyn Blocks,
) -> Verdict<'a> {
    let first = event.prev_data.is_none() && event.since.is_none();
    let provable = event.prev_data.is_some() || first;
    let proof = match commit.ops.iter().map(proof_op).collect::<Option<Vec<_>>>() {
        Some(ops) if provable => invert(commit.authentic.data, commit.before, &ops, source),
        _ => return judge_legacy(commit, source),
    };
    match proof {
        Ok(()) => {}
        Err(OpsError::Incomplete(missing)) => return Verdict::ProofIncomplete { commit, missing },
        Err(OpsError::Source(error)) => return Verdict::Undecided { commit, error },
        // The event names no previous root, and the repository was not empty.
        Err(OpsError::OtherRoot) if first => return judge_legacy(commit, source),
        Err(error) => {
            return Verdict::Invalid {
                fault: Fault::Operations(error),
                authentic: Some(commit.authentic),
            };
        }
    }
    // If nothing is held, the commit must start from the empty tree.
    let held = held.map_or_else(empty_root, |held| held.data);
    if commit.before == held {
        Verdict::Applies(commit)
    } else {
        Verdict::Discontinuous(commit)
    }
}

fn proof_op<'a>(op: &CheckedOp<'a>) -> Option<Op<'a>> {
    let action = match (op.action, op.cid, op.prev) {
        (Action::Create, Some(cid), _) => OpAction::Create { cid },
        (Action::Update, Some(cid), Some(prev)) => OpAction::Update { cid, prev },
        (Action::Delete, _, Some(prev)) => OpAction::Delete { prev },
        _ => return None,
    };
    Some(Op {
        path: op.path,
        action,
    })
}

/// Checks, without a previous root, that the signed tree holds what the operations claim,
/// as far as its nodes were sent.
fn judge_legacy<'a>(commit: CheckedCommit<'a>, source: &dyn Blocks) -> Verdict<'a> {
    let mut tree = Tree::open(commit.authentic.data, source);
    for op in &commit.ops {
        let error = match tree.get(op.path.as_bytes()) {
            Ok(found) if found == op.cid => continue,
            Err(TreeError::Missing(_)) => continue,
            Err(TreeError::Source(error)) => return Verdict::Undecided { commit, error },
            Ok(None) => TreeError::NotFound,
            Ok(Some(_)) if op.cid.is_none() => TreeError::Exists,
            Ok(Some(found)) => {
                let said = op.cid.unwrap_or(found);
                let path = op.path.to_owned();
                let fault = Fault::Operations(OpsError::Value { path, said, found });
                return Verdict::Invalid {
                    fault,
                    authentic: Some(commit.authentic),
                };
            }
            Err(error) => error,
        };
        let path = op.path.to_owned();
        return Verdict::Invalid {
            fault: Fault::Operations(OpsError::Tree { path, error }),
            authentic: Some(commit.authentic),
        };
    }
    Verdict::Legacy(commit)
}

/// Nodes from the event, then from the caller.
struct Nodes<'b> {
    blocks: &'b BlockMap<'b>,
    extra: Option<&'b dyn Blocks>,
}

impl Blocks for Nodes<'_> {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        match (self.blocks.get(cid), self.extra) {
            (Some(block), _) => Ok(Some(Cow::Borrowed(block))),
            (None, Some(extra)) => extra.block(cid),
            (None, None) => Ok(None),
        }
    }
}
