#![no_main]
//! A signed tree of any shape, and an operation that leads to its keys: a tree that is
//! accepted as the next one must be the tree that those keys build.

use gapless_atp::mst::{Op, OpAction, invert};
use gapless_fuzz::{Shape, Store, build, path, value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (Shape, u8, u8, u64)| {
    let (shape, choice, kind, gone) = input;
    let mut store = Store::default();
    let Some((signed, after)) = shape.plant(&mut store) else {
        return;
    };
    let path = path(choice);
    let prev = value(200);
    let mut before = after.clone();
    let action = match (after.get(path).copied(), kind % 2) {
        (Some(cid), 0) => {
            before.remove(path);
            OpAction::Create { cid }
        }
        (Some(cid), _) => {
            before.insert(path.to_owned(), prev);
            OpAction::Update { cid, prev }
        }
        (None, _) => {
            before.insert(path.to_owned(), prev);
            OpAction::Delete { prev }
        }
    };
    let ops = [Op { path, action }];
    let (root_before, nodes) = build(&before);
    let (canonical, _) = build(&after);
    // First as sent, with some of the new nodes, then with all of them.
    let mut at = 0;
    let mut sent = store.clone();
    sent.0.retain(|_, _| {
        at += 1;
        gone >> (at % 64) & 1 == 0
    });
    let mut all = store;
    all.0.extend(nodes.0);
    for source in [&sent, &all] {
        if invert(signed, root_before, &ops, source).is_ok() {
            assert_eq!(signed, canonical, "not the tree that its keys make");
        }
    }
    if signed == canonical {
        assert_eq!(invert(signed, root_before, &ops, &all), Ok(()));
    }
});
