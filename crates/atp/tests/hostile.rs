//! Tests trees that no honest owner writes, with correct hashes and signatures.
//!
//! Each must be refused quickly, with an error that says what is wrong, and none may be taken
//! for the tree that its keys make.

mod common;

use std::borrow::Cow;
use std::cell::Cell;

use common::raw::{RawEntry, mine, mine_many, node, raw_node, value_of};
use common::{Keys, Store, build, covering, ops_between};
use gapless_atp::cid::Cid;
use gapless_atp::limits;
use gapless_atp::mst::{
    Blocks, BuildError, NodeError, Op, OpAction, OpsError, SourceError, Tree, TreeError, TreeKeys,
    Visit, empty_root, invert, key_height, root, walk,
};

struct Borrowed<'a>(&'a dyn Blocks);

impl Blocks for Borrowed<'_> {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        self.0.block(cid)
    }
}

/// Walks a tree and gives back its keys, both by [`walk`] and by [`TreeKeys`].
fn walked(root: Cid, source: &dyn Blocks) -> Result<Vec<String>, TreeError> {
    let mut keys = Vec::new();
    let stats = walk::<TreeError>(root, source, |met| {
        if let Visit::Key { key, .. } = met {
            keys.push(String::from_utf8_lossy(key).into_owned());
        }
        Ok(())
    });
    let mut pulled = Vec::new();
    let mut tree = TreeKeys::new(root, Borrowed(source));
    let end = loop {
        match tree.next_key() {
            Ok(Some((key, _))) => pulled.push(String::from_utf8_lossy(key).into_owned()),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert_eq!((&pulled, end), (&keys, stats.clone().err()));
    stats.map(|_| keys)
}

fn store(blocks: &[&Vec<u8>]) -> Store {
    let named = blocks.iter().map(|b| (Cid::dag_cbor(b), b.to_vec()));
    Store(named.collect())
}

fn keys_of(paths: &[&str]) -> Keys {
    let named = paths.iter().map(|path| (path.to_string(), value_of(path)));
    named.collect()
}

fn create(path: &str) -> Op<'_> {
    Op {
        path,
        action: OpAction::Create {
            cid: value_of(path),
        },
    }
}

/// A tree in which undoing the one operation gives the tree before, bit for
/// bit, although it is not the tree that the operation makes of it.
fn refused(signed: &[u8], nodes: &[&Vec<u8>], before: &Keys, path: &str) {
    let (before_root, before_store) = build(before);
    let root = Cid::dag_cbor(signed);
    let mut known = store(nodes);
    known.0.insert(root, signed.to_vec());
    let mut after = before.clone();
    after.insert(path.to_owned(), value_of(path));
    assert_ne!(build(&after).0, root, "the tree is what it should be");

    let sent = invert(root, before_root, &[create(path)], &known);
    assert_ne!(sent, Ok(()), "with the nodes that were sent");
    known.0.extend(before_store.0);
    let all = invert(root, before_root, &[create(path)], &known);
    assert!(
        matches!(all, Err(OpsError::Tree { .. } | OpsError::OtherRoot)),
        "with every node: {all:?}"
    );
    assert!(walked(root, &known).is_err());
}

#[test]
fn a_subtree_on_the_wrong_side_of_a_new_key_is_refused() {
    let (a, b, c, d) = (mine("a", 0), mine("b", 1), mine("c", 0), mine("d", 0));
    let before = keys_of(&[&a, &c]);
    let low = node(None, &[(&a, None), (&c, None)]);
    // c stands left of b: its subtree was hung up without being cut.
    let signed = node(Some(Cid::dag_cbor(&low)), &[(&b, None)]);
    refused(&signed, &[], &before, &b);
    refused(&signed, &[&low], &before, &b);
    // And a stands right of it.
    let signed = node(None, &[(&b, Some(Cid::dag_cbor(&low)))]);
    refused(&signed, &[], &before, &b);
    refused(&signed, &[&low], &before, &b);
    // Cut, but in the wrong place.
    let high = node(None, &[(&d, None)]);
    let signed = node(
        Some(Cid::dag_cbor(&low)),
        &[(&b, Some(Cid::dag_cbor(&high)))],
    );
    refused(&signed, &[&low, &high], &keys_of(&[&a, &c, &d]), &b);
}

#[test]
fn a_subtree_at_the_wrong_height_is_refused() {
    let (a, b) = (mine("a", 0), mine("b", 3));
    let low = node(None, &[(&a, None)]);
    // The nodes without keys that belong between the two are left out.
    let signed = node(Some(Cid::dag_cbor(&low)), &[(&b, None)]);
    refused(&signed, &[], &keys_of(&[&a]), &b);
    refused(&signed, &[&low], &keys_of(&[&a]), &b);
}

#[test]
fn mined_keys_make_long_chains_that_stay_bounded() {
    // Each high key beside a low one forces a chain of nodes without keys.
    let mut paths = Vec::new();
    for letter in ["a", "c", "e", "g"] {
        paths.push(mine(letter, 0));
    }
    for letter in ["b", "d", "f"] {
        paths.push(mine(letter, 8));
    }
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let before = keys_of(&paths);
    let (before_root, before_store) = build(&before);
    let reads = Counting::over(&before_store);
    let stats = walk::<TreeError>(before_root, &reads, |_| Ok(()));
    let stats = stats.expect("an honest tree");
    assert_eq!((stats.keys, stats.height), (7, 8));
    // Four chains of seven empty nodes and a leaf, under one top.
    assert_eq!(stats.nodes, 1 + 4 * 8);
    assert_eq!(reads.count.get(), stats.nodes);

    // A higher key splits the whole tree; taking it out again joins it.
    let top = mine("dd", 10);
    let mut after = before.clone();
    after.insert(top.clone(), value_of(&top));
    let (root, store) = build(&after);
    let ops = ops_between(&before, &after);
    let proof = covering(root, &store, &ops);
    let reads = Counting::over(&proof);
    assert_eq!(invert(root, before_root, &ops, &reads), Ok(()));
    assert!(
        reads.count.get() <= 2 * 10 + 2,
        "{} reads",
        reads.count.get()
    );
    let back = ops_between(&after, &before);
    assert_eq!(invert(before_root, root, &back, &before_store), Ok(()));
}

#[test]
fn a_node_has_no_more_entries_than_allowed() {
    let paths = mine_many("giant", 0, limits::NODE_ENTRIES + 1);
    let entries: Vec<(&str, Option<Cid>)> = paths.iter().map(|p| (p.as_str(), None)).collect();
    let full = node(None, &entries[..limits::NODE_ENTRIES]);
    let known = store(&[&full]);
    let keys = walked(Cid::dag_cbor(&full), &known).expect("a full node");
    assert_eq!(keys, paths[..limits::NODE_ENTRIES]);
    let pairs = |count: usize| {
        let pairs = paths[..count].iter();
        root(pairs.map(|path| (path.as_bytes(), value_of(path))))
    };
    assert_eq!(pairs(limits::NODE_ENTRIES), Ok(Cid::dag_cbor(&full)));

    let over = node(None, &entries);
    let expected = NodeError::Entries(limits::NODE_ENTRIES + 1);
    assert_malformed(&over, &expected);
    assert_eq!(pairs(limits::NODE_ENTRIES + 1), Err(BuildError::Entries));

    // Nor does changing a tree make a node that could not be read again: not by
    // one key more, not by taking out the key between two halves.
    let last = paths.last().expect("keys").as_bytes();
    let mut tree = Tree::open(Cid::dag_cbor(&full), &known);
    assert_eq!(tree.insert(last, value_of("x")), Err(TreeError::Entries));
    let between = (0..)
        .map(|n: u32| format!("{}~{n}", paths[600]))
        .find(|key| key_height(key.as_bytes()) == 1)
        .expect("one key in five");
    let low = node(None, &entries[..=600]);
    let high = node(None, &entries[601..]);
    let left = Some(Cid::dag_cbor(&low));
    let top = node(left, &[(&between, Some(Cid::dag_cbor(&high)))]);
    let halves = store(&[&low, &high, &top]);
    let mut tree = Tree::open(Cid::dag_cbor(&top), &halves);
    let joined = tree.remove(between.as_bytes());
    assert_eq!(joined, Err(TreeError::Entries));
}

/// A source that counts what it is asked for.
struct Counting<'s> {
    source: &'s dyn Blocks,
    count: Cell<u64>,
}

