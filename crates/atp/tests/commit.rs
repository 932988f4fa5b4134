//! Tests the commit object: six fields, in order, and a signature over all of them.

mod common;

use common::{Author, NOW};
use gapless_atp::cbor::{CborError, Value, Writer};
use gapless_atp::cid::Cid;
use gapless_atp::crypto::{Curve, SignatureError};
use gapless_atp::mst::empty_root;
use gapless_atp::repo::{Commit, CommitError};
use gapless_atp::syntax::Rev;

const DID: &str = "did:plc:abcdefghijklmnopqrstuvwx";

fn rev() -> Rev {
    Rev::from_micros(NOW, 5)
}

/// The six fields, which a test may change before they become bytes.
fn fields() -> Vec<(&'static str, Value<'static>)> {
    vec![
        ("did", Value::Text(DID.into())),
        ("rev", Value::Text(rev().to_string().into())),
        ("sig", Value::Bytes(vec![1; 64].into())),
        ("data", Value::Link(empty_root())),
        ("prev", Value::Null),
        ("version", Value::Int(3)),
    ]
}

fn encode(fields: &[(&str, Value<'_>)]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.map(fields.len());
    for (key, value) in fields {
        let value = value.encode().expect("strict");
        writer.text(key).verbatim(&value);
    }
    writer.into_bytes()
}

fn with(at: usize, value: Value<'static>) -> Vec<u8> {
    let mut changed = fields();
    changed[at].1 = value;
    encode(&changed)
}

#[test]
fn a_commit_has_its_six_fields() {
    let block = encode(&fields());
    let commit = Commit::decode(&block).expect("a commit");
    assert_eq!((commit.did, commit.rev), (DID, rev()));
    assert_eq!((commit.data, commit.prev), (empty_root(), None));
    assert_eq!((commit.signature, commit.block()), (&[1; 64], &block[..]));
    let again = Commit::encode(DID, rev(), &[1; 64], &empty_root(), None);
    assert_eq!(again, block);

    let prev = Cid::dag_cbor(b"prev");
    let block = with(4, Value::Link(prev));
    assert_eq!(Commit::decode(&block).map(|c| c.prev), Ok(Some(prev)));
}

#[test]
fn anything_else_is_no_commit() {
    let text = |text: &'static str| Value::Text(text.into());
    let bytes = |len: usize| Value::Bytes(vec![1; len].into());
    for (at, value, error) in [
        (
            0,
            text("did:key:zabc"),
            CommitError::Did("did:key:zabc".into()),
        ),
        (0, text(""), CommitError::Did("".into())),
        (
            1,
            text("3mdvhqvvzs22"),
            CommitError::Rev("3mdvhqvvzs22".into()),
        ),
        (
            1,
            text("zzzzzzzzzzzzz"),
            CommitError::Rev("zzzzzzzzzzzzz".into()),
        ),
        (2, bytes(0), CommitError::Signature(0)),
        (2, bytes(63), CommitError::Signature(63)),
        (2, bytes(65), CommitError::Signature(65)),
        (3, Value::Link(Cid::raw(b"")), CommitError::Data),
        (5, Value::Int(2), CommitError::Version(2)),
        (5, Value::Int(4), CommitError::Version(4)),
    ] {
        assert_eq!(Commit::decode(&with(at, value)).map(drop), Err(error));
    }
    for (at, value) in [
        (0, Value::Null),
        (1, Value::Int(1)),
        (2, text("sig")),
        (3, Value::Null),
        (4, text("prev")),
        (5, Value::Int(-3)),
        (5, text("3")),
    ] {
        let read = Commit::decode(&with(at, value)).map(drop);
        assert!(matches!(read, Err(CommitError::Cbor(_))), "{at}: {read:?}");
    }
}

#[test]
fn fields_are_exact_and_in_order() {
    let decode = |fields: &[(&str, Value<'_>)]| Commit::decode(&encode(fields)).map(drop);
    for at in 0..6 {
        let mut fewer = fields();
        fewer.remove(at);
        assert_eq!(decode(&fewer), Err(CommitError::Fields(5)));
        let mut swapped = fields();
        swapped.swap(at, (at + 1) % 6);
        let order = decode(&swapped);
        let missing = matches!(order, Err(CommitError::Cbor(CborError::MissingKey(_))));
        assert!(missing, "{order:?}");
        let mut renamed = fields();
        renamed[at].0 = "xxx";
        assert_ne!(decode(&renamed), Ok(()));
    }
    // An unknown field would travel outside of what verifiers check.
    for at in 0..=6 {
        let mut more = fields();
        more.insert(at, ("zz", Value::Null));
        assert_eq!(decode(&more), Err(CommitError::Fields(7)));
    }
    let block = encode(&fields());
    for end in 0..block.len() {
        assert!(Commit::decode(&block[..end]).is_err(), "cut at {end}");
    }
    let longer = [&block[..], &[0]].concat();
    let trailing = CommitError::Cbor(CborError::Trailing);
    assert_eq!(Commit::decode(&longer).map(drop), Err(trailing));
}

#[test]
fn the_signature_covers_all_but_itself() {
    for curve in [Curve::K256, Curve::P256] {
        let author = Author::new(curve);
        let key = author.key.public();
        let (data, prev) = (empty_root(), Cid::dag_cbor(b"prev"));
        let unsigned = Commit::unsigned(DID, rev(), &data, Some(&prev));
        let signature = author.key.sign(&unsigned);
        assert_eq!(key.verify(&unsigned, &signature), Ok(()));
        let verify = |block: &[u8]| Commit::decode(block).expect("a commit").verify(key);
        let block = Commit::encode(DID, rev(), &signature, &data, Some(&prev));
        assert_eq!(verify(&block), Ok(()));

        let other = "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb";
        let later = Rev::from_micros(NOW + 1, 5);
        for block in [
            Commit::encode(other, rev(), &signature, &data, Some(&prev)),
            Commit::encode(DID, later, &signature, &data, Some(&prev)),
            Commit::encode(DID, rev(), &signature, &prev, Some(&prev)),
            Commit::encode(DID, rev(), &signature, &data, None),
        ] {
            assert_eq!(verify(&block), Err(SignatureError::Mismatch));
        }
        let mut forged = signature;
        forged[40] ^= 1;
        let block = Commit::encode(DID, rev(), &forged, &data, Some(&prev));
        assert_eq!(verify(&block), Err(SignatureError::Mismatch));
    }
}
