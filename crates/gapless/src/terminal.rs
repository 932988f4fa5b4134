//! Output for a terminal: aligned tables, and text of other parties without control
//! characters, so that it cannot change the terminal. Questions to the person at the terminal.

use std::io::{BufRead, IsTerminal, Write};

/// Prints a line on standard output. A closed standard output is ignored.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Whether a person can be asked: input and messages are those of a terminal.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks the person at the terminal, on standard error. Anything but yes is no.
pub(crate) fn ask_yes(question: &str) -> bool {
    eprint!("{question} [y/N] ");
    reads_yes(&mut std::io::stdin().lock())
}

fn reads_yes(input: &mut impl BufRead) -> bool {
    let mut line = String::new();
    let read = input.read_line(&mut line);
    read.is_ok() && matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

/// Replaces control characters except line breaks. The text may come from a host, for
/// example in an error message.
pub(crate) fn sanitize(text: &str) -> String {
    let shown = |letter: char| {
        if letter.is_control() && letter != '\n' {
            '\u{fffd}'
        } else {
            letter
        }
    };
    text.chars().map(shown).collect()
}

/// The text, or a dash if there is none.
pub(crate) fn or_dash(text: Option<&str>) -> &str {
    text.unwrap_or("-")
}

/// Formats rows below a head. Each column is as wide as its widest cell.
pub(crate) fn format_table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut cells: Vec<Vec<String>> = vec![head.iter().map(|name| (*name).to_owned()).collect()];
    for row in rows {
        cells.push(
            row.iter()
                .map(|cell| sanitize(&cell.replace('\n', " ")))
                .collect(),
        );
    }
    let width = |column: usize| {
        let of = |row: &Vec<String>| row.get(column).map_or(0, |cell| cell.chars().count());
        cells.iter().map(of).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut lines = Vec::new();
    for row in &cells {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n")
}

/// Formats an age in the largest unit that stays precise enough for a person.
pub(crate) fn format_age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_a_yes() {
        for yes in ["y\n", "Y\n", " yes \n", "YES"] {
            assert!(reads_yes(&mut yes.as_bytes()), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "no\n", "yesterday\n", "\ny\n", "j\n"] {
            assert!(!reads_yes(&mut no.as_bytes()), "{no:?}");
        }
        assert!(!reads_yes(&mut &b"\xff\n"[..]));
    }

    #[test]
    fn columns_line_up_and_escapes_do_nothing() {
        let rows = [
            vec!["a".to_owned(), "long cell".to_owned(), "x".to_owned()],
            vec!["bb\x1b[2J".to_owned(), "c\nd".to_owned(), "y".to_owned()],
        ];
        let text = format_table(&["N", "TEXT", "Z"], &rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(!text.contains('\x1b'));
        let at = |line: &str, letter| line.chars().position(|of| of == letter);
        assert_eq!(at(lines[0], 'Z'), at(lines[1], 'x'));
        assert_eq!(at(lines[0], 'Z'), at(lines[2], 'y'));
    }
}
