//! Compares Gapless with two independent libraries.
//!
//! DAG-CBOR is compared with `serde_ipld_dagcbor` and `shrike` on bytes that are almost right;
//! trees, commits and files are compared with `shrike` in both directions. Where Gapless is
//! stricter on purpose, the test names the difference and allows no other.

mod common;

use std::collections::BTreeMap;

use common::values::{bytes_like_cbor, strict_value};
use common::{Author, Keys, build, record};
use gapless_atp::cbor::{CborError, Value};
use gapless_atp::cid::Cid;
use gapless_atp::crypto::{Curve, PublicKey};
use gapless_atp::frame::{Action, CommitEvent, RawOp};
use gapless_atp::repo::{Export, ImportError, RepoCar};
use gapless_atp::verify::{Held, Verdict, check_commit};
use ipld_core::ipld::Ipld;
use proptest::prelude::*;
use shrike::crypto::{K256SigningKey, P256SigningKey, SigningKey};
use shrike::mst::{MemBlockStore, Tree};
use shrike::repo::{RecordAction, Repo, WriteOp};
use shrike::syntax::{Did, Nsid, RecordKey, TidClock};

/// Far enough ahead that the other library's clock is never in the future.
const NOW: u64 = 1 << 52;

fn ours(cid: &shrike::Cid) -> Cid {
    Cid::from_bytes(&cid.to_bytes()).expect("a CID")
}

fn theirs(cid: &Cid) -> shrike::Cid {
    shrike::Cid::from_bytes(cid.as_bytes()).expect("a CID")
}

/// What we refuse and a general DAG-CBOR library reads: the data model has no
/// floats, integers of 64 bits with sign, links of one kind, and our limits.
fn stricter(error: &CborError) -> bool {
    matches!(
        error,
        CborError::Float
            | CborError::IntegerRange
            | CborError::Link(_)
            | CborError::Nesting
            | CborError::Items
    )
}

fn compare(bytes: &[u8]) -> Result<(), TestCaseError> {
    let own = Value::decode_strict(bytes);
    let ipld = serde_ipld_dagcbor::from_slice::<Ipld>(bytes);
    let drisl = shrike::cbor::decode(bytes);
    match &own {
        Ok(value) => {
            let ipld = ipld.map_err(|error| TestCaseError::fail(format!("ipld: {error}")))?;
            let again = serde_ipld_dagcbor::to_vec(&ipld).expect("a value");
            prop_assert_eq!(&again, bytes);
            prop_assert_eq!(value.encode(), Some(again));
            match drisl {
                Ok(value) => {
                    let again = shrike::cbor::encode_value(&value).expect("a value");
                    prop_assert_eq!(&again, bytes);
                }
                // It knows two codecs only, and counts a level more.
                Err(error) => prop_assert!(other_codec(value), "shrike: {error}"),
            }
        }
        Err(error) => {
            prop_assert!(
                ipld.is_err() || stricter(error),
                "ipld reads {ipld:?}: {error}"
            );
            let float = matches!(error, CborError::Float);
            prop_assert!(drisl.is_err() || float, "shrike reads {drisl:?}: {error}");
        }
    }
    Ok(())
}

fn other_codec(value: &Value<'_>) -> bool {
    match value {
        Value::Link(cid) => !matches!(cid.codec(), 0x71 | 0x55),
        Value::Array(items) => items.iter().any(other_codec),
        Value::Map(pairs) => pairs.iter().any(|(_, item)| other_codec(item)),
        _ => false,
    }
}

