//! Tests repositories as CAR files: equal records give equal bytes, and a file that is not
//! whole is refused.

mod common;

use std::collections::BTreeMap;

use common::raw::{RawEntry, mine, node, raw_node, record_of, value_of};
use common::{Author, NOW, Store, build, car, record};
use gapless_atp::car::read_blocks;
use gapless_atp::cbor::Value;
use gapless_atp::cid::Cid;
use gapless_atp::crypto::Curve;
use gapless_atp::mst::{BuildError, NodeError, Tree, TreeError, empty_root};
use gapless_atp::repo::{Commit, Export, ExportError, ImportError, RepoCar, write_record_proof};
use gapless_atp::syntax::Rev;
use proptest::prelude::*;

type Records = BTreeMap<String, Vec<u8>>;
type Block = (Cid, Vec<u8>);

const DID: &str = "did:plc:abcdefghijklmnopqrstuvwx";

fn rev() -> Rev {
    Rev::from_micros(NOW, 5)
}

// --- there and back ------------------------------------------------------------

/// An account that has written these records in one commit.
fn author(records: &Records) -> Author {
    let mut author = Author::new(Curve::K256);
    let writes: Vec<(&str, Option<Vec<u8>>)> = records
        .iter()
        .map(|(path, bytes)| (path.as_str(), Some(bytes.clone())))
        .collect();
    author.commit(&writes);
    author
}

fn commit_block(author: &Author) -> &[u8] {
    &author.head.as_ref().expect("a commit").block
}

fn export(block: &[u8], records: &Records) -> Result<Vec<u8>, ExportError> {
    let keys = records.iter();
    let keys = keys.map(|(path, bytes)| (path.as_bytes(), Cid::dag_cbor(bytes)));
    let mut file = Vec::new();
    Export::plan(block, keys)?.write(
        |path, _| {
            let path = std::str::from_utf8(path).ok()?;
            records.get(path).map(Vec::as_slice)
        },
        &mut |bytes| file.extend_from_slice(bytes),
    )?;
    Ok(file)
}

fn import(file: &[u8]) -> Result<Records, ImportError> {
    let repo = RepoCar::read(file)?;
    let mut records = Records::new();
    let stats = repo.records::<ImportError>(|path, cid, bytes| {
        assert!(cid.matches(bytes));
        let path = String::from_utf8_lossy(path).into_owned();
        assert!(records.insert(path, bytes.to_vec()).is_none());
        Ok(())
    })?;
    assert_eq!(stats.keys, records.len() as u64);
    Ok(records)
}

fn blocks_of(file: &[u8]) -> Vec<Block> {
    let blocks = read_blocks(file).expect("a CAR");
    blocks
        .map(|block| block.map(|(cid, data)| (cid, data.to_vec())))
        .collect::<Result<_, _>>()
        .expect("whole blocks")
}

/// Records over several collections; some share their bytes.
fn records() -> impl Strategy<Value = Records> {
    let path = (0..4u8, 0..200u16).prop_map(|(c, n)| format!("com.example.c{c}/{n}"));
    proptest::collection::btree_map(path, (0..40u64).prop_map(record), 0..80)
}

