//! Tests the tree of records (MST): known heights, roots and proofs, then arbitrary sets of
//! keys.
//!
//! The first half holds facts of the protocol's public test vectors (CC0). The second half
//! compares the five operations on a tree with each other: build, walk, apply, invert, export.

mod common;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;

use common::{Keys, Store, build, covering, ops_between};
use gapless_atp::cid::Cid;
use gapless_atp::mst::{
    Blocks, Op, OpAction, OpsError, SourceError, Tree, TreeError, TreeKeys, Visit, apply,
    common_prefix, empty_root, invert, key_height, root, walk,
};
use proptest::prelude::*;

#[test]
fn key_heights_are_as_published() {
    for (key, height) in [
        ("", 0),
        ("asdf", 0),
        ("blue", 1),
        ("2653ae71", 0),
        ("88bfafc7", 2),
        ("2a92d355", 4),
        ("884976f5", 6),
        ("app.bsky.feed.post/454397e440ec", 4),
        ("app.bsky.feed.post/9adeb165882c", 8),
    ] {
        assert_eq!(key_height(key.as_bytes()), height, "{key}");
    }
}

#[test]
fn common_prefixes_are_as_published() {
    for (a, b, len) in [
        ("", "", 0),
        ("abc", "abc", 3),
        ("", "abc", 0),
        ("ab", "abc", 2),
        ("abcde", "abc1", 3),
        ("abcde", "abb", 2),
        ("abcde", "qbb", 0),
        ("abc", "abc\0", 3),
    ] {
        assert_eq!(common_prefix(a.as_bytes(), b.as_bytes()), len);
        assert_eq!(common_prefix(b.as_bytes(), a.as_bytes()), len);
    }
}

#[test]
fn the_empty_tree_has_its_known_root() {
    let known = "bafyreie5737gdxlw5i64vzichcalba3z2v5n6icifvx5xytvske7mr3hpm";
    assert_eq!(empty_root().to_string(), known);
    assert_eq!(root([]), Ok(empty_root()));
}

/// A commit whose roots and proof the public vectors give.
struct Published {
    keys: &'static [&'static str],
    adds: &'static [&'static str],
    dels: &'static [&'static str],
    before: &'static str,
    after: &'static str,
    proof: &'static [&'static str],
}

const LEAF: &str = "bafyreie5cvv4h45feadgeuwhbcutmh6t2ceseocckahdoe6uat64zmz454";

