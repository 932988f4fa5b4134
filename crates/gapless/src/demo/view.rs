//! What somebody sees: on a terminal a line that is redrawn in place below what has
//! happened; elsewhere plain lines; for programs one JSON object a line.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value as Json, json};

use crate::demo::oracle::Tally;
use crate::terminal::sanitize;

/// Erases the line, and goes back to its beginning.
const ERASE: &str = "\r\x1b[2K";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Terminal,
    Plain,
    Json,
}

impl Form {
    pub fn wanted(json: bool) -> Form {
        match (json, std::io::stdout().is_terminal()) {
            (true, _) => Form::Json,
            (false, true) => Form::Terminal,
            (false, false) => Form::Plain,
        }
    }
}

/// How things stand at a moment.
pub struct Standing<'a> {
    pub tally: &'a Tally,
    pub events_per_second: u64,
    pub seconds: u64,
}

impl Standing<'_> {
    /// Fits a terminal of 80 columns.
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

pub struct View {
    form: Form,
    /// The line at the bottom of the terminal, as it stands there.
    bottom: Mutex<Option<String>>,
}

impl View {
    pub fn new(form: Form) -> View {
        View {
            form,
            bottom: Mutex::default(),
        }
    }

    /// Whether somebody may be watching, and wants to read it.
    pub fn is_watched(&self) -> bool {
        self.form == Form::Terminal
    }

    /// Something has happened: words for people, the object for programs.
    pub fn tell(&self, words: &str, event: &Json) {
        let words = sanitize(words);
        match self.form {
            Form::Json => write(&format!("{event}\n")),
            Form::Plain => write(&format!("{words}\n")),
            Form::Terminal => {
                let bottom = self.bottom.lock().unwrap_or_else(PoisonError::into_inner);
                let line = bottom.as_deref().unwrap_or_default();
                write(&format!("{ERASE}{words}\n{line}"));
            }
        }
    }

    /// How things stand. Plain lines are not for that: they come with [`View::line`].
    pub fn redraw(&self, standing: &Standing<'_>) {
        match self.form {
            Form::Plain => {}
            Form::Json => write(&format!("{}\n", standing.json())),
            Form::Terminal => {
                let mut bottom = self.bottom.lock().unwrap_or_else(PoisonError::into_inner);
                let line = standing.line();
                write(&format!("{ERASE}{line}"));
                *bottom = Some(line);
            }
        }
    }

    /// How things stand, as a line among others.
    pub fn line(&self, standing: &Standing<'_>) {
        if self.form == Form::Plain {
            write(&format!("{}\n", standing.line()));
        }
    }

    /// Nothing is redrawn any more.
    pub fn settle(&self) {
        let mut bottom = self.bottom.lock().unwrap_or_else(PoisonError::into_inner);
        if bottom.take().is_some() {
            write("\n");
        }
    }
}

/// A reader that went away is no reason to panic.
fn write(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_a_terminal() {
        let tally = Tally {
            repos: 999,
            complete: 999,
            gaps_opened: 999,
            gaps_closed: 999,
            ..Tally::default()
        };
        let standing = Standing {
            tally: &tally,
            events_per_second: 999,
            seconds: 999,
        };
        let line = standing.line();
        assert!(line.chars().count() < 80, "{line}");
    }
}
