//! A repository's CAR, with every check, against SHA-256 over the same bytes.

use std::hint::black_box;

use gapless_atp::repo::{ImportError, RepoCar};
use sha2::{Digest, Sha256};

use crate::corpus::Repo;
use crate::measure::best_of;
use crate::report::{Figure, Report, Target};

pub fn run(report: &mut Report) {
    measure(report, "car/1000", 1_000);
    measure(report, "car/200000", 200_000);
    measure(report, "car", 12_000);
}

fn measure(report: &mut Report, name: &str, records: usize) {
    let repo = Repo::new(records);
    let car = repo.car();
    let public = repo.key.public();
    let rounds = match report.quick() {
        true => 3,
        false => (3_000_000 / records).clamp(15, 200),
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
        target: Target::AtLeast(0.4),
    });
}
