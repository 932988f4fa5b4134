//! Tests that a snapshot that is not whole is refused, in memory and from disk, before any of
//! its records is handed out.

use gapless_atp::car::{write_block, write_header};
use gapless_atp::cbor::Writer;
use gapless_atp::cid::Cid;
use gapless_atp::limits;
use gapless_atp::repo::Commit;
use gapless_atp::syntax::Did;
use gapless_mirror::repair::snapshot::Snapshot;
use gapless_mirror::repair::spill::{Spill, SpillLimits};

use crate::repo::{
    BOTH, Blocks, Mirror, Repo, car, commit, did, fetch, keep_all, record, repeated, snapshot,
};

/// The class of the error that these blocks end in.
fn refusal(blocks: &Blocks, memory: usize) -> &'static str {
    let snapshot = match snapshot(blocks, memory) {
        Ok(snapshot) => snapshot,
        Err(error) => return error.class(),
    };
    let walked = snapshot.walk_whole().expect_err("the walk must refuse it");
    let error = Mirror::new().compare(&snapshot, &keep_all, false);
    let error = error.expect_err("the comparison must refuse it, too");
    assert_eq!(walked.to_string(), error.to_string());
    error.class()
}

fn kind(blocks: &Blocks, at: usize, nodes: usize) -> &'static str {
    assert!(at > 0 && at < blocks.len());
    if at <= nodes {
        "missing_node"
    } else {
        "missing_record"
    }
}

#[test]
fn whole_repositories_are_taken() {
    for memory in BOTH {
        for count in [0, 1, 2, 63, 700] {
            let repo = Repo::of(count);
            let snapshot = snapshot(&repo.blocks(), memory).unwrap();
            let stats = snapshot.walk_whole().unwrap();
            assert_eq!(stats.keys, count as u64);
            assert_eq!(stats.nodes + stats.keys + 1, snapshot.car().blocks);
            assert_eq!(snapshot.head().rev, repo.signed_rev());
            let mirror = Mirror::new();
            let totals = mirror.take(&snapshot, &keep_all, false).unwrap();
            assert_eq!((totals.puts, totals.unchanged), (count as u64, 0));
            assert_eq!(mirror.held(), repo.held());
            // The same again changes nothing.
            let again = mirror.take(&snapshot, &keep_all, false).unwrap();
            assert_eq!((again.puts, again.unchanged), (0, count as u64));
        }
    }
}

#[test]
fn without_any_one_block() {
    let blocks = Repo::of(60).blocks();
    let nodes = blocks.len() - 1 - 60;
    for memory in BOTH {
        for at in 1..blocks.len() {
            let mut fewer = blocks.clone();
            fewer.remove(at);
            assert_eq!(refusal(&fewer, memory), kind(&blocks, at, nodes), "{at}");
        }
    }
}

/// The flaw is at the end, and the chunks before it would be full.
#[test]
fn a_large_one_without_its_last_record() {
    let repo = Repo::of(3_000);
    let last = Cid::dag_cbor(repo.records.values().next_back().unwrap());
    let mut blocks = repo.blocks();
    blocks.retain(|(cid, _)| *cid != last);
    for memory in BOTH {
        // Not walked before it is compared.
        let snapshot = snapshot(&blocks, memory).unwrap();
        let error = Mirror::new().compare(&snapshot, &keep_all, false);
        assert_eq!(error.unwrap_err().class(), "missing_record");
    }
}

#[test]
fn cut_between_blocks() {
    let mut blocks = Repo::of(60).blocks();
    // Records and nodes in turns, as hosts send them.
    let nodes = blocks.len() - 1 - 60;
    blocks[1..].sort_by_key(|(cid, _)| *cid.as_bytes());
    for memory in BOTH {
        for count in 1..blocks.len() {
            let class = refusal(&blocks[..count].to_vec(), memory);
            assert!(
                ["missing_node", "missing_record"].contains(&class),
                "{class}"
            );
        }
    }
    assert!(nodes > 10);
    let mut header = Vec::new();
    write_header(&mut header, &[blocks[0].0]);
    let error = fetch(&header, 0).err().unwrap();
    assert_eq!(error.class(), "missing_commit");
}

#[test]
fn cut_inside_a_block() {
    let whole = car(&Repo::of(3).blocks());
    let mut ends = vec![0];
    let mut prefix = Vec::new();
    let blocks = Repo::of(3).blocks();
    write_header(&mut prefix, &[blocks[0].0]);
    for (cid, block) in &blocks {
        ends.push(prefix.len());
        write_block(&mut prefix, cid, block);
    }
    for end in 0..whole.len() {
        let fetched = fetch(&whole[..end], usize::MAX);
        if ends.contains(&end) && end > 0 {
            assert!(fetched.is_ok() || end == ends[1])
        } else {
            assert_eq!(fetched.err().unwrap().class(), "cut", "{end}")
        }
    }
}

#[test]
fn a_tree_with_a_needless_top() {
    let mut blocks = Repo::of(60).blocks();
    let root = Commit::decode(&blocks[0].1).unwrap().data;
    let mut writer = Writer::new();
    writer.map(2).text("e").array(0).text("l").cid(&root);
    let top = writer.into_bytes();
    let cid = Cid::dag_cbor(&top);
    blocks[0] = commit(&did(), Repo::of(60).signed_rev(), &cid);
    blocks.push((cid, top));
    for memory in BOTH {
        assert_eq!(refusal(&blocks, memory), "malformed");
    }
}

