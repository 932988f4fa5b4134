//! What happened, in order: a hash over every step, and the last few dozen of
//! them to read.

use std::collections::VecDeque;

use crate::rng::mix;

/// Steps that are kept to be read.
const KEPT: usize = 60;

#[derive(Debug, Clone, Default)]
pub struct Trace {
    hash: u64,
    steps: u64,
    last: VecDeque<String>,
    /// Keep everything, to be read by a person.
    pub verbose: bool,
}

impl Trace {
    pub fn step(&mut self, what: String) {
        for chunk in what.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.hash = mix(self.hash ^ u64::from_le_bytes(word));
        }
        self.steps += 1;
        if self.last.len() == KEPT && !self.verbose {
            self.last.pop_front();
        }
        self.last.push_back(format!("{:>6} {what}", self.steps));
    }

    pub fn hash(&self) -> u64 {
        mix(self.hash ^ self.steps)
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The last steps, one per line.
    pub fn tail(&self) -> String {
        let lines: Vec<&str> = self.last.iter().map(String::as_str).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_step_is_another_hash() {
        let mut one = Trace::default();
        let mut two = Trace::default();
        one.step("a".to_owned());
        two.step("b".to_owned());
        assert_ne!(one.hash(), two.hash());
        assert!(one.tail().ends_with("1 a"));
    }
}
