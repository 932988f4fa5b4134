//! Pins: the recorded results of some seeds, in `traces.txt`. A change that keeps the
//! behaviour moves no pin; the commit of a change that moves one names the seed and the
//! reason.

use crate::chaos::{Failure, Run};
use crate::mirror::book::Dump;
use crate::rng::mix;

/// Seeds that failed once, each with a note on what it found.
const FAILED_ONCE: &str = include_str!("../seeds.txt");

/// The number of pinned seeds from zero on, in addition to those that failed once.
pub(crate) const PINNED_SEEDS: u64 = 200;

/// The command that writes all pins again.
pub const COMMAND: &str = "cargo run -q -p gapless-sim -- --pins > crates/sim/traces.txt";

/// The first lines of `traces.txt`.
pub const HEADER: &str = "\
# Seed, hash of its trace, hash of the store at its end. A commit that moves a
# pin names the seed and the reason. To write the pins anew:
# cargo run -q -p gapless-sim -- --pins > crates/sim/traces.txt
";

/// The recorded result of one seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    pub seed: u64,
    /// The hash of all steps.
    pub trace: u64,
    /// The hash of all rows of the store at the end.
    pub store: u64,
}

impl Pin {
    /// Runs a seed to its end and returns its pin.
    pub fn of(seed: u64) -> Result<Pin, Box<Failure>> {
        let mut run = Run::new(seed);
        run.all().map_err(|broken| Box::new(run.failure(&broken)))?;
        Ok(Pin {
            seed,
            trace: run.trace.hash(),
            store: hash(&run.mirror.book.dump()),
        })
    }

    /// Reads a line of `traces.txt`.
    pub fn parse(line: &str) -> Option<Pin> {
        let mut words = line.split_whitespace();
        let seed = words.next()?.parse().ok()?;
        let mut hash = || u64::from_str_radix(words.next()?, 16).ok();
        Some(Pin {
            seed,
            trace: hash()?,
            store: hash()?,
        })
    }

    /// The pin as a line of `traces.txt`.
    pub fn line(&self) -> String {
        format!("{} {:016x} {:016x}", self.seed, self.trace, self.store)
    }
}

/// The seeds that failed once; the tests always run them.
pub fn failed_once() -> Vec<u64> {
    let lines = FAILED_ONCE.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_whitespace().next())
        .map(|seed| seed.parse().expect("a line begins with a seed"))
        .collect()
}

/// All pinned seeds, in order.
pub fn seeds() -> Vec<u64> {
    let mut seeds: Vec<u64> = (0..PINNED_SEEDS).chain(failed_once()).collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds
}

fn hash(dump: &Dump) -> u64 {
    let mut hash = dump.len() as u64;
    for ((table, key), row) in dump {
        for bytes in [table.name().as_bytes(), key, row] {
            hash = mix(hash ^ bytes.len() as u64);
            for chunk in bytes.chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                hash = mix(hash ^ u64::from_le_bytes(word));
            }
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use gapless_store::table::Table;

    use super::*;

    #[test]
    fn another_row_is_another_hash() {
        let mut one = Dump::new();
        one.insert((Table::Repo, vec![1]), vec![2, 0]);
        let mut two = Dump::new();
        two.insert((Table::Repo, vec![1]), vec![2]);
        let mut three = Dump::new();
        three.insert((Table::Record, vec![1]), vec![2, 0]);
        assert_ne!(hash(&one), hash(&two));
        assert_ne!(hash(&one), hash(&three));
    }

    #[test]
    fn a_pin_is_read_as_it_was_written() {
        let pin = Pin {
            seed: 7,
            trace: 0xabc,
            store: u64::MAX,
        };
        assert_eq!(Pin::parse(&pin.line()), Some(pin));
        assert_eq!(Pin::parse("7 abc"), None);
    }

    #[test]
    fn the_file_names_the_command() {
        assert!(HEADER.contains(COMMAND));
    }
}
