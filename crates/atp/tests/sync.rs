//! Tests the verifier of `#sync` events, whose signed commit states the head of a repository.

mod common;

use common::example::{CURVES, held};
use common::{Author, NOW, car, record};
use gapless_atp::car::{CarError, write_header};
use gapless_atp::cid::Cid;
use gapless_atp::crypto::{Curve, SigningKey};
use gapless_atp::frame::{self, Event, SyncEvent, encode_sync, sync_blocks};
use gapless_atp::limits;
use gapless_atp::syntax::Rev;
use gapless_atp::verify::{Fault, Held, SyncVerdict, check_sync};

const TIME: &str = "2026-02-01T00:00:00.000Z";

/// A `#sync` that owns its bytes.
struct Sent {
    did: String,
    rev: String,
    blocks: Vec<u8>,
}

impl Sent {
    fn event(&self) -> SyncEvent<'_> {
        SyncEvent {
            seq: 1,
            did: &self.did,
            time: TIME,
            rev: &self.rev,
            blocks: &self.blocks,
        }
    }

    fn fault(&self, author: &Author) -> Fault {
        match check_sync(&self.event(), author.key.public(), None, NOW) {
            SyncVerdict::Invalid(fault) => fault,
            other => panic!("{other:?}"),
        }
    }
}

fn announced(author: &Author) -> Sent {
    let head = author.head.as_ref().expect("a commit");
    Sent {
        did: author.did.clone(),
        rev: head.rev.to_string(),
        blocks: sync_blocks(&head.commit, &head.block),
    }
}

fn author(curve: Curve) -> Author {
    let mut author = Author::new(curve);
    author.commit(&[("com.example.a/1", Some(record(1)))]);
    author
}

fn now(author: &Author) -> Held {
    held(author.head.as_ref().expect("a commit"))
}

#[test]
fn a_sync_says_whether_the_root_moved() {
    for curve in CURVES {
        let mut author = author(curve);
        let first = now(&author);
        let check = |author: &Author, sent: &Sent, held: Option<&Held>| {
            let frame = encode_sync(&sent.event());
            let Ok(Event::Sync(event)) = frame::decode(&frame) else {
                panic!("the frame is a sync");
            };
            match check_sync(&event, author.key.public(), held, NOW) {
                SyncVerdict::SameRoot(a) => ("same", Some((a.rev, a.data, a.commit))),
                SyncVerdict::OtherRoot(a) => ("other", Some((a.rev, a.data, a.commit))),
                SyncVerdict::Fork(a) => ("fork", Some((a.rev, a.data, a.commit))),
                SyncVerdict::Replay => ("replay", None),
                SyncVerdict::Invalid(fault) => panic!("{fault}"),
            }
        };
        let old = announced(&author);
        assert_eq!(check(&author, &old, Some(&first)), ("replay", None));
        let facts = |held: Held| Some((held.rev, held.data, held.commit));
        assert_eq!(check(&author, &old, None), ("other", facts(first)));

        author.commit(&[]);
        let second = now(&author);
        let same = announced(&author);
        assert_eq!(check(&author, &same, Some(&first)), ("same", facts(second)));
        author.commit(&[("com.example.a/1", None)]);
        let third = now(&author);
        let other = announced(&author);
        assert_eq!(
            check(&author, &other, Some(&second)),
            ("other", facts(third))
        );
        assert_eq!(check(&author, &old, Some(&third)), ("replay", None));
        let twin = Held {
            commit: first.commit,
            ..third
        };
        assert_eq!(check(&author, &other, Some(&twin)), ("fork", facts(third)));
    }
}

#[test]
fn the_signed_rev_counts_and_not_the_one_beside_it() {
    let author = author(Curve::K256);
    let head = now(&author);
    let mut sent = announced(&author);
    sent.rev = Rev::from_micros(NOW, 9).to_string();
    let key = author.key.public();
    let replay = check_sync(&sent.event(), key, Some(&head), NOW);
    assert_eq!(replay, SyncVerdict::Replay);
    match check_sync(&sent.event(), key, None, NOW) {
        SyncVerdict::OtherRoot(authentic) => assert_eq!(authentic.rev, head.rev),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sync_that_is_wrong_says_why() {
    let author = author(Curve::P256);
    let head = author.head.clone().expect("a commit");
    let good = || announced(&author);
    let spoiled = |spoil: &dyn Fn(&mut Sent)| {
        let mut sent = good();
        spoil(&mut sent);
        sent.fault(&author)
    };
    let future = Rev::from_micros(NOW + limits::REV_FUTURE_MICROS + 1, 0);
    assert_eq!(spoiled(&|s| s.rev.clear()), Fault::Rev(String::new()));
    let did = "did:web:".to_owned();
    assert_eq!(
        spoiled(&|s| s.did.clone_from(&did)),
        Fault::Did(did.clone())
    );
    assert_eq!(
        spoiled(&|s| s.rev = future.to_string()),
        Fault::FutureRev(future)
    );
    let most = limits::SYNC_BLOCKS_BYTES;
    let large = |s: &mut Sent| s.blocks.resize(most + 1, 0);
    assert_eq!(spoiled(&large), Fault::BlocksSize(most + 1, most));
    let cut = |s: &mut Sent| s.blocks.truncate(s.blocks.len() - 1);
    assert_eq!(spoiled(&cut), Fault::Car(CarError::Truncated));
    let rootless = |s: &mut Sent| {
        s.blocks.clear();
        write_header(&mut s.blocks, &[]);
    };
    assert_eq!(spoiled(&rootless), Fault::NoCommitCid);
    let blockless = |s: &mut Sent| s.blocks = car(head.commit, &[]);
    assert_eq!(spoiled(&blockless), Fault::NoCommitBlock(head.commit));
    let no_commit = |s: &mut Sent| {
        let block = record(1);
        s.blocks = sync_blocks(&Cid::dag_cbor(&block), &block);
    };
    assert!(matches!(spoiled(&no_commit), Fault::Commit(_)));
    let other = |s: &mut Sent| s.did = "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb".to_owned();
    assert_eq!(spoiled(&other), Fault::OtherDid(author.did.clone()));
    // Signed for a time that has not come, whatever the event says.
    let early = |s: &mut Sent| {
        let block = author.sign(future, &head.data);
        s.blocks = sync_blocks(&Cid::dag_cbor(&block), &block);
    };
    assert_eq!(spoiled(&early), Fault::FutureRev(future));

    let stranger = SigningKey::from_seed(Curve::P256, &[9; 32]).expect("a seed");
    let sent = good();
    let verdict = check_sync(&sent.event(), stranger.public(), None, NOW);
    assert!(matches!(verdict, SyncVerdict::Invalid(Fault::Signature(_))));
}

#[test]
fn no_flipped_bit_passes_for_another_commit() {
    let author = author(Curve::K256);
    let head = now(&author);
    let sent = announced(&author);
    let frame = encode_sync(&sent.event());
    for bit in 0..frame.len() * 8 {
        let mut flipped = frame.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let Ok(Event::Sync(event)) = frame::decode(&flipped) else {
            continue;
        };
        match check_sync(&event, author.key.public(), None, NOW) {
            SyncVerdict::OtherRoot(found) => {
                assert_eq!((found.did, found.rev), (author.did.as_str(), head.rev));
                assert_eq!((found.data, found.commit), (head.data, head.commit));
            }
            SyncVerdict::Invalid(_) => {}
            other => panic!("bit {bit}: {other:?}"),
        }
    }
}