#[test]
fn the_repository_of_another_did() {
    let mut blocks = Repo::of(6).blocks();
    let root = Commit::decode(&blocks[0].1).unwrap().data;
    let other = Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").unwrap();
    blocks[0] = commit(&other, Repo::of(6).signed_rev(), &root);
    let error = snapshot(&blocks, 0).err().unwrap();
    assert_eq!(error.class(), "other_did");
    let text = error.to_string();
    assert!(
        text.contains(other.as_str()) && text.contains(did().as_str()),
        "{text}"
    );
}

#[test]
fn a_root_that_is_no_commit() {
    let mut blocks = Repo::of(6).blocks();
    blocks.remove(0);
    assert_eq!(snapshot(&blocks, 0).err().unwrap().class(), "malformed");
    let mut raw = Vec::new();
    write_header(&mut raw, &[Cid::raw(b"x")]);
    write_block(&mut raw, &Cid::raw(b"x"), b"x");
    assert_eq!(fetch(&raw, 0).err().unwrap().class(), "malformed");
    let mut none = Vec::new();
    write_header(&mut none, &[]);
    assert_eq!(fetch(&none, 0).err().unwrap().class(), "malformed");
}

#[test]
fn a_record_that_is_too_large() {
    for (bytes, class) in [
        (limits::RECORD_BYTES, None),
        (limits::RECORD_BYTES + 1, Some("too_large")),
    ] {
        let mut repo = Repo::of(6);
        repo.records
            .insert(b"com.example.thing/large".to_vec(), record(1, bytes));
        for memory in BOTH {
            let snapshot = snapshot(&repo.blocks(), memory).unwrap();
            let error = snapshot.walk_whole().err();
            assert_eq!(error.map(|error| error.class()), class);
        }
    }
}

#[test]
fn a_record_that_is_repeated_without_end() {
    for (paths, class) in [(1_000, None), (1_030, Some("too_large"))] {
        let snapshot = snapshot(&repeated(paths), 0).unwrap();
        let error = snapshot.walk_whole().err();
        assert_eq!(error.map(|error| error.class()), class);
    }
}

#[test]
fn a_block_that_is_not_its_own() {
    let mut blocks = Repo::of(6).blocks();
    blocks[3].1[0] ^= 1;
    assert_eq!(fetch(&car(&blocks), 0).err().unwrap().class(), "malformed");
}

#[test]
fn more_than_is_taken() {
    let car = car(&Repo::of(60).blocks());
    let whole = SpillLimits::default();
    let blocks = Repo::of(60).blocks().len() as u64;
    let tight = SpillLimits {
        memory: 0,
        bytes: car.len() as u64,
        blocks,
        ..whole
    };
    let fewer_bytes = SpillLimits {
        bytes: tight.bytes - 1,
        ..tight
    };
    let fewer_blocks = SpillLimits {
        blocks: blocks - 1,
        ..tight
    };
    let folder = tempfile::tempdir().unwrap();
    let feed = |limits| Spill::new(folder.path(), limits).feed(&car);
    assert!(feed(whole).is_ok() && feed(tight).is_ok());
    assert_eq!(feed(fewer_bytes).unwrap_err().class(), "too_large");
    assert_eq!(feed(fewer_blocks).unwrap_err().class(), "too_large");
}

#[test]
fn no_folder_to_put_it_aside() {
    let folder = tempfile::tempdir().unwrap();
    let limits = SpillLimits {
        memory: 0,
        ..SpillLimits::default()
    };
    let mut spill = Spill::new(&folder.path().join("gone"), limits);
    let error = spill.feed(&car(&Repo::of(6).blocks())).unwrap_err();
    assert_eq!(error.class(), "io");
    assert!(error.to_string().contains("gone"), "{error}");
}

#[test]
fn two_paths_with_one_record() {
    let mut repo = Repo::of(60);
    repo.records
        .insert(b"com.example.thing/twin".to_vec(), record(7, 40));
    let blocks = repo.blocks();
    for memory in BOTH {
        let snapshot = snapshot(&blocks, memory).unwrap();
        let mirror = Mirror::new();
        assert_eq!(mirror.take(&snapshot, &keep_all, false).unwrap().puts, 61);
        assert_eq!(mirror.held(), repo.held());
    }
    // Blocks may come twice, too.
    let twice: Blocks = blocks.iter().chain(&blocks).cloned().collect();
    let snapshot = Snapshot::check(fetch(&car(&twice), 0).unwrap(), &did()).unwrap();
    assert_eq!(snapshot.walk_whole().unwrap().keys, 61);
}

/// Enough blocks for the index to have marks.
#[test]
fn many_blocks_are_found() {
    let repo = Repo::of(70_000);
    let blocks = repo.blocks();
    let fetched = fetch(&car(&blocks), usize::MAX).unwrap();
    for (cid, block) in &blocks {
        assert_eq!(fetched.block(cid).unwrap().as_deref(), Some(&block[..]));
        assert_eq!(fetched.length(cid), Some(block.len()));
    }
    for number in 0..10_000 {
        let absent = Cid::dag_cbor(&record(number, 41));
        assert!(fetched.block(&absent).unwrap().is_none() && fetched.length(&absent).is_none());
    }
}
