//! The cost of verifying a live commit, from frame to verdict, in bare signature checks.
//!
//! The figure includes frame, CAR, hashes, commit, signature, operation checks, inversion and
//! chain. The limit is the one part that Gapless cannot make faster: a check by libsecp256k1
//! over a digest of an equal message, with a parsed key.

use std::hint::black_box;

use gapless_atp::frame::{Event, decode};
use gapless_atp::verify::{Verdict, check_commit};
use sha2::{Digest, Sha256};

use crate::corpus::{LiveCommit, NOW, Repo};
use crate::measure::best_of;
use crate::report::{Figure, Report, Target};

pub(crate) fn run(report: &mut Report) {
    let small = measure(report, 1_000, 2.0);
    measure(report, 40_000, 3.0);
    report.print(&Figure {
        name: "verify".to_owned(),
        ..small
    });
}

fn measure(report: &mut Report, records: usize, most: f64) -> Figure {
    let mut repo = Repo::new(records);
    let commits: Vec<LiveCommit> = (0..200).map(|_| repo.commit()).collect();
    let bare = BareCheck::new();
    let public = repo.key.public();
    let rounds = if report.quick() { 3 } else { 60 };
    let (figure, limit) = best_of(
        rounds,
        || {
            for commit in &commits {
                let Ok(Event::Commit(event)) = decode(black_box(&commit.frame)) else {
                    panic!("the corpus holds commits");
                };
                let verdict = check_commit(&event, public, Some(&commit.before), NOW, None);
                assert!(matches!(black_box(verdict), Verdict::Applies(_)));
            }
        },
        || {
            for _ in &commits {
                bare.check();
            }
        },
    );
    let count = commits.len() as f64;
    let figure = Figure {
        name: format!("verify/{records}"),
        figure: figure / count * 1e6,
        limit: limit / count * 1e6,
        unit: "us",
        against: "bare secp256k1 check",
        target: Target::AtMost(most),
    };
    report.print(&figure);
    figure
}

/// A signature check by libsecp256k1 alone: one message, one signature, one parsed key.
pub(crate) struct BareCheck {
    message: Vec<u8>,
    signature: secp256k1::ecdsa::Signature,
    key: secp256k1::PublicKey,
}

impl BareCheck {
    pub(crate) fn new() -> BareCheck {
        let message = vec![0x5a; 160];
        let signer =
            gapless_atp::crypto::SigningKey::from_seed(gapless_atp::crypto::Curve::K256, &[42; 32])
                .expect("a seed in range");
        let signature = signer.sign(&message);
        BareCheck {
            message,
            signature: secp256k1::ecdsa::Signature::from_compact(&signature)
                .expect("a signature of our own"),
            key: secp256k1::PublicKey::from_slice(&signer.public().to_compressed())
                .expect("a key of our own"),
        }
    }

    pub(crate) fn check(&self) {
        let digest = secp256k1::Message::from_digest(Sha256::digest(&self.message).into());
        let checked = secp256k1::ecdsa::verify(black_box(&self.signature), digest, &self.key);
        assert!(checked.is_ok());
    }
}
