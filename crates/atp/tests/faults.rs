//! Tests that the verifier of commits names each fault, and in the order of its checks: cheap
//! checks first, and nothing is trusted before the signature is checked.

mod common;

use common::example::{CURVES, check, example};
use common::{Author, NOW, OwnedCommit, record};
use gapless_atp::cid::Cid;
use gapless_atp::crypto::Curve;
use gapless_atp::frame::Action;
use gapless_atp::limits;
use gapless_atp::mst::{OpsError, TreeError};
use gapless_atp::syntax::Rev;
use gapless_atp::verify::{Fault, Held, Verdict};

/// An event that a test can spoil in every way.
#[derive(Clone)]
struct Sent {
    commit: OwnedCommit,
    named: Option<Cid>,
    too_big: bool,
}

impl Sent {
    fn op(&mut self, path: &str, body: Vec<u8>) {
        let cid = Cid::dag_cbor(&body);
        let path = path.to_owned();
        self.commit
            .ops
            .push((Action::Create, path, Some(cid), None));
        self.commit.blocks.push((cid, body));
    }

    /// Puts another commit block in the place of the right one.
    fn replace_commit(&mut self, block: Vec<u8>) {
        let cid = Cid::dag_cbor(&block);
        self.commit.blocks[0] = (cid, block);
        self.commit.commit = cid;
        self.named = Some(cid);
    }

    fn spoil_signature(&mut self, spoil: impl Fn(&mut [u8])) {
        let mut block = self.commit.blocks[0].1.clone();
        let at = block
            .windows(4)
            .position(|w| w == b"csig")
            .expect("a signature");
        // Behind the key and the two bytes that say how long it is.
        spoil(&mut block[at + 6..at + 70]);
        self.replace_commit(block);
    }

    fn fault(&self, author: &Author, held: &Held) -> (Option<Fault>, bool) {
        let blocks = self.commit.car();
        let mut event = self.commit.event(&blocks);
        event.commit = self.named;
        event.too_big = self.too_big;
        match check(author, &event, Some(held)) {
            Verdict::Invalid { fault, authentic } => (Some(fault), authentic.is_some()),
            _ => (None, false),
        }
    }
}

/// One way to spoil an event, and the fault that names it.
struct Spoiled {
    what: &'static str,
    spoil: fn(&mut Sent),
    names: fn(&Fault) -> bool,
    /// Whether the commit is known to be the owner's when this is found.
    signed: bool,
}

/// In the order in which they are looked for.
fn faults() -> Vec<Spoiled> {
    let unsigned = |what, spoil, names| Spoiled {
        what,
        spoil,
        names,
        signed: false,
    };
    let signed = |what, spoil, names| Spoiled {
        what,
        spoil,
        names,
        signed: true,
    };
    vec![
        unsigned(
            "rev",
            |sent| sent.commit.rev = "nonsense".to_owned(),
            |fault| matches!(fault, Fault::Rev(rev) if rev == "nonsense"),
        ),
        unsigned(
            "DID",
            |sent| sent.commit.repo = "did:key:zabc".to_owned(),
            |fault| matches!(fault, Fault::Did(did) if did == "did:key:zabc"),
        ),
        unsigned(
            "rev from the future",
            |sent| {
                let late = NOW + limits::REV_FUTURE_MICROS + 1;
                sent.commit.rev = Rev::from_micros(late, 0).to_string();
            },
            |fault| matches!(fault, Fault::FutureRev(_)),
        ),
        unsigned(
            "blocks too large",
            |sent| {
                let body = vec![0; limits::COMMIT_BLOCKS_BYTES / 2];
                let block = (Cid::raw(&body), body);
                sent.commit.blocks.extend([block.clone(), block]);
            },
            |fault| matches!(fault, Fault::BlocksSize(len, most) if len > most),
        ),
        unsigned(
            "too many operations",
            |sent| {
                for n in sent.commit.ops.len()..=limits::COMMIT_OPS {
                    sent.op(&format!("com.example.many/{n}"), record(5));
                }
            },
            |fault| *fault == Fault::Ops(limits::COMMIT_OPS + 1),
        ),
        unsigned(
            "no commit named",
            |sent| sent.named = None,
            |fault| *fault == Fault::NoCommitCid,
        ),
        unsigned(
            "a block that does not hash",
            |sent| {
                let last = sent.commit.blocks.last_mut().expect("blocks");
                last.1[3] ^= 1;
            },
            |fault| matches!(fault, Fault::Car(gapless_atp::car::CarError::Hash(_))),
        ),
        unsigned(
            "another root",
            |sent| sent.named = Some(Cid::dag_cbor(b"other")),
            |fault| *fault == Fault::OtherCommit(Cid::dag_cbor(b"other")),
        ),
        unsigned(
            "no commit block",
            |sent| drop(sent.commit.blocks.remove(0)),
            |fault| matches!(fault, Fault::NoCommitBlock(_)),
        ),
        unsigned(
            "a commit that is none",
            |sent| sent.replace_commit(record(1)),
            |fault| matches!(fault, Fault::Commit(_)),
        ),
        unsigned(
            "a commit of another account",
            |sent| sent.commit.repo = "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb".to_owned(),
            |fault| matches!(fault, Fault::OtherDid(did) if did.ends_with("uvwx")),
        ),
        unsigned(
            "a commit of another rev",
            |sent| sent.commit.rev = Rev::from_micros(NOW, 77).to_string(),
            |fault| matches!(fault, Fault::OtherRev(_)),
        ),
        unsigned(
            "a forged signature",
            |sent| sent.spoil_signature(|sig| sig[5] ^= 1),
            |fault| matches!(fault, Fault::Signature(error) if error.to_string().contains("not made by")),
        ),
        signed(
            "too big",
            |sent| sent.too_big = true,
            |fault| *fault == Fault::TooBig,
        ),
        signed(
            "a path that is none",
            |sent| sent.op("com.example.post", record(5)),
            |fault| matches!(fault, Fault::Path(_)),
        ),
        signed(
            "a path twice",
            |sent| sent.op("com.example.post/011", record(5)),
            |fault| matches!(fault, Fault::PathTwice(path) if path == "com.example.post/011"),
        ),
        signed(
            "an operation left out",
            |sent| drop(sent.commit.ops.remove(0)),
            |fault| *fault == Fault::Operations(OpsError::OtherRoot),
        ),
    ]
}