fn key_sets() -> impl Strategy<Value = Keys> {
    let path = (0..5u8, 0..2_000u16).prop_map(|(c, n)| format!("com.example.c{c}/{n}"));
    let value = any::<u16>().prop_map(|n| Cid::dag_cbor(&n.to_be_bytes()));
    proptest::collection::btree_map(path, value, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn three_decoders_agree_on_damaged_values(bytes in bytes_like_cbor()) {
        compare(&bytes)?;
    }

    #[test]
    fn three_decoders_agree_on_values(value in strict_value()) {
        compare(&value.encode().expect("strict"))?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn two_trees_have_one_root(keys in key_sets(), gone in any::<u64>()) {
        let mut tree = Tree::new(Box::new(MemBlockStore::new()));
        for (key, value) in &keys {
            tree.insert(key.clone(), theirs(value)).expect("a legal key");
        }
        let (root, _) = build(&keys);
        prop_assert_eq!(ours(&tree.root_cid().expect("a root")), root);
        // And after some keys are taken out again.
        let mut fewer = keys.clone();
        for key in keys.keys() {
            if Cid::raw(format!("{gone}{key}").as_bytes()).digest()[0] < 80 {
                fewer.remove(key);
                tree.remove(key).expect("a key that is there");
            }
        }
        let (root, _) = build(&fewer);
        prop_assert_eq!(ours(&tree.root_cid().expect("a root")), root);
    }
}

/// The other library's repository, and our mirror of it.
struct Pair {
    repo: Repo,
    key: Box<dyn SigningKey>,
    public: PublicKey,
    mirror: BTreeMap<String, Vec<u8>>,
    held: Option<Held>,
}

impl Pair {
    fn new(key: Box<dyn SigningKey>) -> Pair {
        let did = Did::try_from("did:plc:abcdefghijklmnopqrstuvwx").expect("a DID");
        let clock = TidClock::new(1).expect("a clock");
        let public = PublicKey::from_did_key(&key.public_key().did_key()).expect("a key");
        Pair {
            repo: Repo::new(did, clock),
            key,
            public,
            mirror: BTreeMap::new(),
            held: None,
        }
    }

    /// Lets the other library write a commit; ours must find that it applies.
    fn write(&mut self, writes: &[WriteOp]) {
        let data = self.repo.apply_writes(writes, self.key.as_ref());
        let data = data.expect("legal writes");
        let blocks = data.relevant_car().expect("a CAR");
        let paths: Vec<String> = data.ops.iter().map(|op| op.path()).collect();
        let ops = data.ops.iter().zip(&paths).map(|(op, path)| RawOp {
            action: match op.action {
                RecordAction::Create => Action::Create,
                RecordAction::Update => Action::Update,
                RecordAction::Delete => Action::Delete,
            },
            path,
            cid: op.cid.as_ref().map(ours),
            prev: op.prev.as_ref().map(ours),
        });
        let (rev, since) = (
            data.rev().to_string(),
            data.since.map(|tid| tid.to_string()),
        );
        let event = CommitEvent {
            seq: 1,
            repo: "did:plc:abcdefghijklmnopqrstuvwx",
            time: "",
            rev: &rev,
            since: since.as_deref(),
            commit: Some(ours(&data.cid)),
            blocks: &blocks,
            ops: ops.collect(),
            too_big: false,
            prev_data: data.prev_data.as_ref().map(ours),
        };
        let verdict = check_commit(&event, &self.public, self.held.as_ref(), NOW, None);
        let Verdict::Applies(checked) = verdict else {
            panic!("{verdict:?}");
        };
        for op in &checked.ops {
            match op.record {
                Some(bytes) => self.mirror.insert(op.path.to_owned(), bytes.to_vec()),
                None => self.mirror.remove(op.path),
            };
        }
        self.held = Some(Held {
            rev: checked.authentic.rev,
            data: checked.authentic.data,
            commit: checked.authentic.commit,
        });
    }

    /// Each reads the file that the other writes.
    fn exchange(&self) {
        let file = self.repo.export_car().expect("a CAR");
        let repo = RepoCar::read(&file).expect("a repository");
        let mut found = BTreeMap::new();
        let walked = repo.records::<ImportError>(|path, _, bytes| {
            found.insert(String::from_utf8_lossy(path).into_owned(), bytes.to_vec());
            Ok(())
        });
        assert_eq!(walked.map(|stats| stats.keys), Ok(self.mirror.len() as u64));
        assert_eq!(found, self.mirror);
        assert_eq!(repo.commit.verify(&self.public), Ok(()));
        assert_eq!(Some(repo.commit_cid), self.held.map(|held| held.commit));

        let keys = self.mirror.iter();
        let keys = keys.map(|(path, bytes)| (path.as_bytes(), Cid::dag_cbor(bytes)));
        let plan = Export::plan(repo.commit.block(), keys).expect("the signed root");
        let mut canonical = Vec::new();
        let record = |path: &[u8], _: &Cid| {
            let path = std::str::from_utf8(path).ok()?;
            self.mirror.get(path).map(Vec::as_slice)
        };
        let written = plan.write(record, &mut |bytes| canonical.extend_from_slice(bytes));
        assert_eq!(written, Ok(()));
        let copy = Repo::load_car(&canonical).expect("our file");
        assert_eq!(copy.head_cid(), self.repo.head_cid());
    }
}

#[test]
fn commits_that_others_write_apply() {
    let keys: [Box<dyn SigningKey>; 2] = [
        Box::new(K256SigningKey::from_bytes(&[3; 32]).expect("a key")),
        Box::new(P256SigningKey::from_bytes(&[4; 32]).expect("a key")),
    ];
    for key in keys {
        let mut pair = Pair::new(key);
        let mut dice = 1u64;
        let mut roll = |sides: u64| {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            (dice >> 33) % sides
        };
        for step in 0..120 {
            let mut writes = BTreeMap::new();
            for _ in 0..roll(8) {
                let collection = format!("com.example.c{}", roll(3));
                let rkey = roll(80).to_string();
                writes.insert((collection, rkey), roll(1_000));
            }
            let writes: Vec<WriteOp> = writes
                .into_iter()
                .map(|((collection, rkey), number)| {
                    let exists = pair.mirror.contains_key(&format!("{collection}/{rkey}"));
                    let collection = Nsid::try_from(collection.as_str()).expect("an NSID");
                    let rkey = RecordKey::try_from(rkey.as_str()).expect("a record key");
                    let record = record(number);
                    match (exists, number % 3) {
                        (false, _) => WriteOp::Create {
                            collection,
                            rkey,
                            record,
                        },
                        (true, 0) => WriteOp::Delete { collection, rkey },
                        (true, _) => WriteOp::Update {
                            collection,
                            rkey,
                            record,
                        },
                    }
                })
                .collect();
            pair.write(&writes);
            if step % 20 == 0 {
                pair.exchange();
            }
        }
        pair.exchange();
    }
}

#[test]
fn others_believe_our_signatures_and_no_forgery() {
    for curve in [Curve::K256, Curve::P256] {
        let mut author = Author::new(curve);
        author.commit(&[("com.example.a/1", Some(record(1)))]);
        let block = author.head.clone().expect("a commit").block;
        let did_key = author.key.public().to_did_key();
        let key = shrike::crypto::parse_did_key(&did_key).expect("our key");
        assert_eq!(key.to_bytes(), author.key.public().to_compressed());
        let verify = |block: &[u8]| {
            let commit = shrike::repo::Commit::from_cbor(block).ok()?;
            commit.verify(key.as_ref()).ok()
        };
        assert!(verify(&block).is_some());
        let own = |block: &[u8]| {
            let commit = gapless_atp::repo::Commit::decode(block).ok()?;
            commit.verify(author.key.public()).ok()
        };
        let mut renamed = 0;
        for bit in 0..block.len() * 8 {
            let mut forged = block.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(own(&forged), None, "bit {bit}");
            renamed += usize::from(verify(&forged).is_some());
        }
        // It passes over fields that it does not know, so it does not notice when
        // the one that is always null changes its name.
        assert!(renamed <= 8 * "prev".len(), "{renamed} forgeries pass");
    }
}