/// No two records alike, so that no block stands twice.
fn some_records(count: u64) -> Records {
    let path = |n: u64| format!("com.example.c{}/{n}", n % 3);
    (0..count).map(|n| (path(n), record(n))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_same_repository_is_the_same_file(records in records(), seed in any::<u64>()) {
        let author = author(&records);
        let file = export(commit_block(&author), &records).expect("a whole repository");
        prop_assert_eq!(&import(&file), &Ok(records.clone()));
        let repo = RepoCar::read(&file).expect("a repository");
        prop_assert_eq!(repo.commit.verify(author.key.public()), Ok(()));
        prop_assert_eq!(repo.commit_cid, author.head.as_ref().expect("a commit").commit);
        prop_assert_eq!(repo.commit.did, DID);
        let again = export(repo.commit.block(), &import(&file).expect("records"));
        prop_assert_eq!(again, Ok(file.clone()));

        // In any order, with a stranger among them: the same repository.
        let mut mixed = blocks_of(&file);
        mixed.push((Cid::raw(b"stranger"), b"stranger".to_vec()));
        mixed.sort_by_key(|(cid, _)| Cid::raw(format!("{seed}{cid}").as_bytes()));
        let mixed = car(repo.commit_cid, &mixed);
        prop_assert_eq!(import(&mixed), Ok(records));
    }

    #[test]
    fn each_block_is_named_by_one_before_it(records in records()) {
        let file = export(commit_block(&author(&records)), &records).expect("whole");
        let blocks = blocks_of(&file);
        let mut named = vec![blocks[0].0];
        for (cid, data) in &blocks {
            prop_assert!(named.contains(cid), "{} comes too early", cid);
            let value = Value::decode_strict(data).expect("strict");
            links(&value, &mut named);
        }
    }
}

fn links(value: &Value<'_>, into: &mut Vec<Cid>) {
    match value {
        Value::Link(cid) => into.push(*cid),
        Value::Array(items) => items.iter().for_each(|item| links(item, into)),
        Value::Map(pairs) => pairs.iter().for_each(|(_, item)| links(item, into)),
        _ => {}
    }
}

#[test]
fn blocks_stand_in_the_order_of_a_walk() {
    let paths = [mine("a", 0), mine("b", 1), mine("c", 0)];
    let records: Records = paths.iter().map(|p| (p.clone(), record_of(p))).collect();
    let [a, b, c] = paths.each_ref().map(String::as_str);
    let left = node(None, &[(a, None)]);
    let right = node(None, &[(c, None)]);
    let top = node(
        Some(Cid::dag_cbor(&left)),
        &[(b, Some(Cid::dag_cbor(&right)))],
    );
    let author = author(&records);
    let commit = commit_block(&author).to_vec();
    let file = export(&commit, &records).expect("a whole repository");
    let bodies: Vec<Vec<u8>> = blocks_of(&file).into_iter().map(|(_, b)| b).collect();
    let expected = [
        commit,
        top,
        left,
        record_of(a),
        record_of(b),
        right,
        record_of(c),
    ];
    assert_eq!(bodies, expected);
    let roots = read_blocks(&file).expect("a CAR").roots().to_vec();
    assert_eq!(roots, [Cid::dag_cbor(&bodies[0])]);
}

#[test]
fn an_empty_repository_has_a_commit_and_a_node() {
    let author = author(&Records::new());
    let file = export(commit_block(&author), &Records::new()).expect("whole");
    assert_eq!(blocks_of(&file).len(), 2);
    assert_eq!(import(&file), Ok(Records::new()));
    let missing = car(blocks_of(&file)[0].0, &blocks_of(&file)[..1]);
    let error = ImportError::Tree(TreeError::Missing(empty_root()));
    assert_eq!(import(&missing), Err(error));
}

#[test]
fn nothing_is_exported_that_is_not_whole() {
    let records = some_records(30);
    let author = author(&records);
    let block = commit_block(&author);
    let signed = author.head.as_ref().expect("a commit").data;

    let mut fewer = records.clone();
    fewer.pop_first();
    let mut more = records.clone();
    more.insert("com.example.c9/1".into(), record(1));
    let mut other = records.clone();
    other.insert("com.example.c0/0".into(), record(99));
    for wrong in [fewer, more, other, Records::new()] {
        let refused = export(block, &wrong);
        let root = matches!(refused, Err(ExportError::OtherRoot { signed: s, .. }) if s == signed);
        assert!(root, "{refused:?}");
    }
    let unsorted = [("b/1", record(1)), ("a/1", record(2))];
    let keys = unsorted.iter();
    let keys = keys.map(|(path, bytes)| (path.as_bytes(), Cid::dag_cbor(bytes)));
    let planned = Export::plan(block, keys).map(drop);
    let order = ExportError::Keys(BuildError::Order(b"a/1".to_vec()));
    assert_eq!(planned, Err(order));
    let planned = Export::plan(b"", []).map(drop);
    assert!(matches!(planned, Err(ExportError::Commit(_))));

    // The keys are right, one record's bytes are not, or not there.
    let keys = || {
        let keys = records.iter();
        keys.map(|(path, bytes)| (path.as_bytes(), Cid::dag_cbor(bytes)))
    };
    let plan = Export::plan(block, keys()).expect("the right keys");
    let victim = "com.example.c1/4";
    let bad = record(1_000);
    for swapped in [None, Some(bad.as_slice())] {
        let written = plan.write(
            |path, _| match std::str::from_utf8(path) {
                Ok(path) if path == victim => swapped,
                Ok(path) => records.get(path).map(Vec::as_slice),
                Err(_) => None,
            },
            &mut |_| (),
        );
        let cid = Cid::dag_cbor(&records[victim]);
        let path = victim.to_owned();
        assert_eq!(written, Err(ExportError::Record { path, cid }));
    }
}

// --- files that are not whole --------------------------------------------------

#[test]
fn a_file_without_any_one_block_is_refused() {
    let records = some_records(40);
    let file = export(commit_block(&author(&records)), &records).expect("whole");
    let blocks = blocks_of(&file);
    let (_, nodes) = build(&author(&records).keys());
    let mut kinds = [0; 3];
    for at in 0..blocks.len() {
        let mut fewer = blocks.clone();
        let (gone, _) = fewer.remove(at);
        let error = import(&car(blocks[0].0, &fewer)).expect_err("not whole");
        let kind = match error {
            ImportError::NoCommit(cid) if cid == gone && at == 0 => 0,
            ImportError::Tree(TreeError::Missing(cid)) if cid == gone => 1,
            ImportError::NoRecord { cid, path } if cid == gone => {
                assert_eq!(Cid::dag_cbor(&records[&path]), gone);
                2
            }
            other => panic!("block {at} left out: {other:?}"),
        };
        kinds[kind] += 1;
    }
    assert_eq!(kinds, [1, nodes.0.len(), 40]);
}

#[test]
fn a_file_cut_at_any_block_is_refused() {
    let records = some_records(60);
    let file = export(commit_block(&author(&records)), &records).expect("whole");
    let blocks = blocks_of(&file);
    for end in 0..blocks.len() {
        let cut = car(blocks[0].0, &blocks[..end]);
        assert!(file.starts_with(&cut));
        assert!(import(&cut).is_err(), "cut after {end} blocks");
    }
    let cut = import(&file[..file.len() - 1]).expect_err("not whole");
    assert!(matches!(cut, ImportError::Car(_)), "{cut:?}");
}

#[test]
fn a_file_must_name_a_commit() {
    let block = record(1);
    let cid = Cid::dag_cbor(&block);
    let no_commit = import(&car(cid, &[(cid, block)]));
    assert!(matches!(no_commit, Err(ImportError::Commit(_))));
    let mut rootless = Vec::new();
    gapless_atp::car::write_header(&mut rootless, &[]);
    assert_eq!(import(&rootless), Err(ImportError::Roots(0)));
}

/// A signed repository over any nodes at all, top first, with every record that
/// they may name.
fn signed_tree(nodes: &[Vec<u8>], paths: &[&str]) -> Vec<u8> {
    let author = Author::new(Curve::P256);
    let block = author.sign(rev(), &Cid::dag_cbor(&nodes[0]));
    let bodies = [block].into_iter().chain(nodes.iter().cloned());
    let bodies = bodies.chain(paths.iter().map(|path| record_of(path)));
    let blocks: Vec<Block> = bodies.map(|b| (Cid::dag_cbor(&b), b)).collect();
    car(blocks[0].0, &blocks)
}

#[test]
fn a_tree_that_is_not_canonical_is_refused() {
    let (a, b, c, d) = (mine("a", 0), mine("b", 1), mine("c", 0), mine("d", 2));
    let (a, b, c, d) = (a.as_str(), b.as_str(), c.as_str(), d.as_str());
    let paths = [a, b, c, d];
    let link = |block: &Vec<u8>| Some(Cid::dag_cbor(block));
    let leaf = |key: &str| node(None, &[(key, None)]);
    let (low, high) = (leaf(a), leaf(c));
    let good = node(link(&low), &[(b, link(&high))]);
    let file = signed_tree(&[good, low.clone(), high.clone()], &paths);
    assert_eq!(import(&file).map(|records| records.len()), Ok(3));

    let entry = |prefix: u64, suffix: &str| RawEntry {
        suffix: suffix.as_bytes().to_vec(),
        prefix,
        right: None,
        value: value_of(suffix),
    };
    let shared = gapless_atp::mst::common_prefix(a.as_bytes(), c.as_bytes());
    let empty = node(None, &[]);
    let void = node(link(&empty), &[]);
    let keyless = node(link(&low), &[]);
    let raw_child = node(Some(Cid::raw(&low)), &[(b, None)]);
    let prefix = |said: u64, found: usize| NodeError::Prefix { said, found };
    let height = |key, node| NodeError::Height { key, node };
    let cases: Vec<(&str, Vec<Vec<u8>>, NodeError)> = vec![
        (
            "a prefix that is too short",
            vec![raw_node(None, &[entry(0, a), entry(0, c)])],
            prefix(0, shared),
        ),
        (
            "a prefix beyond the key",
            vec![raw_node(None, &[entry(0, a), entry(99, "x")])],
            prefix(99, a.len()),
        ),
        (
            "keys that fall",
            vec![raw_node(
                None,
                &[entry(0, c), entry(shared as u64, &a[shared..])],
            )],
            NodeError::KeyOrder,
        ),
        (
            "a key twice",
            vec![raw_node(None, &[entry(0, a), entry(a.len() as u64, "")])],
            NodeError::KeyOrder,
        ),
        (
            "a key above its neighbours",
            vec![node(None, &[(a, None), (b, None)])],
            height(1, 0),
        ),
        (
            "a key below its node",
            vec![node(link(&low), &[(b, None), (c, None)]), low.clone()],
            height(0, 1),
        ),
        (
            "a level left out",
            vec![node(link(&low), &[(d, None)]), low.clone()],
            height(0, 1),
        ),
        (
            "a top without keys",
            vec![keyless.clone(), low.clone()],
            NodeError::Keyless,
        ),
        (
            "a top with nothing below",
            vec![void.clone(), empty.clone()],
            NodeError::Keyless,
        ),
        (
            "a leaf without keys",
            vec![node(link(&empty), &[(b, None)]), empty.clone()],
            NodeError::Keyless,
        ),
        (
            "a chain that ends in nothing",
            vec![node(link(&void), &[(d, None)]), void.clone(), empty.clone()],
            NodeError::Keyless,
        ),
        (
            "a subtree below the bottom",
            vec![node(link(&low), &[(c, None)]), low.clone()],
            NodeError::BelowLeaf,
        ),
        (
            "a subtree below the bottom, to the right",
            vec![node(None, &[(a, link(&high))]), high.clone()],
            NodeError::BelowLeaf,
        ),
        (
            "a subtree on the wrong side",
            vec![node(link(&high), &[(b, None)]), high.clone()],
            NodeError::KeyOrder,
        ),
        (
            "both subtrees on the wrong side",
            vec![
                node(link(&high), &[(b, link(&low))]),
                high.clone(),
                low.clone(),
            ],
            NodeError::KeyOrder,
        ),
        (
            "a subtree that is a blob",
            vec![raw_child, low.clone()],
            NodeError::Link,
        ),
    ];
    for (what, nodes, expected) in cases {
        match import(&signed_tree(&nodes, &paths)) {
            Err(ImportError::Tree(TreeError::Malformed { error, .. })) => {
                assert_eq!(error, expected, "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn a_node_has_exactly_its_fields() {
    let a = mine("a", 0);
    let good = node(None, &[(&a, None)]);
    assert!(import(&signed_tree(std::slice::from_ref(&good), &[&a])).is_ok());
    let value = Value::decode_strict(&good).expect("strict");
    let Value::Map(pairs) = &value else {
        panic!("a map");
    };
    let bytes = |pairs: &[(std::borrow::Cow<'_, str>, Value<'_>)]| {
        Value::Map(pairs.to_vec()).encode().expect("strict")
    };
    let mut more = pairs.clone();
    more.push(("zz".into(), Value::Null));
    let mut renamed = pairs.clone();
    renamed[1].0 = "m".into();
    let mut textual = good.clone();
    // The key as text instead of bytes.
    let head = textual
        .iter()
        .position(|byte| *byte == 0x58)
        .expect("a long key");
    textual[head] = 0x78;
    let longer = [&good[..], &[0xf6]].concat();
    for block in [
        bytes(&more),
        bytes(&pairs[..1]),
        bytes(&renamed),
        textual,
        longer,
    ] {
        match import(&signed_tree(&[block], &[&a])) {
            Err(ImportError::Tree(TreeError::Malformed { error, .. })) => {
                assert!(matches!(error, NodeError::Fields(..) | NodeError::Cbor(_)));
            }
            other => panic!("{other:?}"),
        }
    }
}

// --- proofs of one record --------------------------------------------------------

#[test]
fn a_proof_shows_presence_and_absence() {
    let records = some_records(200);
    let author = author(&records);
    let block = commit_block(&author);
    let keys = || {
        let keys = records.iter();
        keys.map(|(path, bytes)| (path.as_bytes(), Cid::dag_cbor(bytes)))
    };
    let absent = ["com.example.c0/1", "a", "com.example.c1/", "zzz"];
    let asked = records.keys().map(String::as_str).chain(absent);
    for path in asked {
        let held = records.get(path);
        let cid = held.map(|bytes| Cid::dag_cbor(bytes));
        let record = cid.as_ref().zip(held.map(Vec::as_slice));
        let proof = write_record_proof(block, keys(), path.as_bytes(), record);
        let proof = proof.expect("the right keys");
        if let Some((cid, _)) = record {
            let forged = Some((cid, &b"other bytes"[..]));
            let refused = write_record_proof(block, keys(), path.as_bytes(), forged);
            assert!(matches!(refused, Err(ExportError::Record { .. })));
            let silent = write_record_proof(block, keys(), path.as_bytes(), None);
            assert!(matches!(silent, Err(ExportError::Record { .. })));
        } else {
            let other = Cid::dag_cbor(b"other bytes");
            let forged = Some((&other, &b"other bytes"[..]));
            let refused = write_record_proof(block, keys(), path.as_bytes(), forged);
            assert!(matches!(refused, Err(ExportError::Record { .. })));
        }
        let map = read_blocks(&proof).and_then(|blocks| blocks.into_map());
        let map = map.expect("a CAR");
        // What a stranger does with it: signature, then the way down.
        let commit = Commit::decode(map.get(&map.roots()[0]).expect("the commit"));
        let commit = commit.expect("a commit");
        assert_eq!(commit.verify(author.key.public()), Ok(()));
        let mut tree = Tree::open(commit.data, &map);
        assert_eq!(tree.get(path.as_bytes()), Ok(cid), "{path}");
        assert_eq!(cid.and_then(|cid| map.get(&cid)), held.map(Vec::as_slice));
        // No more than the commit, the way down and the record.
        assert!(map.len() <= 8, "{} blocks", map.len());
        // Without any one of its nodes it proves nothing else.
        let nodes: Store = Store(blocks_of(&proof).into_iter().skip(1).collect());
        for gone in nodes.0.keys().filter(|gone| Some(**gone) != cid) {
            let mut fewer = nodes.clone();
            fewer.0.remove(gone);
            let mut tree = Tree::open(commit.data, &fewer);
            match tree.get(path.as_bytes()) {
                Err(TreeError::Missing(missing)) => assert_eq!(missing, *gone),
                // Absence is plain at the height of the key; what lies below is
                // sent for readers who do not look at heights.
                found => assert_eq!((found, cid), (Ok(None), None), "{path}"),
            }
        }
    }
    let fewer = keys().skip(1);
    let refused = write_record_proof(block, fewer, b"com.example.c0/0", None);
    assert!(matches!(refused, Err(ExportError::OtherRoot { .. })));
}