impl<'s> Counting<'s> {
    fn over(source: &'s dyn Blocks) -> Counting<'s> {
        let count = Cell::new(0);
        Counting { source, count }
    }
}

impl Blocks for Counting<'_> {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        self.count.set(self.count.get() + 1);
        self.source.block(cid)
    }
}

/// A source that answers one block to every question but the first: hashes
/// forbid cycles, so only a lie can show one.
struct Cycle {
    top: Cid,
    first: Vec<u8>,
    rest: Vec<u8>,
}

impl Blocks for Cycle {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        let block = if *cid == self.top {
            &self.first
        } else {
            &self.rest
        };
        Ok(Some(Cow::Borrowed(block.as_slice())))
    }
}

#[test]
fn cycles_end_where_the_tree_must() {
    let again = Cid::dag_cbor(b"again");
    let top = Cid::dag_cbor(b"top");
    let (low, high, higher) = (mine("a", 0), mine("b", 9), mine("ab", 10));
    let endless = node(Some(again), &[]);
    let chain = Cycle {
        top,
        first: node(Some(again), &[(&high, Some(again))]),
        rest: endless.clone(),
    };
    let at_itself = Cycle {
        top,
        first: node(Some(top), &[(&high, None)]),
        rest: endless.clone(),
    };
    let headless = Cycle {
        top,
        first: endless.clone(),
        rest: endless,
    };
    let below_leaf = Cycle {
        top,
        first: node(Some(top), &[(&low, None)]),
        rest: Vec::new(),
    };
    let height = NodeError::Height { key: 9, node: 8 };
    for (source, expected) in [
        (chain, NodeError::BelowLeaf),
        (at_itself, height),
        (headless, NodeError::Keyless),
        (below_leaf, NodeError::BelowLeaf),
    ] {
        let reads = Counting::over(&source);
        let found = walked(top, &reads);
        assert!(
            matches!(&found, Err(TreeError::Malformed { error, .. }) if *error == expected),
            "{found:?} instead of {expected:?}"
        );
        let mut tree = Tree::open(top, &reads);
        assert!(tree.get(low.as_bytes()).is_err());
        let mut tree = Tree::open(top, &reads);
        assert!(tree.remove(high.as_bytes()).is_err());
        let mut tree = Tree::open(top, &reads);
        assert!(tree.insert(higher.as_bytes(), again).is_err());
        let mut tree = Tree::open(top, &reads);
        assert!(tree.cover(low.as_bytes()).is_err());
        assert!(reads.count.get() <= 60, "{} reads", reads.count.get());
    }
}