const PUBLISHED: [Published; 6] = [
    // two deep split
    Published {
        keys: &[
            "A0/374913",
            "B1/986427",
            "C0/451630",
            "E0/670489",
            "F1/085263",
            "G0/765327",
        ],
        adds: &["D2/269196"],
        dels: &[],
        before: "bafyreicraprx2xwnico4tuqir3ozsxpz46qkcpox3obf5bagicqwurghpy",
        after: "bafyreihvay6pazw3dfa47u5d2tn3rd6pa57sr37bo5bqyvjuqc73ib65my",
        proof: &[
            "bafyreieazvzmba35p4phksumwfoklwe5o4ncmo7otud74idcyv4orrbzxi",
            "bafyreie4227qpa4vbtbpnsvuhp322b776vjuhxsidi5hxp2gawumr4m3de",
            "bafyreid44jgimksqqdratyste2moqu6zo4h6co2pknjppfoiplsqxtuxae",
            "bafyreiaerlvitye7fjjwodkshtbqqdsmfsdjtnlz4vs6y4trnddshsmd5a",
            "bafyreihvay6pazw3dfa47u5d2tn3rd6pa57sr37bo5bqyvjuqc73ib65my",
        ],
    },
    // two deep leafless split
    Published {
        keys: &["A0/374913", "B0/601692", "D0/952776", "E0/670489"],
        adds: &["C2/014073"],
        dels: &[],
        before: "bafyreialm5sgf7pijawbschsjpdevid5rss5ip3d4n4w6cc4mhu53sfl4i",
        after: "bafyreibxh4iztp5l2yshz3ectg2qjpeyprpw2gogao3pvceowpq3k3thya",
        proof: &[
            "bafyreih7dxytqtcjv3cfia3fi3wxofeip62teqkpynnkxisxqwfchfb4bu",
            "bafyreiaqbymlnvpklmogx75gozjl3y73gva43jbgwcrqu2pp5g5ejou5vm",
            "bafyreicfh3st5ghtnoqyyvznjv4lhfnvl7qsndempx35i4tcmoxakqbgrm",
            "bafyreieyjrrai6igjceyxzkajrxgxz37da2eufb33anvesb4ev6yzztauu",
            "bafyreibxh4iztp5l2yshz3ectg2qjpeyprpw2gogao3pvceowpq3k3thya",
        ],
    },
    // add on edge with neighbor two layers down
    Published {
        keys: &["A0/374913", "B2/827649", "C0/451630"],
        adds: &["D2/269196"],
        dels: &[],
        before: "bafyreigc6ay2qwfk7kuevvrczummpd64nknfo4yxpaooknfymzyb7u3ntq",
        after: "bafyreign6kxoll35r5f2ske6hjx7vg56aw3jn6r5hcopgrepzafpvohr2a",
        proof: &[
            "bafyreieazvzmba35p4phksumwfoklwe5o4ncmo7otud74idcyv4orrbzxi",
            "bafyreidicvcjgrpm5bmhm3ndh2ysqfhgzk4chwn3m4kuvwkenfusspb4uy",
            "bafyreign6kxoll35r5f2ske6hjx7vg56aw3jn6r5hcopgrepzafpvohr2a",
        ],
    },
    // merge and split in multi-op commit
    Published {
        keys: &["A0/374913", "B2/827649", "D2/269196", "E0/670489"],
        adds: &["C2/014073"],
        dels: &["B2/827649", "D2/269196"],
        before: "bafyreiceld4icym4qjmdcn3dfgtxt7t66hdgyhvigessgmkvb56dx6amgi",
        after: "bafyreigkalika3taqauapfha556lo36zzcjoiifny5xeru6yis3nxw5ruq",
        proof: &[
            "bafyreid44jgimksqqdratyste2moqu6zo4h6co2pknjppfoiplsqxtuxae",
            "bafyreihytu6onh476trave25zuo63ziebkeong2755sc5nmf55uzdawgt4",
            "bafyreigkalika3taqauapfha556lo36zzcjoiifny5xeru6yis3nxw5ruq",
            "bafyreidnnkrdkcaswbflgtdsxm7nzs7p5f2rdous6wrlupzstuwqu5pfgm",
            "bafyreia2kq243hqq3volwlzkbzzphoeqauk54sc5h7vgogq4ei5fjizxvy",
        ],
    },
    // complex multi-op commit
    Published {
        keys: &[
            "B0/601692",
            "C2/014073",
            "D0/952776",
            "E2/819540",
            "F0/697858",
            "H0/131238",
        ],
        adds: &["A2/827942", "G2/611528"],
        dels: &["C2/014073"],
        before: "bafyreigr3plnts7dax6yokvinbhcqpyicdfgg6npvvyx6okc5jo55slfqi",
        after: "bafyreiftrcrbhrwmi37u4egedlg56gk3jeh3tvmqvwgowoifuklfysyx54",
        proof: &[
            "bafyreih62n3gjbzzvlicuggpfydyzrp3ssyx7hdgtltd3sct3ribm3u73e",
            "bafyreihrjhuoynjvgteuefin5vwnqmupyfzvmytdobpstqt3mbawgw5qhm",
            "bafyreibevzst4gzkxo263syohlmq3lpxdvpjhlpyqx2ay3moh43lifydca",
            "bafyreifsdd7dv2neal7zjhyrsvndkaocelqlpgfxwo4utoq2g77klih37e",
            "bafyreid2wwyroodj2lxx2obikac74q77lsn6vqkoetlqqwwnr3criwlcvy",
            "bafyreie55b224oljhykpsxdjq4ajn2ysksud7qm347s6kn2ei6a775faum",
            "bafyreiftrcrbhrwmi37u4egedlg56gk3jeh3tvmqvwgowoifuklfysyx54",
        ],
    },
    // split with earlier leaves on same layer
    Published {
        keys: &[
            "app.bsky.feed.post/3lo3kqqljmfe2",
            "app.bsky.feed.post/3log4547dm6h2",
            "app.bsky.feed.post/3log45inogon2",
            "app.bsky.feed.post/3logaodrh74d2",
            "app.bsky.feed.post/3logteazog2n2",
            "app.bsky.feed.post/3lon5cqsbwrj2",
            "app.bsky.feed.repost/3l6sjhvqonco2",
        ],
        adds: &["app.bsky.feed.post/3lon5dzeaihj2"],
        dels: &[],
        before: "bafyreigfcsro2up7qi7l3rxdpg7n6gjtteotkmgrrqztl5oy2tf4ncl4ji",
        after: "bafyreig33hsjiplaixvmccy65n7rn3in5nsbtcittzx6k3w5wjfhk2sg3a",
        proof: &[
            "bafyreig33hsjiplaixvmccy65n7rn3in5nsbtcittzx6k3w5wjfhk2sg3a",
            "bafyreih2rhjm3apcghihwfojv2em7noqkgt5qyjcnxux7do674m464oc3m",
            "bafyreiajhswkduap4zvqvfhth3skdgckmk2eb5gow7vv3gvj45f4fqwmxm",
        ],
    },
];