#[test]
fn every_fault_is_named_and_the_first_one_first() {
    for curve in CURVES {
        let (author, before, commit) = example(curve);
        let named = Some(commit.commit);
        let good = Sent {
            commit,
            named,
            too_big: false,
        };
        assert_eq!(good.fault(&author, &before), (None, false));
        let faults = faults();
        for (at, first) in faults.iter().enumerate() {
            let mut sent = good.clone();
            (first.spoil)(&mut sent);
            let (fault, signed) = sent.fault(&author, &before);
            let fault = fault.unwrap_or_else(|| panic!("{} is not seen", first.what));
            assert!((first.names)(&fault), "{}: {fault}", first.what);
            assert_eq!(signed, first.signed, "{}", first.what);
            // With a later fault in the same event, the earlier one is named.
            for second in &faults[at + 1..] {
                let mut both = good.clone();
                (second.spoil)(&mut both);
                (first.spoil)(&mut both);
                let (fault, _) = both.fault(&author, &before);
                let named = fault.as_ref().is_some_and(first.names);
                assert!(named, "{} and {}: {fault:?}", first.what, second.what);
            }
        }
    }
}

#[test]
fn operations_have_their_shape() {
    let (author, before, commit) = example(Curve::K256);
    let judge = |op: (Action, &str, Option<Cid>, Option<Cid>), more: &[Vec<u8>]| {
        let mut spoiled = commit.clone();
        let (action, path, cid, prev) = op;
        spoiled.ops.push((action, path.to_owned(), cid, prev));
        let more = more.iter().map(|body| (Cid::dag_cbor(body), body.clone()));
        spoiled.blocks.extend(more);
        let blocks = spoiled.car();
        match check(&author, &spoiled.event(&blocks), Some(&before)) {
            Verdict::Invalid {
                fault,
                authentic: Some(_),
            } => fault,
            other => panic!("{other:?}"),
        }
    };
    let cid = Some(Cid::dag_cbor(&record(100)));
    let new = "com.example.post/500";
    let shape = |action: &'static str| Fault::OpShape {
        path: new.to_owned(),
        action,
    };
    assert_eq!(
        judge((Action::Create, new, None, None), &[]),
        shape("create")
    );
    assert_eq!(judge((Action::Create, new, cid, cid), &[]), shape("create"));
    assert_eq!(
        judge((Action::Update, new, None, cid), &[]),
        shape("update")
    );
    assert_eq!(judge((Action::Delete, new, cid, cid), &[]), shape("delete"));

    let absent = Cid::dag_cbor(b"absent");
    let no_record = Fault::NoRecord {
        path: new.to_owned(),
        cid: absent,
    };
    let created = (Action::Create, new, Some(absent), None);
    assert_eq!(judge(created, &[]), no_record);
    let fits = vec![0; limits::RECORD_BYTES];
    let large = vec![0; limits::RECORD_BYTES + 1];
    let create = |body: &[u8]| (Action::Create, new, Some(Cid::dag_cbor(body)), None);
    let bytes = large.len();
    let path = new.to_owned();
    assert_eq!(
        judge(create(&large), std::slice::from_ref(&large)),
        Fault::RecordSize { path, bytes }
    );
    // As large as may be, it fails for another reason: it is not in the tree.
    let not_found = Fault::Operations(OpsError::Tree {
        path: new.to_owned(),
        error: TreeError::NotFound,
    });
    assert_eq!(judge(create(&fits), std::slice::from_ref(&fits)), not_found);
    for path in [
        "",
        "/",
        "com.example.post/",
        "com.example.post/a/b",
        "post/1",
        "com.example.post/é",
    ] {
        let fault = judge((Action::Create, path, cid, None), &[]);
        assert!(matches!(fault, Fault::Path(_)), "{path}: {fault}");
    }
}

