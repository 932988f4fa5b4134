#![no_main]
//! Any commit between two sets of keys applies and inverts. With nodes missing the answer
//! is yes or "incomplete"; with an operation changed the answer is never yes.

use gapless_atp::mst::{OpAction, OpsError, Tree, apply, invert};
use gapless_fuzz::{Keys, Store, build, ops_between, path, value};
use libfuzzer_sys::fuzz_target;

#[derive(arbitrary::Arbitrary, Debug)]
struct Input {
    before: Vec<(u8, u8)>,
    changes: Vec<(u8, Option<u8>)>,
    gone: u64,
    spoiled: (u8, u8),
}

fuzz_target!(|input: Input| {
    let pairs = input.before.iter();
    let before: Keys = pairs
        .map(|(k, v)| (path(*k).to_owned(), value(*v)))
        .collect();
    let mut after = before.clone();
    for (key, new) in &input.changes {
        match new {
            Some(new) => after.insert(path(*key).to_owned(), value(*new)),
            None => after.remove(path(*key)),
        };
    }
    let mut ops = ops_between(&before, &after);
    let (root_before, store_before) = build(&before);
    let (root_after, store_after) = build(&after);
    let applied = apply(root_before, &ops, &store_before, &mut |cid, block| {
        assert_eq!(store_after.0.get(cid).map(Vec::as_slice), Some(block));
    });
    assert_eq!(applied, Ok(root_after));

    // What a producer sends: the nodes on the way to each path, and their neighbours.
    let mut tree = Tree::open(root_after, &store_after);
    for op in &ops {
        tree.cover(op.path.as_bytes()).expect("all nodes are there");
    }
    let cids: Vec<_> = tree.untouched().collect();
    let nodes = cids.iter().map(|cid| (*cid, store_after.0[cid].clone()));
    let proof = Store(nodes.collect());
    assert_eq!(invert(root_after, root_before, &ops, &proof), Ok(()));

    let mut at = 0;
    let mut fewer = proof.clone();
    fewer.0.retain(|_, _| {
        at += 1;
        input.gone >> (at % 64) & 1 == 0
    });
    match invert(root_after, root_before, &ops, &fewer) {
        Ok(()) => {}
        Err(OpsError::Incomplete(missing)) => {
            assert!(proof.0.contains_key(&missing) && !fewer.0.contains_key(&missing));
        }
        Err(error) => panic!("{error}"),
    }

    // Another value, or one operation less, is another commit.
    if ops.is_empty() {
        return;
    }
    let (which, other) = input.spoiled;
    let spoiled = usize::from(which) % ops.len();
    let other = value(other);
    let same = match &mut ops[spoiled].action {
        OpAction::Create { cid } => std::mem::replace(cid, other) == other,
        OpAction::Update { prev, .. } | OpAction::Delete { prev } => {
            std::mem::replace(prev, other) == other
        }
    };
    if !same {
        assert!(invert(root_after, root_before, &ops, &store_after).is_err());
    }
    ops.remove(spoiled);
    assert!(invert(root_after, root_before, &ops, &store_after).is_err());
});