impl Published {
    fn key_sets(&self) -> (Keys, Keys) {
        let leaf: Cid = LEAF.parse().unwrap();
        let before: Keys = self.keys.iter().map(|k| (k.to_string(), leaf)).collect();
        let mut after = before.clone();
        for key in self.adds {
            assert!(after.insert(key.to_string(), leaf).is_none());
        }
        for key in self.dels {
            assert!(after.remove(*key).is_some());
        }
        (before, after)
    }
}

#[test]
fn published_commits_have_their_roots_and_invert_with_their_proofs() {
    for published in &PUBLISHED {
        let (before, after) = published.key_sets();
        let (root_before, store_before) = build(&before);
        let (root_after, store_after) = build(&after);
        assert_eq!(root_before.to_string(), published.before);
        assert_eq!(root_after.to_string(), published.after);

        let ops = ops_between(&before, &after);
        let applied = apply(root_before, &ops, &store_before, &mut |_, _| ());
        assert_eq!(applied, Ok(root_after));

        let cids: Vec<Cid> = published.proof.iter().map(|c| c.parse().unwrap()).collect();
        let proof = cids.iter().map(|cid| (*cid, store_after.0[cid].clone()));
        let proof = Store(proof.collect());
        assert_eq!(invert(root_after, root_before, &ops, &proof), Ok(()));
        // What we would send is no less than what the reference sends.
        let ours = covering(root_after, &store_after, &ops);
        assert!(cids.iter().all(|cid| ours.0.contains_key(cid)));
    }
}

#[test]
fn a_proof_without_one_of_its_nodes_is_incomplete_and_never_wrong() {
    let mut incomplete = 0;
    for published in &PUBLISHED {
        let (before, after) = published.key_sets();
        let (root_before, _) = build(&before);
        let (root_after, store) = build(&after);
        let ops = ops_between(&before, &after);
        for left_out in published.proof {
            let mut proof = covering(root_after, &store, &ops);
            proof.0.remove(&left_out.parse().unwrap());
            match invert(root_after, root_before, &ops, &proof) {
                Err(OpsError::Incomplete(missing)) => {
                    assert!(store.0.contains_key(&missing));
                    incomplete += 1;
                }
                other => assert_eq!(other, Ok(())),
            }
        }
    }
    assert!(incomplete >= 20, "only {incomplete} proofs were incomplete");
}

/// Counts how often each node is asked for.
struct Counting<'s> {
    store: &'s Store,
    reads: RefCell<BTreeMap<Cid, u32>>,
}

impl Blocks for Counting<'_> {
    fn block(&self, cid: &Cid) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        *self.reads.borrow_mut().entry(*cid).or_default() += 1;
        self.store.block(cid)
    }
}

/// Keys of all heights from 0 to 3, close together.
fn key() -> impl Strategy<Value = String> {
    (0..5u8, 0..60u16)
        .prop_map(|(collection, number)| format!("com.example.c{collection}/{}", 3 * number))
}

fn value() -> impl Strategy<Value = Cid> {
    any::<u16>().prop_map(|n| Cid::dag_cbor(&n.to_be_bytes()))
}

fn keys(most: usize) -> impl Strategy<Value = Keys> {
    proptest::collection::btree_map(key(), value(), 0..most)
}

fn walked(root: Cid, store: &Store) -> Result<Keys, TreeError> {
    let mut keys = BTreeMap::new();
    walk::<TreeError>(root, store, |met| {
        if let Visit::Key { key, value, .. } = met {
            keys.insert(String::from_utf8_lossy(key).into_owned(), value);
        }
        Ok(())
    })?;
    Ok(keys)
}

