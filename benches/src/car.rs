//! Reading a repository's CAR with every check, against SHA-256 over the same bytes.
//!
//! Hosts send blocks in any order. The headline figure is for the worst case, a random
//! order; `ordered` is a file in the order of the tree.

use std::hint::black_box;

use gapless_atp::car::{read_blocks, write_block, write_header};
use gapless_atp::repo::{ImportError, RepoCar};
use sha2::{Digest, Sha256};

use crate::corpus::{Random, Repo};
use crate::measure::best_of;
use crate::report::{Figure, Report, Target};

pub(crate) fn run(report: &mut Report) {
    measure(report, "car/1000", 1_000, true, 0.4);
    measure(report, "car/ordered", 12_000, false, 0.4);
    // No CPU cache holds 80 MB: every block is read from memory.
    measure(report, "car/200000", 200_000, false, 0.25);
    measure(report, "car/200000-random", 200_000, true, 0.2);
    measure(report, "car", 12_000, true, 0.4);
}

fn measure(report: &mut Report, name: &str, records: usize, shuffled: bool, least: f64) {
    let repo = Repo::new(records);
    let car = if shuffled {
        shuffle(&repo.car())
    } else {
        repo.car()
    };
    let public = repo.key.public();
    let rounds = if report.quick() {
        3
    } else {
        (3_000_000 / records).clamp(15, 200)
    };
    let (figure, limit) = best_of(
        rounds,
        || {
            let repo = RepoCar::read(black_box(&car)).expect("a CAR of our own");
            repo.commit.verify(public).expect("a signature of our own");
            let mut bytes = 0;
            let stats = repo.records::<ImportError>(|path, _, record| {
                bytes += path.len() + record.len();
                Ok(())
            });
            assert_eq!(stats.expect("a whole tree").keys, records as u64);
            black_box(bytes);
        },
        || {
            black_box(Sha256::digest(black_box(&car)));
        },
    );
    let megabytes = car.len() as f64 / 1e6;
    report.print(&Figure {
        name: name.to_owned(),
        figure: megabytes / figure,
        limit: megabytes / limit,
        unit: "MB/s",
        against: "bare SHA-256",
        target: Target::AtLeast(least),
    });
}

/// Rewrites a CAR with its blocks in a random order.
fn shuffle(car: &[u8]) -> Vec<u8> {
    let blocks = read_blocks(car).expect("a CAR of our own");
    let mut shuffled = Vec::with_capacity(car.len());
    write_header(&mut shuffled, blocks.roots());
    let mut blocks: Vec<_> = blocks.map(|block| block.expect("a whole block")).collect();
    let mut random = Random(blocks.len() as u64);
    for last in (1..blocks.len()).rev() {
        blocks.swap(last, random.below(last as u64 + 1) as usize);
    }
    for (cid, data) in blocks {
        write_block(&mut shuffled, &cid, data);
    }
    shuffled
}
