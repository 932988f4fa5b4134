//! Commits and frames: with real roots over real keys and real hashes. Only the signature
//! is simulated, by the number of the key that made it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use gapless_atp::cid::Cid;
use gapless_atp::mst;
use gapless_atp::syntax::Rev;
use gapless_core::ledger::{Account, Head, NamedHead};

use super::OwnerId;
use crate::rng::mix;

/// What a repository contains: path → record.
pub type Records = BTreeMap<String, Cid>;

/// One operation: the record at a path before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    pub path: String,
    pub before: Option<Cid>,
    pub after: Option<Cid>,
}

/// A commit, with its records and operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    pub owner: OwnerId,
    pub head: Head,
    pub records: Arc<Records>,
    pub ops: Arc<[Op]>,
    /// The root before the commit.
    pub previous: Cid,
    /// The owner's key that signed the commit; `None` if it is forged.
    pub key: Option<u32>,
}

impl Commit {
    /// The commit that leads from one set of records to the next.
    pub fn new(
        owner: OwnerId,
        rev: Rev,
        before: &Records,
        after: Records,
        key: Option<u32>,
    ) -> Commit {
        let data = root(&after);
        let ops = difference(before, &after);
        let line = ops.len() as u64 ^ key.map_or(u64::MAX, u64::from) << 8;
        let mut block = Vec::with_capacity(96);
        block.extend_from_slice(&(owner as u64).to_be_bytes());
        block.extend_from_slice(&rev.to_bits().to_be_bytes());
        block.extend_from_slice(data.as_bytes());
        block.extend_from_slice(&line.to_be_bytes());
        Commit {
            owner,
            head: Head {
                rev,
                data,
                commit: Cid::dag_cbor(&block),
            },
            previous: root(before),
            records: Arc::new(after),
            ops: ops.into(),
            key,
        }
    }

    pub fn named(&self) -> NamedHead {
        NamedHead {
            rev: self.head.rev,
            commit: self.head.commit,
        }
    }

    /// The root that results from undoing these operations on the signed records.
    /// `None` if the operations do not match the records.
    pub fn undone(&self, ops: &[Op]) -> Option<Cid> {
        let mut records = Records::clone(&self.records);
        for op in ops.iter().rev() {
            let found = match &op.before {
                Some(before) => records.insert(op.path.clone(), *before),
                None => records.remove(&op.path),
            };
            if found != op.after {
                return None;
            }
        }
        Some(root(&records))
    }
}

/// The number of different records in a world.
pub(crate) const VALUES: u8 = 4;

/// The bytes of a record.
pub fn value(number: u8) -> Vec<u8> {
    vec![number % VALUES]
}

/// The bytes of a record, by its CID.
pub(crate) fn bytes_of(cid: &Cid) -> Option<&'static [u8]> {
    static KNOWN: OnceLock<Vec<(Cid, Vec<u8>)>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let values = (0..VALUES).map(value);
        values.map(|bytes| (Cid::dag_cbor(&bytes), bytes)).collect()
    });
    let found = known.iter().find(|(known, _)| known == cid);
    found.map(|(_, bytes)| bytes.as_slice())
}

/// The signed root over these records.
pub fn root(records: &Records) -> Cid {
    mst::root(records.iter().map(|(path, cid)| (path.as_bytes(), *cid)))
        .expect("a map's keys rise, and ours are short")
}

/// The operations from one set of records to another.
pub fn difference(before: &Records, after: &Records) -> Vec<Op> {
    let mut ops = Vec::new();
    for (path, cid) in before {
        if after.get(path) != Some(cid) {
            ops.push(Op {
                path: path.clone(),
                before: Some(*cid),
                after: after.get(path).copied(),
            });
        }
    }
    for (path, cid) in after {
        if !before.contains_key(path) {
            ops.push(Op {
                path: path.clone(),
                before: None,
                after: Some(*cid),
            });
        }
    }
    ops
}

/// The content of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// `#commit`. `ops` are the operations in the frame; `proved` says whether the frame has
    /// the previous root.
    Commit {
        commit: Arc<Commit>,
        ops: Arc<[Op]>,
        proved: bool,
        too_big: bool,
    },
    Sync {
        commit: Arc<Commit>,
    },
    Identity,
    Account(Account),
    /// Only the DID can be read.
    Garbage,
    /// Nothing can be read.
    Unreadable,
}

/// An event in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The account of the event; the mirror may use it only if the body is readable.
    pub owner: OwnerId,
    pub body: Body,
    /// A number that distinguishes this frame from all others ever sent.
    pub number: u64,
}

impl Frame {
    /// The beginning of the hash of the frame's bytes, which contain its sequence number.
    pub fn hash(&self, seq: u64) -> [u8; 16] {
        let mut hash = [0; 16];
        hash[..8].copy_from_slice(&mix(self.number).to_be_bytes());
        hash[8..].copy_from_slice(&mix(self.number ^ seq.rotate_left(32)).to_be_bytes());
        hash
    }

    /// A description for the trace.
    pub fn label(&self) -> String {
        let of = super::name(self.owner);
        match &self.body {
            Body::Commit {
                commit,
                proved,
                too_big,
                ops,
            } => {
                let rev = super::short(commit.head.rev);
                let shape = match (too_big, proved, ops.len() < commit.ops.len()) {
                    (true, ..) => " too big",
                    (_, false, _) => " legacy",
                    (.., true) => " op left out",
                    _ => "",
                };
                let key = match commit.key {
                    Some(key) => format!(" key {key}"),
                    None => " forged".to_owned(),
                };
                format!("{of} commit {rev}{shape}{key}")
            }
            Body::Sync { commit } => {
                format!(
                    "{of} sync {} key {:?}",
                    super::short(commit.head.rev),
                    commit.key
                )
            }
            Body::Identity => format!("{of} identity"),
            Body::Account(state) => format!("{of} account {state:?}"),
            Body::Garbage => format!("{of} garbage"),
            Body::Unreadable => format!("({of}) unreadable"),
        }
    }
}