/// A node of each height that links twice to the one below: two to the eighth
/// paths through nine blocks, all hashes right.
#[test]
fn a_shared_subtree_fails_at_its_first_repeated_key() {
    let mut blocks = Vec::new();
    let mut child = None;
    for height in 0..=8 {
        // All in one rising row: what matters is that the subtree repeats.
        let key = mine(&format!("k{height}"), height);
        let block = node(child, &[(&key, child)]);
        child = Some(Cid::dag_cbor(&block));
        blocks.push(block);
    }
    let root = child.expect("nine nodes");
    let known = store(&blocks.iter().collect::<Vec<_>>());
    let reads = Counting::over(&known);
    let found = walked(root, &reads);
    assert!(
        matches!(
            found,
            Err(TreeError::Malformed {
                error: NodeError::KeyOrder,
                ..
            })
        ),
        "{found:?}"
    );
    assert!(reads.count.get() <= 20, "{} reads", reads.count.get());

    let wide = node(None, &[(&mine("a", 0), None)]);
    let twice = Cid::dag_cbor(&wide);
    let top = node(Some(twice), &[(&mine("b", 1), Some(twice))]);
    let known = store(&[&wide, &top]);
    assert!(walked(Cid::dag_cbor(&top), &known).is_err());
}

fn assert_malformed(block: &Vec<u8>, expected: &NodeError) {
    let cid = Cid::dag_cbor(block);
    let known = store(&[block]);
    let error = expected.clone();
    let malformed = Err(TreeError::Malformed { cid, error });
    assert_eq!(walked(cid, &known), malformed);
    let mut tree = Tree::open(cid, &known);
    assert_eq!(tree.get(b"com.example.a/1").map(drop), malformed.map(drop));
}

fn entry(prefix: u64, suffix: &str) -> RawEntry {
    RawEntry {
        suffix: suffix.as_bytes().to_vec(),
        prefix,
        right: None,
        value: value_of(suffix),
    }
}

#[test]
fn prefix_lengths_are_exact() {
    let keys = mine_many("p", 0, 2);
    let shared = gapless_atp::mst::common_prefix(keys[0].as_bytes(), keys[1].as_bytes());
    let second = |prefix: u64| {
        let suffix = keys[1].get(prefix as usize..).unwrap_or("x");
        raw_node(None, &[entry(0, &keys[0]), entry(prefix, suffix)])
    };
    let good = second(shared as u64);
    assert!(walked(Cid::dag_cbor(&good), &store(&[&good])).is_ok());

    let whole = keys[0].len();
    for said in 0..whole as u64 + 3 {
        if said == shared as u64 {
            continue;
        }
        let block = second(said);
        let found = walked(Cid::dag_cbor(&block), &store(&[&block]));
        assert!(found.is_err(), "{said}: {found:?}");
    }
    for said in [whole as u64 + 1, 1 << 32, i64::MAX as u64] {
        let found = whole;
        assert_malformed(&second(said), &NodeError::Prefix { said, found });
    }
    let error = gapless_atp::cbor::CborError::IntegerRange;
    assert_malformed(&second(u64::MAX), &NodeError::Cbor(error));
    // The first key of a node has nothing to share with.
    let first = raw_node(None, &[entry(1, "om.example.a/1")]);
    assert_malformed(&first, &NodeError::Prefix { said: 1, found: 0 });
}

