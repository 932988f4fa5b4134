//! One edit, which replaces whole lines of a file.
//!
//! An edit applies only if its old lines occur exactly once in the file, so a mutant never
//! changes an unintended place or code that no longer exists.

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Edit {
    old: Vec<String>,
    new: Vec<String>,
}

impl Edit {
    /// Parses a diff without line numbers: a space before context lines, `-` before removed lines,
    /// `+` before added lines. An empty line is context.
    pub(crate) fn parse(lines: &[String]) -> Result<Edit, String> {
        let mut edit = Edit {
            old: Vec::new(),
            new: Vec::new(),
        };
        for line in lines {
            let mut rest = line.chars();
            let mark = rest.next();
            let text = rest.as_str().to_string();
            match mark {
                Some('-') => edit.old.push(text),
                Some('+') => edit.new.push(text),
                _ => {
                    edit.old.push(text.clone());
                    edit.new.push(text);
                }
            }
        }
        if edit.old == edit.new {
            return Err("there is no edit, or one that changes nothing".to_string());
        }
        if edit.old.iter().all(|line| line.trim().is_empty()) {
            return Err("the edit has no old line that says where it belongs".to_string());
        }
        Ok(edit)
    }

    /// Applies the edit to a text. The error says why the edit does not fit.
    pub(crate) fn apply(&self, text: &str) -> Result<String, String> {
        let lines: Vec<&str> = text.split('\n').collect();
        let places: Vec<usize> = lines
            .windows(self.old.len())
            .enumerate()
            .filter(|(_, window)| window.iter().zip(&self.old).all(|(a, b)| a == b))
            .map(|(at, _)| at)
            .collect();
        let at = match places[..] {
            [at] => at,
            [] => return Err(format!("{} no longer there", self.shown())),
            [first, second, ..] => {
                return Err(format!(
                    "{} there {} times (lines {}, {}), not once: add a line around it",
                    self.shown(),
                    places.len(),
                    first + 1,
                    second + 1
                ));
            }
        };
        let mut edited: Vec<&str> = lines[..at].to_vec();
        edited.extend(self.new.iter().map(String::as_str));
        edited.extend(&lines[at + self.old.len()..]);
        Ok(edited.join("\n"))
    }

    fn shown(&self) -> String {
        let first = self.old.first().map_or("", |line| line.trim());
        match self.old.len() {
            1 => format!("its old line `{first}` is"),
            count => format!("its {count} old lines from `{first}` on are"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(lines: &[&str]) -> Result<Edit, String> {
        let owned: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
        Edit::parse(&owned)
    }

    #[test]
    fn lines_go_and_come_where_the_others_stay() {
        let edit = edit(&[" a", "-b", "-c", "+B", " d"]).unwrap();
        assert_eq!(edit.apply("x\na\nb\nc\nd\n").unwrap(), "x\na\nB\nd\n");
        assert_eq!(edit.apply("a\nb\nc\nd").unwrap(), "a\nB\nd");
    }

    #[test]
    fn lines_only_go_or_only_come() {
        let gone = edit(&["-sync();"]).unwrap();
        assert_eq!(gone.apply("write();\nsync();\n").unwrap(), "write();\n");
        let come = edit(&[" write();", "+write();"]).unwrap();
        assert_eq!(come.apply("write();\n").unwrap(), "write();\nwrite();\n");
    }

    #[test]
    fn old_lines_that_are_gone_are_refused() {
        let why = edit(&["-b", "+c"]).unwrap().apply("ab\n b\n").unwrap_err();
        assert_eq!(why, "its old line `b` is no longer there");
        let long = edit(&["-b", "-c", "+c"]).unwrap();
        assert!(long.apply("b").is_err());
    }

    #[test]
    fn old_lines_that_are_there_twice_are_refused() {
        let why = edit(&["-  b", "- c"])
            .unwrap()
            .apply("  b\n c\nx\n  b\n c\n")
            .unwrap_err();
        assert!(why.starts_with("its 2 old lines from `b` on are"), "{why}");
        assert!(why.contains("2 times (lines 1, 4)"), "{why}");
    }

    #[test]
    fn an_edit_that_does_nothing_or_belongs_nowhere_is_refused() {
        assert!(edit(&[]).is_err());
        assert!(edit(&[" a"]).is_err());
        assert!(edit(&["-a", "+a"]).is_err());
        assert!(edit(&["+a"]).unwrap_err().contains("where it belongs"));
        assert!(edit(&["", "+a"]).is_err());
    }
}
