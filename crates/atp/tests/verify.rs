//! Tests the verifier of commits: which commits apply, and which are refused. `faults.rs` tests
//! the names of the faults and the order of the checks.

mod common;

use std::borrow::Cow;
use std::collections::BTreeMap;

use common::example::{CURVES, check, example, held};
use common::raw::{mine, node, record_of};
use common::{Author, NOW, OwnedCommit, Store, build, car, record};
use gapless_atp::cid::{CODEC_RAW, Cid};
use gapless_atp::crypto::{Curve, SigningKey};
use gapless_atp::frame::{self, Action, Event, RawOp, SyncEvent, encode_commit};
use gapless_atp::mst::{Blocks, OpsError, SourceError, TreeError, empty_root};
use gapless_atp::repo::{ImportError, RepoCar};
use gapless_atp::syntax::Rev;
use gapless_atp::verify::{Fault, Held, SyncVerdict, Verdict, check_commit, check_sync};

#[test]
fn a_commit_that_follows_what_is_held_applies() {
    for curve in CURVES {
        let (author, before, commit) = example(curve);
        // The whole way: frame, bytes, frame, verdict.
        let blocks = commit.car();
        let frame = encode_commit(&commit.event(&blocks));
        let Ok(Event::Commit(event)) = frame::decode(&frame) else {
            panic!("the frame is a commit");
        };
        let verdict = check(&author, &event, Some(&before));
        assert_eq!(verdict.class(), "applies");
        let Verdict::Applies(checked) = verdict else {
            panic!("{verdict:?}");
        };
        let head = author.head.as_ref().expect("a commit");
        assert_eq!(checked.authentic.did, author.did);
        assert_eq!(checked.authentic.rev, head.rev);
        assert_eq!(checked.authentic.data, head.data);
        assert_eq!(checked.authentic.commit, head.commit);
        assert_eq!(checked.authentic.block, head.block);
        assert_eq!(checked.before, before.data);
        assert_eq!(checked.since, Some(before.rev.to_string().as_str()));
        let ops = checked.ops.iter();
        let ops: Vec<_> = ops.map(|op| (op.action, op.path, op.record)).collect();
        let (created, updated) = (record(100), record(101));
        let expected = [
            (Action::Create, "com.example.post/0075", Some(&created[..])),
            (Action::Update, "com.example.post/011", Some(&updated[..])),
            (Action::Delete, "com.example.post/022", None),
        ];
        assert_eq!(ops, expected);
        assert_eq!(checked.ops[1].prev, Some(Cid::dag_cbor(&record(11))));
        assert_eq!(checked.ops[2].prev, Some(Cid::dag_cbor(&record(22))));
    }
}

#[test]
fn a_first_commit_applies_to_nothing() {
    for curve in CURVES {
        for paths in [
            &[][..],
            &["com.example.a/1"],
            &["com.example.a/1", "com.example.b/2"],
        ] {
            let mut author = Author::new(curve);
            let writes: Vec<_> = paths.iter().map(|p| (*p, Some(record(1)))).collect();
            let commit = author.commit(&writes);
            let blocks = commit.car();
            let verdict = check(&author, &commit.event(&blocks), None);
            let Verdict::Applies(checked) = &verdict else {
                panic!("{verdict:?}");
            };
            assert_eq!(
                (checked.before, checked.ops.len()),
                (empty_root(), paths.len())
            );
        }
    }
}

#[test]
fn what_follows_something_else_is_discontinuous() {
    let (author, before, commit) = example(Curve::K256);
    let blocks = commit.car();
    let event = commit.event(&blocks);
    let elsewhere = Held {
        data: empty_root(),
        ..before
    };
    for held in [None, Some(&elsewhere)] {
        let verdict = check(&author, &event, held);
        assert_eq!(verdict.class(), "discontinuous");
        let Verdict::Discontinuous(checked) = verdict else {
            panic!("not discontinuous");
        };
        assert_eq!(checked.before, before.data);
    }
    // A first commit where something is held.
    let mut young = Author::new(Curve::K256);
    let first = young.commit(&[("com.example.a/1", Some(record(1)))]);
    let blocks = first.car();
    let old = Held {
        rev: Rev::from_micros(1, 0),
        ..before
    };
    let verdict = check(&young, &first.event(&blocks), Some(&old));
    assert_eq!(verdict.class(), "discontinuous");
}