#[test]
fn keys_have_one_to_1024_bytes() {
    let long = |len: usize| "k".repeat(len);
    let fits = (0..26).map(|n| format!("{}{}", long(limits::KEY_BYTES - 1), (b'a' + n) as char));
    let fits = fits.filter(|key| key_height(key.as_bytes()) == 0);
    let fits: Vec<String> = fits.collect();
    let block = node(None, &[(&fits[0], None), (&fits[1], None)]);
    let known = store(&[&block]);
    assert_eq!(
        walked(Cid::dag_cbor(&block), &known),
        Ok(fits[..2].to_vec())
    );

    let over = limits::KEY_BYTES + 1;
    let block = raw_node(None, &[entry(0, &long(over))]);
    assert_malformed(&block, &NodeError::KeyLength(over));
    // Put together from a prefix and a suffix that are both short enough.
    let block = raw_node(None, &[entry(0, &fits[0]), entry(1023, "zz")]);
    assert_malformed(&block, &NodeError::KeyLength(over));
    let block = raw_node(None, &[entry(0, "")]);
    assert_malformed(&block, &NodeError::KeyOrder);

    for len in [0, over] {
        let key = long(len);
        let none = Store::default();
        let mut tree = Tree::open(gapless_atp::mst::empty_root(), &none);
        let refused = Err(TreeError::KeyLength(len));
        assert_eq!(tree.insert(key.as_bytes(), value_of("x")), refused);
        assert_eq!(tree.get(key.as_bytes()).map(drop), refused);
        assert_eq!(tree.remove(key.as_bytes()).map(drop), refused);
        assert_eq!(
            tree.update(key.as_bytes(), value_of("x")).map(drop),
            refused
        );
        let built = root([(key.as_bytes(), value_of("x"))]);
        assert_eq!(built, Err(BuildError::KeyLength(len)));
    }
}

#[test]
fn a_source_that_fails_is_not_a_missing_node() {
    struct Broken;
    impl Blocks for Broken {
        fn block(&self, _: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
            Err(SourceError("disk on fire".to_owned()))
        }
    }
    let error = TreeError::Source(SourceError("disk on fire".to_owned()));
    let root = value_of("root");
    assert_eq!(walked(root, &Broken), Err(error.clone()));
    let path = "com.example.a/1";
    let inverted = invert(root, value_of("before"), &[create(path)], &Broken);
    let error = SourceError("disk on fire".to_owned());
    assert_eq!(inverted, Err(OpsError::Source(error)));
}

/// A source that counts what it is asked for.
struct Asked<'s>(&'s Store, Cell<usize>);

impl Blocks for Asked<'_> {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        self.1.set(self.1.get() + 1);
        self.0.block(cid)
    }
}

#[test]
fn a_node_that_many_gaps_link_is_read_once() {
    // Two subtrees, one of low keys and one of high ones, hang left and right of
    // every key that is undone: each undoing would read both again.
    let mut store = Store::default();
    let mut below = Vec::new();
    for side in ["a", "z"] {
        let keys = mine_many(side, 0, 50);
        let keys: Keys = keys.into_iter().map(|key| (key, empty_root())).collect();
        let (root, nodes) = build(&keys);
        store.0.extend(nodes.0);
        below.push(root);
    }
    let keys = mine_many("m", 1, 100);
    let entries = keys.iter().enumerate();
    let entries = entries.map(|(at, key)| (key.as_str(), Some(below[at % 2])));
    let top = node(None, &entries.collect::<Vec<_>>());
    let root = Cid::dag_cbor(&top);
    store.0.insert(root, top);
    let undone = keys.iter().skip(1).step_by(2);
    let ops: Vec<Op<'_>> = undone
        .map(|path| Op {
            path,
            action: OpAction::Create {
                cid: value_of(path),
            },
        })
        .collect();
    let asked = Asked(&store, Cell::new(0));
    let refused = invert(root, empty_root(), &ops, &asked);
    let Err(OpsError::Tree { error, .. }) = refused else {
        panic!("{refused:?}");
    };
    let twice = NodeError::Twice;
    assert!(matches!(error, TreeError::Malformed { error, .. } if error == twice));
    assert!(asked.1.get() <= 5, "{} nodes were read", asked.1.get());
}
