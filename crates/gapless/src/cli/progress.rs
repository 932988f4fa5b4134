//! How far a long command is: one line that changes on a terminal, a line now and
//! then in a log. On standard error, so that it never mixes with an answer.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const BAR: usize = 24;
const ON_TERMINAL: Duration = Duration::from_millis(100);
const IN_LOG: Duration = Duration::from_secs(10);

/// Progress of one command.
pub struct Bar {
    terminal: bool,
    told: Option<Instant>,
    stage: &'static str,
    /// Whether a changing line stands on the terminal.
    open: bool,
}

impl Bar {
    pub fn new() -> Bar {
        Bar {
            terminal: std::io::stderr().is_terminal(),
            told: None,
            stage: "",
            open: false,
        }
    }

    /// `done` of about `of` of a stage.
    pub fn tell(&mut self, stage: &'static str, done: u64, of: u64) {
        let every = if self.terminal { ON_TERMINAL } else { IN_LOG };
        let due = self.told.is_none_or(|told| told.elapsed() >= every);
        if !due && stage == self.stage {
            return;
        }
        // The first word about a stage comes at once on a terminal; in a log, a
        // quick command says nothing.
        if self.told.is_none() && !self.terminal {
            self.told = Some(Instant::now());
            return;
        }
        if !due && !self.terminal {
            return;
        }
        self.told = Some(Instant::now());
        self.stage = stage;
        let line = line(stage, done, of);
        // A closed standard error is no reason to stop.
        let _ = match self.terminal {
            true => write!(std::io::stderr(), "\r{line}\x1b[K"),
            false => writeln!(std::io::stderr(), "{line}"),
        };
        self.open = self.terminal;
    }

    /// Clears the line before the answer.
    pub fn end(&mut self) {
        if self.open {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
            self.open = false;
        }
    }
}

fn line(stage: &str, done: u64, of: u64) -> String {
    let of = of.max(done).max(1);
    let filled = (done as u128 * BAR as u128 / of as u128) as usize;
    let percent = done as u128 * 100 / of as u128;
    format!(
        "{stage:<12} [{}{}] {percent:>3} %  {done}",
        "#".repeat(filled),
        "-".repeat(BAR - filled)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far() {
        let half = line("records", 5, 10);
        assert!(half.contains("############------------"), "{half}");
        assert!(half.contains(" 50 %"), "{half}");
        assert!(line("log", 0, 0).contains("  0 %"));
        assert!(
            line("log", 12, 10).contains("100 %"),
            "more than was thought"
        );
    }
}