#[test]
fn a_commit_that_is_held_already_is_a_replay() {
    let (author, before, commit) = example(Curve::P256);
    let now = held(author.head.as_ref().expect("a commit"));
    let blocks = commit.car();
    let event = commit.event(&blocks);
    assert_eq!(check(&author, &event, Some(&now)), Verdict::Replay);
    let later = Held {
        rev: Rev::from_micros(NOW, 0),
        ..before
    };
    assert_eq!(check(&author, &event, Some(&later)).class(), "replay");
    // The same rev with another commit, signed: two histories.
    let other = Held {
        commit: before.commit,
        ..now
    };
    let verdict = check(&author, &event, Some(&other));
    assert_eq!(verdict.class(), "fork");
    let Verdict::Fork(authentic) = verdict else {
        panic!("not a fork");
    };
    assert_eq!(authentic.commit, now.commit);
    // Not signed by the owner, it is no fork but a forgery.
    let stranger = SigningKey::from_seed(Curve::P256, &[9; 32]).expect("a seed");
    let verdict = check_commit(&event, stranger.public(), Some(&other), NOW, None);
    assert_eq!(verdict.class(), "invalid");
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[test]
fn two_hundred_commits_apply_one_on_the_other() {
    for curve in CURVES {
        let mut author = Author::new(curve);
        let mut dice = Dice(curve as u64);
        let mut mirror: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut at: Option<Held> = None;
        for step in 0..200 {
            let mut writes = BTreeMap::new();
            for _ in 0..dice.roll(6) {
                let path = format!("com.example.c{}/{}", dice.roll(3), dice.roll(60));
                let body = (dice.roll(3) > 0).then(|| record(dice.roll(1_000)));
                writes.insert(path, body);
            }
            let writes: Vec<_> = writes
                .iter()
                .map(|(p, b)| (p.as_str(), b.clone()))
                .collect();
            let commit = author.commit(&writes);
            let blocks = commit.car();
            let frame = encode_commit(&commit.event(&blocks));
            let Ok(Event::Commit(event)) = frame::decode(&frame) else {
                panic!("the frame is a commit");
            };
            let verdict = check(&author, &event, at.as_ref());
            let Verdict::Applies(checked) = verdict else {
                panic!("commit {step}: {verdict:?}");
            };
            for op in &checked.ops {
                match op.record {
                    Some(bytes) => mirror.insert(op.path.to_owned(), bytes.to_vec()),
                    None => mirror.remove(op.path),
                };
            }
            assert_eq!(mirror, author.records, "commit {step}");
            let authentic = checked.authentic;
            at = Some(Held {
                rev: authentic.rev,
                data: authentic.data,
                commit: authentic.commit,
            });
        }
    }
}

#[test]
fn a_producer_without_proofs_is_legacy() {
    let (author, before, mut commit) = example(Curve::K256);
    let full = commit.clone();
    let legacy = |commit: &OwnedCommit| {
        let blocks = commit.car();
        let verdict = check(&author, &commit.event(&blocks), Some(&before));
        verdict.class()
    };
    commit.prev_data = None;
    assert_eq!(legacy(&commit), "legacy");
    // Without the nodes not even the new tree can be looked at.
    let nodes = |(cid, _): &(Cid, Vec<u8>)| {
        *cid == commit.commit || commit.ops.iter().any(|op| op.2 == Some(*cid))
    };
    let mut bare = commit.clone();
    bare.blocks.retain(nodes);
    assert_eq!(legacy(&bare), "legacy");
    // An update or a delete that does not say what was there.
    for at in [1, 2] {
        let mut commit = full.clone();
        commit.ops[at].3 = None;
        assert_eq!(legacy(&commit), "legacy");
    }
    // From a producer that says nothing of what came before at all.
    let mut silent = commit.clone();
    silent.since = None;
    assert_eq!(legacy(&silent), "legacy");

    // What can be seen to be wrong is wrong.
    let other = record(7_777);
    let lies: [(usize, Action, &str, Option<Cid>); 3] = [
        (0, Action::Create, "com.example.post/0076", full.ops[0].2),
        (
            1,
            Action::Update,
            "com.example.post/011",
            Some(Cid::dag_cbor(&other)),
        ),
        (2, Action::Delete, "com.example.post/023", None),
    ];
    for (at, action, path, cid) in lies {
        let mut lie = commit.clone();
        lie.ops[at] = (action, path.to_owned(), cid, None);
        lie.blocks.push((Cid::dag_cbor(&other), other.clone()));
        let blocks = lie.car();
        let verdict = check(&author, &lie.event(&blocks), Some(&before));
        let Verdict::Invalid { fault, authentic } = verdict else {
            panic!("{path}: {verdict:?}");
        };
        assert!(matches!(fault, Fault::Operations(_)), "{path}: {fault}");
        assert!(authentic.is_some());
    }
}

/// A source that can read nothing.
struct Broken;

impl Blocks for Broken {
    fn block(&self, _: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        Err(SourceError("disk on fire".to_owned()))
    }
}

#[test]
fn a_proof_that_lacks_a_node_is_completed_from_elsewhere() {
    for curve in CURVES {
        let (author, before, commit) = example(curve);
        let (_, store) = build(&author.keys());
        let mut incomplete = 0;
        for (gone, _) in &commit.blocks {
            if !store.0.contains_key(gone) {
                continue;
            }
            let mut fewer = commit.clone();
            fewer.blocks.retain(|(cid, _)| cid != gone);
            let blocks = fewer.car();
            let event = fewer.event(&blocks);
            let verdict = check(&author, &event, Some(&before));
            assert_eq!(verdict.class(), "proof_incomplete");
            let Verdict::ProofIncomplete { commit, missing } = verdict else {
                panic!("not incomplete");
            };
            assert_eq!((missing, commit.before), (*gone, before.data));
            incomplete += 1;
            let key = author.key.public();
            let extra = check_commit(&event, key, Some(&before), NOW, Some(&store));
            assert_eq!(extra.class(), "applies");
            let nothing = Store::default();
            let extra = check_commit(&event, key, Some(&before), NOW, Some(&nothing));
            assert_eq!(extra.class(), "proof_incomplete");
            // A source of ours that fails is not the fault of the host.
            let broken = check_commit(&event, key, Some(&before), NOW, Some(&Broken));
            assert_eq!(broken.class(), "undecided");
        }
        assert!(incomplete >= 5, "only {incomplete} nodes were needed");
    }
}

#[test]
fn a_signed_tree_that_is_not_canonical_never_applies() {
    let (a, b, c) = (mine("a", 0), mine("b", 1), mine("c", 0));
    let mut author = Author::new(Curve::K256);
    author.commit(&[(&a, Some(record_of(&a))), (&c, Some(record_of(&c)))]);
    let before = held(author.head.as_ref().expect("a commit"));
    // c left of b: undone without looking, this is the tree before.
    let low = node(None, &[(&a, None), (&c, None)]);
    let top = node(Some(Cid::dag_cbor(&low)), &[(&b, None)]);
    let rev = Rev::from_micros(NOW, 1);
    let block = author.sign(rev, &Cid::dag_cbor(&top));
    let bodies = [block, top, record_of(&b), low];
    let blocks: Vec<_> = bodies.map(|b| (Cid::dag_cbor(&b), b)).to_vec();
    let created = (
        Action::Create,
        b.clone(),
        Some(Cid::dag_cbor(&record_of(&b))),
        None,
    );
    let mut commit = OwnedCommit {
        repo: author.did.clone(),
        rev: rev.to_string(),
        since: Some(before.rev.to_string()),
        commit: blocks[0].0,
        ops: vec![created],
        blocks,
        prev_data: Some(before.data),
    };
    let side = Fault::Operations(OpsError::Tree {
        path: b.clone(),
        error: TreeError::Side,
    });
    let bytes = commit.car();
    match check(&author, &commit.event(&bytes), Some(&before)) {
        Verdict::Invalid { fault, authentic } => {
            assert_eq!((fault, authentic.is_some()), (side, true));
        }
        other => panic!("{other:?}"),
    }
    commit.blocks.pop();
    let bytes = commit.car();
    let verdict = check(&author, &commit.event(&bytes), Some(&before));
    assert_eq!(verdict.class(), "proof_incomplete");
}

#[test]
fn an_empty_commit_needs_no_nodes() {
    let (mut author, _, _) = example(Curve::P256);
    let before = held(author.head.as_ref().expect("a commit"));
    let mut commit = author.commit(&[]);
    commit.blocks.truncate(1);
    let blocks = car(commit.commit, &commit.blocks);
    let verdict = check(&author, &commit.event(&blocks), Some(&before));
    assert_eq!(verdict.class(), "applies");
}

#[test]
fn no_flipped_bit_passes_for_another_commit() {
    let mut author = Author::new(Curve::K256);
    let a = ("com.example.a/1", Some(record(1)));
    author.commit(&[a, ("com.example.a/2", Some(record(2)))]);
    let before = held(author.head.as_ref().expect("a commit"));
    let commit = author.commit(&[
        ("com.example.a/1", None),
        ("com.example.a/2", Some(record(3))),
        ("com.example.b/1", Some(record(4))),
    ]);
    let blocks = commit.car();
    let mut event = commit.event(&blocks);
    event.time = "";
    let frame = encode_commit(&event);
    let Verdict::Applies(right) = check(&author, &event, Some(&before)) else {
        panic!("the commit is good");
    };
    let mut applied = 0;
    for bit in 0..frame.len() * 8 {
        let mut flipped = frame.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Ok(Event::Commit(event)) = frame::decode(&flipped) else {
            continue;
        };
        match check(&author, &event, Some(&before)) {
            Verdict::Applies(mut checked) => {
                // `since` is not signed, and nothing rests on it.
                checked.since = right.since;
                assert_eq!(checked, right, "bit {bit}");
                applied += 1;
            }
            Verdict::Discontinuous(_) | Verdict::Fork(_) => panic!("bit {bit} is a new history"),
            _ => {}
        }
    }
    // Those in the number, in the names of unused fields and in `since`.
    assert!(applied > 0 && applied < 600, "{applied} bits mean nothing");
}

#[test]
fn raw_operations_of_any_shape_never_panic() {
    let (author, before, commit) = example(Curve::K256);
    let blocks = commit.car();
    let cids = [None, commit.ops[0].2, Some(before.data), Some(empty_root())];
    for action in [Action::Create, Action::Update, Action::Delete] {
        for path in ["com.example.post/011", "com.example.post/999", "x"] {
            for cid in cids {
                for prev in cids {
                    let mut event = commit.event(&blocks);
                    event.ops = vec![RawOp {
                        action,
                        path,
                        cid,
                        prev,
                    }];
                    for prev_data in cids {
                        event.prev_data = prev_data;
                        let verdict = check(&author, &event, Some(&before));
                        assert!(!matches!(verdict, Verdict::Applies(_)), "{verdict:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_commit_has_one_name() {
    for curve in CURVES {
        let (author, before, mut commit) = example(curve);
        let digest = commit.commit.digest().try_into().expect("32 bytes");
        let raw = Cid::from_digest(CODEC_RAW, digest);
        commit.commit = raw;
        commit.blocks[0].0 = raw;
        let blocks = commit.car();
        let verdict = check(&author, &commit.event(&blocks), Some(&before));
        let Verdict::Invalid { fault, .. } = verdict else {
            panic!("{} under another name", verdict.class());
        };
        assert_eq!(fault, Fault::CommitCodec(raw));
        let sync = SyncEvent {
            seq: 1,
            did: &commit.repo,
            time: "",
            rev: &commit.rev,
            blocks: &blocks,
        };
        let verdict = check_sync(&sync, author.key.public(), Some(&before), NOW);
        assert_eq!(verdict, SyncVerdict::Invalid(Fault::CommitCodec(raw)));
        let read = RepoCar::read(&blocks).map(|_| ());
        assert_eq!(read, Err(ImportError::Codec(raw)));
    }
}
