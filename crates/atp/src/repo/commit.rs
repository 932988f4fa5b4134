//! The commit object, version 3, which the owner signs.
//!
//! A commit has exactly six fields in canonical order. Verifiers check the signature over
//! the known fields only, so an unknown field would travel unsigned; it is an error. The
//! signed bytes are the object without its `sig`, cut out of the received bytes; nothing
//! is encoded again.

use crate::cbor::{CborError, Reader, Writer};
use crate::cid::Cid;
use crate::crypto::{PublicKey, SignatureError};
use crate::syntax::{Rev, did};

/// The length of a signature: r and s, 32 bytes each.
pub const SIGNATURE_BYTES: usize = 64;

/// Why a block is not a commit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("commit is not canonical DAG-CBOR: {0}")]
    Cbor(#[from] CborError),
    #[error("commit has {0} fields (it must have exactly 6)")]
    Fields(usize),
    #[error("commit version {0} is not supported (only 3)")]
    Version(u64),
    #[error("commit does not name a valid DID: '{0}'")]
    Did(String),
    #[error("commit does not have a valid rev: '{0}'")]
    Rev(String),
    #[error("commit's data is not a DAG-CBOR link")]
    Data,
    #[error("commit has a signature of {0} bytes (it must have {SIGNATURE_BYTES})")]
    Signature(usize),
}

/// A decoded commit, together with its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit<'a> {
    pub did: &'a str,
    pub rev: Rev,
    pub data: Cid,
    pub prev: Option<Cid>,
    pub signature: &'a [u8; SIGNATURE_BYTES],
    block: &'a [u8],
    /// The range of the `sig` pair in `block`.
    sig_from: usize,
    sig_to: usize,
}

impl<'a> Commit<'a> {
    /// Decodes a commit block.
    pub fn decode(block: &'a [u8]) -> Result<Commit<'a>, CommitError> {
        let mut reader = Reader::new(block);
        let fields = reader.map()?;
        if fields != 6 {
            return Err(CommitError::Fields(fields));
        }
        reader.expect_key("did")?;
        let did = reader.text()?;
        reader.expect_key("rev")?;
        let rev = reader.text()?;
        let sig_from = block.len() - reader.rest().len();
        reader.expect_key("sig")?;
        let signature = reader.bytes()?;
        let sig_to = block.len() - reader.rest().len();
        reader.expect_key("data")?;
        let data = reader.cid()?;
        reader.expect_key("prev")?;
        let prev = reader.cid_or_null()?;
        reader.expect_key("version")?;
        let version = reader.uint()?;
        reader.finish()?;

        if version != 3 {
            return Err(CommitError::Version(version));
        }
        if did::validate(did).is_err() {
            return Err(CommitError::Did(did.chars().take(80).collect()));
        }
        let Ok(rev) = rev.parse() else {
            return Err(CommitError::Rev(rev.chars().take(80).collect()));
        };
        if !data.is_dag_cbor() {
            return Err(CommitError::Data);
        }
        let signature = signature
            .try_into()
            .map_err(|_| CommitError::Signature(signature.len()))?;
        Ok(Commit {
            did,
            rev,
            data,
            prev,
            signature,
            block,
            sig_from,
            sig_to,
        })
    }

    /// The block from which the commit was decoded.
    pub fn block(&self) -> &'a [u8] {
        self.block
    }

    /// Checks the owner's signature.
    pub fn verify(&self, key: &PublicKey) -> Result<(), SignatureError> {
        let mut signed = Vec::with_capacity(self.block.len());
        signed.push(0xa5);
        signed.extend_from_slice(&self.block[1..self.sig_from]);
        signed.extend_from_slice(&self.block[self.sig_to..]);
        key.verify(&signed, self.signature)
    }

    /// The bytes that the owner signs.
    pub fn unsigned(did: &str, rev: Rev, data: &Cid, prev: Option<&Cid>) -> Vec<u8> {
        encode(did, rev, None, data, prev)
    }

    /// The block of a signed commit.
    pub fn encode(
        did: &str,
        rev: Rev,
        signature: &[u8; SIGNATURE_BYTES],
        data: &Cid,
        prev: Option<&Cid>,
    ) -> Vec<u8> {
        encode(did, rev, Some(signature), data, prev)
    }
}

fn encode(
    did: &str,
    rev: Rev,
    signature: Option<&[u8; SIGNATURE_BYTES]>,
    data: &Cid,
    prev: Option<&Cid>,
) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.map(if signature.is_some() { 6 } else { 5 });
    writer.text("did").text(did);
    writer.text("rev").text(&rev.to_string());
    if let Some(signature) = signature {
        writer.text("sig").bytes(signature);
    }
    writer.text("data").cid(data);
    writer.text("prev").cid_or_null(prev);
    writer.text("version").uint(3);
    writer.into_bytes()
}
