//! Computing a root from its keys, against only hashing the same bytes.
//!
//! The limit hashes the minimum that a root needs: every key once (its height) and every
//! node once (its CID). The target is a rate, one million keys per second, so the target
//! ratio follows from the limit of the run.

use std::hint::black_box;

use gapless_atp::cid::Cid;
use gapless_atp::mst::{Builder, ClosedNode, root};
use sha2::{Digest, Sha256};

use crate::corpus::Repo;
use crate::measure::best_of;
use crate::report::{Figure, Report, Target};

const KEYS_PER_SECOND: f64 = 1_000_000.0;

pub(crate) fn run(report: &mut Report) {
    measure(report, "root/1000", 1_000);
    measure(report, "root", 100_000);
}

fn measure(report: &mut Report, name: &str, records: usize) {
    let repo = Repo::new(records);
    let keys: Vec<(&[u8], Cid)> = repo
        .records
        .iter()
        .map(|(path, (cid, _))| (path.as_bytes(), *cid))
        .collect();
    let mut nodes = Vec::new();
    let mut builder = Builder::new(|node: ClosedNode<'_>| nodes.push(node.block.to_vec()));
    for (key, cid) in &keys {
        builder.push(key, *cid).expect("sorted keys");
    }
    assert_eq!(builder.finish(), repo.data);

    let rounds = if report.quick() {
        3
    } else {
        (5_000_000 / records).clamp(20, 500)
    };
    let (figure, limit) = best_of(
        rounds,
        || {
            let found = root(black_box(&keys).iter().copied()).expect("sorted keys");
            assert_eq!(found, repo.data);
        },
        || {
            for (key, _) in &keys {
                black_box(Sha256::digest(key));
            }
            for node in &nodes {
                black_box(Sha256::digest(node));
            }
        },
    );
    let (figure, limit) = (records as f64 / figure, records as f64 / limit);
    report.print(&Figure {
        name: name.to_owned(),
        figure,
        limit,
        unit: "keys/s",
        against: "hashing alone",
        target: Target::AtLeast(KEYS_PER_SECOND / limit),
    });
}