#[test]
fn operations_must_be_the_ones_that_happened() {
    let (author, before, commit) = example(Curve::K256);
    let other = record(4_242);
    let wrong = Cid::dag_cbor(&other);
    let judge = |change: &dyn Fn(&mut OwnedCommit)| {
        let mut spoiled = commit.clone();
        change(&mut spoiled);
        spoiled.blocks.push((wrong, other.clone()));
        let blocks = spoiled.car();
        match check(&author, &spoiled.event(&blocks), Some(&before)) {
            Verdict::Invalid {
                fault: Fault::Operations(error),
                authentic: Some(_),
            } => error,
            other => panic!("{other:?}"),
        }
    };
    let value = |at: usize| OpsError::Value {
        path: commit.ops[at].1.clone(),
        said: wrong,
        found: commit.ops[at].2.expect("a record"),
    };
    let misfit = |path: &str, error| OpsError::Tree {
        path: path.to_owned(),
        error,
    };
    assert_eq!(judge(&|c| c.ops[0].2 = Some(wrong)), value(0));
    assert_eq!(judge(&|c| c.ops[1].2 = Some(wrong)), value(1));
    assert_eq!(judge(&|c| c.ops[1].3 = Some(wrong)), OpsError::OtherRoot);
    assert_eq!(judge(&|c| c.ops[2].3 = Some(wrong)), OpsError::OtherRoot);
    for at in 0..3 {
        assert_eq!(judge(&|c| drop(c.ops.remove(at))), OpsError::OtherRoot);
    }
    assert_eq!(judge(&|c| c.ops.clear()), OpsError::OtherRoot);
    assert_eq!(judge(&|c| c.prev_data = Some(wrong)), OpsError::OtherRoot);
    let created = commit.ops[0].1.as_str();
    // An update that was a create, a delete of what is still there.
    let updated = judge(&|c| {
        c.ops[0].0 = Action::Update;
        c.ops[0].3 = Some(wrong);
    });
    assert_eq!(updated, OpsError::OtherRoot);
    let deleted = judge(&|c| c.ops[0] = (Action::Delete, created.to_owned(), None, Some(wrong)));
    assert_eq!(deleted, misfit(created, TreeError::Exists));
    let moved = judge(&|c| c.ops[0].1 = "com.example.post/0076".to_owned());
    assert_eq!(moved, misfit("com.example.post/0076", TreeError::NotFound));
}

#[test]
fn a_high_s_is_refused_on_both_curves() {
    for (curve, order) in [
        (
            Curve::K256,
            "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141",
        ),
        (
            Curve::P256,
            "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
        ),
    ] {
        let order = data_encoding::HEXLOWER
            .decode(order.as_bytes())
            .expect("hex");
        let (author, before, commit) = example(curve);
        let named = Some(commit.commit);
        let mut sent = Sent {
            commit,
            named,
            too_big: false,
        };
        // The other s of the same signature: order minus s, digit by digit.
        sent.spoil_signature(|signature| {
            let mut borrow = 0;
            for at in (0..32).rev() {
                let digit = i16::from(order[at]) - i16::from(signature[32 + at]) - borrow;
                borrow = i16::from(digit < 0);
                signature[32 + at] = digit.rem_euclid(256) as u8;
            }
        });
        let high = gapless_atp::crypto::SignatureError::HighS;
        let fault = sent.fault(&author, &before);
        assert_eq!(fault, (Some(Fault::Signature(high)), false));
    }
}
