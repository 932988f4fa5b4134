#![no_main]
//! Verdicts on frames of any bytes, and on valid frames with a few bytes changed, which
//! must never apply as anything but the original commit.

use std::sync::OnceLock;

use gapless_atp::car::{write_block, write_header};
use gapless_atp::cid::Cid;
use gapless_atp::crypto::{Curve, PublicKey, SigningKey};
use gapless_atp::frame::{Action, CommitEvent, Event, RawOp, decode, encode_commit, encode_sync};
use gapless_atp::mst::OpAction;
use gapless_atp::repo::Commit;
use gapless_atp::syntax::Rev;
use gapless_atp::verify::{Authentic, CheckedOp, Held, Verdict, check_commit, check_sync};
use gapless_fuzz::{Keys, build, ops_between, path, record, value};
use libfuzzer_sys::fuzz_target;

const NOW: u64 = 1_770_000_000_000_000;
const DID: &str = "did:plc:abcdefghijklmnopqrstuvwx";

#[derive(arbitrary::Arbitrary, Debug)]
struct Input {
    sample: u8,
    changes: Vec<(u16, u8, u8)>,
    bytes: Vec<u8>,
}

struct Sample {
    frame: Vec<u8>,
    key: PublicKey,
    held: Held,
}

fuzz_target!(|input: Input| {
    let samples = samples();
    let sample = &samples[usize::from(input.sample) % samples.len()];
    judge(sample, &input.bytes);
    let mut frame = sample.frame.clone();
    for (at, byte, how) in &input.changes {
        let at = usize::from(*at) % frame.len();
        match how % 4 {
            0 => frame[at] = *byte,
            1 => frame[at] ^= 1 << (byte % 8),
            2 => frame.insert(at, *byte),
            _ if frame.len() > 1 => drop(frame.remove(at)),
            _ => {}
        }
    }
    judge(sample, &frame);
});

type Content<'a> = (Authentic<'a>, Cid, Vec<CheckedOp<'a>>);

fn content<'a>(sample: &Sample, frame: &'a [u8]) -> Option<Content<'a>> {
    let held = Some(&sample.held);
    match decode(frame) {
        Ok(Event::Commit(event)) => match check_commit(&event, &sample.key, held, NOW, None) {
            Verdict::Applies(checked) => Some((checked.authentic, checked.before, checked.ops)),
            Verdict::Discontinuous(_) => panic!("another history"),
            _ => None,
        },
        Ok(Event::Sync(event)) => {
            check_sync(&event, &sample.key, held, NOW);
            None
        }
        _ => None,
    }
}

fn judge(sample: &Sample, frame: &[u8]) {
    if let Some(found) = content(sample, frame) {
        assert_eq!(Some(found), content(sample, &sample.frame));
    }
}

/// Commits on both curves: a create, an update, a delete, all three, none.
fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let mut samples = Vec::new();
        for curve in [Curve::K256, Curve::P256] {
            for changes in [1, 2, 4, 7, 0] {
                samples.push(sample(curve, changes));
            }
            samples.push(sync_sample(curve));
        }
        for sample in &samples {
            let is_sync = matches!(decode(&sample.frame), Ok(Event::Sync(_)));
            assert!(is_sync || content(sample, &sample.frame).is_some());
        }
        samples
    })
}

fn signed(key: &SigningKey, rev: Rev, data: &Cid) -> (Cid, Vec<u8>) {
    let unsigned = Commit::unsigned(DID, rev, data, None);
    let block = Commit::encode(DID, rev, &key.sign(&unsigned), data, None);
    (Cid::dag_cbor(&block), block)
}

fn sample(curve: Curve, changes: u8) -> Sample {
    let key = SigningKey::from_seed(curve, &[7; 32]).expect("a seed");
    let before: Keys = (0..12)
        .map(|n| (path(2 * n).to_owned(), value(n)))
        .collect();
    let mut after = before.clone();
    if changes & 1 > 0 {
        after.insert(path(5).to_owned(), value(100));
    }
    if changes & 2 > 0 {
        after.insert(path(10).to_owned(), value(101));
    }
    if changes & 4 > 0 {
        after.remove(path(4));
    }
    let (root_before, _) = build(&before);
    let (root, store) = build(&after);
    let held = Held {
        rev: Rev::from_micros(NOW - 1_000, 1),
        data: root_before,
        commit: value(200),
    };
    let rev = Rev::from_micros(NOW - 500, 1);
    let (commit, block) = signed(&key, rev, &root);
    let mut car = Vec::new();
    write_header(&mut car, &[commit]);
    write_block(&mut car, &commit, &block);
    for (cid, block) in &store.0 {
        write_block(&mut car, cid, block);
    }
    for number in [100, 101] {
        write_block(&mut car, &value(number), &record(number));
    }
    let ops = ops_between(&before, &after);
    let ops = ops.iter().map(|op| {
        let (action, cid, prev) = match op.action {
            OpAction::Create { cid } => (Action::Create, Some(cid), None),
            OpAction::Update { cid, prev } => (Action::Update, Some(cid), Some(prev)),
            OpAction::Delete { prev } => (Action::Delete, None, Some(prev)),
        };
        RawOp {
            action,
            path: op.path,
            cid,
            prev,
        }
    });
    let frame = encode_commit(&CommitEvent {
        seq: 1,
        repo: DID,
        time: "",
        rev: &rev.to_string(),
        since: Some(&held.rev.to_string()),
        commit: Some(commit),
        blocks: &car,
        ops: ops.collect(),
        too_big: false,
        prev_data: Some(root_before),
    });
    let key = key.public().clone();
    Sample { frame, key, held }
}

fn sync_sample(curve: Curve) -> Sample {
    let mut sample = sample(curve, 0);
    let key = SigningKey::from_seed(curve, &[7; 32]).expect("a seed");
    let rev = Rev::from_micros(NOW - 500, 1);
    let (commit, block) = signed(&key, rev, &sample.held.data);
    sample.frame = encode_sync(&gapless_atp::frame::SyncEvent {
        seq: 1,
        did: DID,
        time: "",
        rev: &rev.to_string(),
        blocks: &gapless_atp::frame::sync_blocks(&commit, &block),
    });
    sample
}
