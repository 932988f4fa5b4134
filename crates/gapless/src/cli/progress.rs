//! Shows the progress of a long command on standard error: one changing line on a
//! terminal, a line every `LOG_INTERVAL` elsewhere. Standard output has only the answer.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const BAR_CHARS: usize = 24;
const TERMINAL_INTERVAL: Duration = Duration::from_millis(100);
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The progress of one command.
pub(crate) struct ProgressBar {
    terminal: bool,
    printed_at: Option<Instant>,
    stage: &'static str,
    /// Whether the terminal shows a line that must be cleared.
    open: bool,
}

impl ProgressBar {
    pub(crate) fn new() -> ProgressBar {
        ProgressBar {
            terminal: std::io::stderr().is_terminal(),
            printed_at: None,
            stage: "",
            open: false,
        }
    }

    /// Shows that `done` of about `of` items of a stage are done.
    pub(crate) fn update(&mut self, stage: &'static str, done: u64, of: u64) {
        let every = if self.terminal {
            TERMINAL_INTERVAL
        } else {
            LOG_INTERVAL
        };
        let due = self.printed_at.is_none_or(|at| at.elapsed() >= every);
        if !due && stage == self.stage {
            return;
        }
        // A terminal shows a stage at once. Elsewhere, a quick command prints no line.
        if self.printed_at.is_none() && !self.terminal {
            self.printed_at = Some(Instant::now());
            return;
        }
        if !due && !self.terminal {
            return;
        }
        self.printed_at = Some(Instant::now());
        self.stage = stage;
        let line = format_line(stage, done, of);
        // A closed standard error is no reason to stop.
        let _ = if self.terminal {
            write!(std::io::stderr(), "\r{line}\x1b[K")
        } else {
            writeln!(std::io::stderr(), "{line}")
        };
        self.open = self.terminal;
    }

    /// Clears the line, before the answer is printed.
    pub(crate) fn clear(&mut self) {
        if self.open {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
            self.open = false;
        }
    }
}

fn format_line(stage: &str, done: u64, of: u64) -> String {
    let of = of.max(done).max(1);
    let filled = (done as u128 * BAR_CHARS as u128 / of as u128) as usize;
    let percent = done as u128 * 100 / of as u128;
    format!(
        "{stage:<12} [{}{}] {percent:>3} %  {done}",
        "#".repeat(filled),
        "-".repeat(BAR_CHARS - filled)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far() {
        let half = format_line("records", 5, 10);
        assert!(half.contains("############------------"), "{half}");
        assert!(half.contains(" 50 %"), "{half}");
        assert!(format_line("log", 0, 0).contains("  0 %"));
        assert!(
            format_line("log", 12, 10).contains("100 %"),
            "more than was thought"
        );
    }
}
