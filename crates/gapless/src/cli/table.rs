//! Words on a terminal: columns that line up, and nothing that a stranger's text
//! could do to it.

use std::io::Write;

/// Prints a line. A reader that went away is no reason to panic.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Text without control characters: it may come from a host's error message.
pub fn plain(text: &str) -> String {
    let shown = |letter: char| match letter.is_control() && letter != '\n' {
        true => '\u{fffd}',
        false => letter,
    };
    text.chars().map(shown).collect()
}

/// Something or a dash.
pub fn or_dash(text: Option<&str>) -> &str {
    text.unwrap_or("-")
}

/// Rows below a head, each column as wide as its widest cell.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut cells: Vec<Vec<String>> = vec![head.iter().map(|name| (*name).to_owned()).collect()];
    for row in rows {
        cells.push(
            row.iter()
                .map(|cell| plain(&cell.replace('\n', " ")))
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

/// Seconds as a person says them.
pub fn ago(seconds: u64) -> String {
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
    fn columns_line_up_and_escapes_do_nothing() {
        let rows = [
            vec!["a".to_owned(), "long cell".to_owned(), "x".to_owned()],
            vec!["bb\x1b[2J".to_owned(), "c\nd".to_owned(), "y".to_owned()],
        ];
        let text = table(&["N", "TEXT", "Z"], &rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(!text.contains('\x1b'));
        let at = |line: &str, letter| line.chars().position(|of| of == letter);
        assert_eq!(at(lines[0], 'Z'), at(lines[1], 'x'));
        assert_eq!(at(lines[0], 'Z'), at(lines[2], 'y'));
    }
}
