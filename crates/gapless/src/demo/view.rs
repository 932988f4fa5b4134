//! The output of the demonstration: on a terminal, the events and below them a status line
//! that is redrawn in place; elsewhere plain lines; for programs, one JSON object per line.

use std::io::{IsTerminal, Write};

use serde_json::{Value as Json, json};

use crate::demo::tally::OracleTally;
use crate::terminal::sanitize;
use gapless_store::sync::Mutex;

/// Erases the line and returns to its beginning.
const ERASE: &str = "\r\x1b[2K";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputForm {
    Terminal,
    Plain,
    Json,
}

impl OutputForm {
    pub(super) fn choose(json: bool) -> OutputForm {
        match (json, std::io::stdout().is_terminal()) {
            (true, _) => OutputForm::Json,
            (false, true) => OutputForm::Terminal,
            (false, false) => OutputForm::Plain,
        }
    }
}

/// The state of the demonstration at one moment.
pub(super) struct DemoStatus<'a> {
    pub tally: &'a OracleTally,
    pub events_per_second: u64,
    pub seconds: u64,
}

impl DemoStatus<'_> {
    /// The status line, which fits a terminal of 80 columns.
    fn line(&self) -> String {
        let tally = self.tally;
        format!(
            "{:>3} s  {} of {} complete  {} events/s  gaps {} opened {} closed  {} wrong",
            self.seconds,
            tally.complete,
            tally.repos,
            self.events_per_second,
            tally.gaps_opened,
            tally.gaps_closed,
            tally.differences,
        )
    }

    fn json(&self) -> Json {
        let tally = self.tally;
        json!({
            "event": "standing",
            "seconds": self.seconds,
            "repositories": tally.repos,
            "complete": tally.complete,
            "events_per_second": self.events_per_second,
            "gaps_opened": tally.gaps_opened,
            "gaps_closed": tally.gaps_closed,
            "checks": tally.checks,
            "records_compared": tally.records,
            "differences": tally.differences,
        })
    }
}

/// Prints events and status lines.
pub(super) struct DemoView {
    form: OutputForm,
    /// The status line that the terminal shows now.
    bottom: Mutex<Option<String>>,
}

impl DemoView {
    pub(super) fn new(form: OutputForm) -> DemoView {
        DemoView {
            form,
            bottom: Mutex::default(),
        }
    }

    /// Whether a person may be reading along.
    pub(super) fn is_watched(&self) -> bool {
        self.form == OutputForm::Terminal
    }

    /// Prints an event: words for people, the object for programs.
    pub(super) fn tell(&self, words: &str, event: &Json) {
        let words = sanitize(words);
        match self.form {
            OutputForm::Json => write(&format!("{event}\n")),
            OutputForm::Plain => write(&format!("{words}\n")),
            OutputForm::Terminal => {
                let bottom = self.bottom.lock();
                let line = bottom.as_deref().unwrap_or_default();
                write(&format!("{ERASE}{words}\n{line}"));
            }
        }
    }

    /// Redraws the status line. In plain output, [`DemoView::line`] prints the status.
    pub(super) fn redraw(&self, status: &DemoStatus<'_>) {
        match self.form {
            OutputForm::Plain => {}
            OutputForm::Json => write(&format!("{}\n", status.json())),
            OutputForm::Terminal => {
                let mut bottom = self.bottom.lock();
                let line = status.line();
                write(&format!("{ERASE}{line}"));
                *bottom = Some(line);
            }
        }
    }

    /// Prints the status as one of the lines of plain output.
    pub(super) fn line(&self, status: &DemoStatus<'_>) {
        if self.form == OutputForm::Plain {
            write(&format!("{}\n", status.line()));
        }
    }

    /// Leaves the status line as it is, above the lines that follow.
    pub(super) fn stop_redrawing(&self) {
        let mut bottom = self.bottom.lock();
        if bottom.take().is_some() {
            write("\n");
        }
    }
}

/// Writes to standard output. A closed standard output is ignored.
fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_a_terminal() {
        let tally = OracleTally {
            repos: 999,
            complete: 999,
            gaps_opened: 999,
            gaps_closed: 999,
            ..OracleTally::default()
        };
        let status = DemoStatus {
            tally: &tally,
            events_per_second: 999,
            seconds: 999,
        };
        let line = status.line();
        assert!(line.chars().count() < 80, "{line}");
    }
}