/// The keys as a caller gets them that asks for one at a time.
fn pulled(root: Cid, store: &Store) -> Result<Keys, TreeError> {
    let mut keys = BTreeMap::new();
    let mut tree = TreeKeys::new(root, store.clone());
    while let Some((key, value)) = tree.next_key()? {
        keys.insert(String::from_utf8_lossy(key).into_owned(), value);
    }
    assert_eq!(tree.next_key(), Ok(None), "the end stays the end");
    Ok(keys)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn walking_what_was_built_gives_the_keys_back(keys in keys(120)) {
        let (root, store) = build(&keys);
        prop_assert_eq!(pulled(root, &store), walked(root, &store));
        prop_assert_eq!(walked(root, &store), Ok(keys));
    }

    #[test]
    fn inserting_in_any_order_gives_the_same_tree(keys in keys(60), seed in any::<u64>()) {
        let (wanted, _) = build(&keys);
        let mut order: Vec<_> = keys.iter().collect();
        order.sort_by_key(|(key, _)| Cid::raw(format!("{seed}{key}").as_bytes()));
        let empty = Store::default();
        let mut tree = Tree::open(empty_root(), &empty);
        for (key, value) in &order {
            tree.insert(key.as_bytes(), **value).unwrap();
        }
        prop_assert_eq!(tree.finish(&mut |_, _| ()), wanted);
        order.reverse();
        for (key, value) in &order {
            prop_assert_eq!(tree.get(key.as_bytes()), Ok(Some(**value)));
            prop_assert_eq!(tree.remove(key.as_bytes()), Ok(**value));
            prop_assert_eq!(tree.get(key.as_bytes()), Ok(None));
        }
        prop_assert_eq!(tree.finish(&mut |_, _| ()), empty_root());
    }

    #[test]
    fn any_commit_applies_and_inverts(before in keys(80), changes in
        proptest::collection::btree_map(key(), proptest::option::of(value()), 1..12)
    ) {
        let mut after = before.clone();
        for (key, value) in changes {
            match value {
                Some(value) => { after.insert(key, value); }
                None => { after.remove(&key); }
            }
        }
        let ops = ops_between(&before, &after);
        let (root_before, store_before) = build(&before);
        let (root_after, store_after) = build(&after);

        let mut new_nodes = Store::default();
        let applied = apply(root_before, &ops, &store_before, &mut |cid, block| {
            new_nodes.0.insert(*cid, block.to_vec());
        });
        prop_assert_eq!(applied, Ok(root_after));
        for (cid, block) in &new_nodes.0 {
            prop_assert_eq!(Some(block), store_after.0.get(cid));
        }

        // With every node, and with what a reference producer sends.
        prop_assert_eq!(invert(root_after, root_before, &ops, &store_after), Ok(()));
        let proof = covering(root_after, &store_after, &ops);
        prop_assert_eq!(invert(root_after, root_before, &ops, &proof), Ok(()));

        // One operation left out, or one more, is never accepted.
        if let Some((_, fewer)) = ops.split_last() {
            prop_assert!(invert(root_after, root_before, fewer, &store_after).is_err());
        }
        let extra = Op { path: "com.example.extra/1", action: OpAction::Delete { prev: root_after } };
        let more: Vec<_> = ops.iter().copied().chain([extra]).collect();
        prop_assert!(invert(root_after, root_before, &more, &store_after).is_err());

        // With fewer nodes the answer is yes or "incomplete", never "no".
        for left_out in proof.0.keys() {
            let mut fewer = proof.clone();
            fewer.0.remove(left_out);
            match invert(root_after, root_before, &ops, &fewer) {
                Ok(()) => {}
                Err(OpsError::Incomplete(missing)) => prop_assert_eq!(missing, *left_out),
                other => prop_assert_eq!(other, Ok(())),
            }
        }
    }

    #[test]
    fn no_node_is_read_twice(before in keys(120), after in keys(120)) {
        let ops = ops_between(&before, &after);
        let (root, store) = build(&before);
        let counting = Counting { store: &store, reads: RefCell::default() };
        prop_assert!(apply(root, &ops, &counting, &mut |_, _| ()).is_ok());
        let most = counting.reads.borrow().values().copied().max();
        prop_assert!(most.unwrap_or(0) <= 1, "a node was read {:?} times", most);
    }

    #[test]
    fn record_proofs_show_presence_and_absence(keys in keys(80), asked in key()) {
        let (root, store) = build(&keys);
        let pairs = keys.iter().map(|(key, cid)| (key.as_bytes(), *cid));
        let (proved, nodes) = gapless_atp::mst::record_proof(pairs, asked.as_bytes()).unwrap();
        prop_assert_eq!(proved, root);
        // The way down through a whole tree meets the same nodes, top first.
        let way = gapless_atp::mst::way_down(root, &store, asked.as_bytes()).unwrap();
        prop_assert_eq!(way.value, keys.get(&asked).copied());
        prop_assert!(way.nodes.iter().rev().eq(&nodes));
        let nodes = Store(nodes.into_iter().collect());
        let mut tree = Tree::open(root, &nodes);
        prop_assert_eq!(tree.get(asked.as_bytes()), Ok(keys.get(&asked).copied()));
    }

    #[test]
    fn a_changed_node_is_never_taken_for_another_tree(keys in keys(60), at in any::<prop::sample::Index>(), bit in any::<prop::sample::Index>()) {
        prop_assume!(!keys.is_empty());
        let (root, store) = build(&keys);
        let cid = *store.0.keys().nth(at.index(store.0.len())).unwrap();
        let mut block = store.0[&cid].clone();
        let bit = bit.index(block.len() * 8);
        block[bit / 8] ^= 1 << (bit % 8);
        // Under its right name the changed node makes another root ...
        prop_assert_ne!(Cid::dag_cbor(&block), cid);
        // ... and under the old one (a source that lies) it is malformed, or says
        // something else; it must not bring down the walk.
        let mut lying = store.clone();
        lying.0.insert(cid, block);
        if let Ok(found) = walked(root, &lying) {
            prop_assert_ne!(found, keys);
        }
    }
}
