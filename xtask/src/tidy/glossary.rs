//! Checks the glossary: each word once, in alphabetical order, in one sentence.
//!
//! The format of `docs/glossary.md`: sections whose items begin with a word in bold,
//! or with several words separated by commas, and a colon. A full stop, question mark
//! or exclamation mark before a blank ends a sentence; code in backticks does not count.

use super::{File, Report};
use std::collections::BTreeMap;

const GLOSSARY: &str = "docs/glossary.md";

pub(super) fn check(files: &[File], report: &mut Report) {
    let Some(glossary) = files.iter().find(|file| file.path == GLOSSARY) else {
        return;
    };
    let mut words: BTreeMap<String, usize> = BTreeMap::new();
    let mut previous = String::new();
    for entry in entries(&glossary.text) {
        let line = entry.line;
        let mut fail = |wrong: String, remedy| report.fail(glossary, line, wrong, remedy);
        let (head, definition) = entry.text.split_once(": ").unwrap_or((&entry.text, ""));
        let names: Vec<String> = bold(head).map(str::to_lowercase).collect();
        let Some(first) = names.first() else {
            fail(
                "an entry without a word in bold".to_string(),
                "write it as `- **word**: what it means.`",
            );
            continue;
        };
        if entry.begins_section {
            previous.clear();
        }
        if *first < previous {
            let wrong = format!("`{first}` after `{previous}`");
            fail(wrong, "put the words of a section in alphabetical order");
        }
        previous.clone_from(first);
        for name in names {
            if let Some(earlier) = words.get(&name) {
                let wrong = format!("`{name}` is already defined in line {earlier}");
                fail(wrong, "give each word one meaning");
            }
            words.entry(name).or_insert(line);
        }
        let count = sentences(definition);
        if count != 1 {
            let wrong = format!("a definition of {count} sentences");
            fail(wrong, "write one sentence");
        }
    }
}

struct Entry {
    line: usize,
    begins_section: bool,
    /// The text of the item on one line, without the mark of the list.
    text: String,
}

fn entries(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut begins_section = true;
    let mut in_entry = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(text) = line.strip_prefix("- ") {
            entries.push(Entry {
                line: index + 1,
                begins_section,
                text: text.to_string(),
            });
            begins_section = false;
            in_entry = true;
        } else if line.starts_with(' ') && in_entry {
            if let Some(entry) = entries.last_mut() {
                entry.text.push(' ');
                entry.text.push_str(line.trim());
            }
        } else {
            in_entry = false;
            begins_section |= line.starts_with('#');
        }
    }
    entries
}

fn bold(head: &str) -> impl Iterator<Item = &str> {
    head.split("**").skip(1).step_by(2)
}

fn sentences(definition: &str) -> usize {
    let prose: String = definition.split('`').step_by(2).collect();
    let words = prose.split_whitespace();
    words.filter(|word| word.ends_with(['.', '?', '!'])).count()
}

#[cfg(test)]
mod tests {
    use super::super::findings;

    fn with(entries: &str) -> Vec<String> {
        let text = format!("# Words\n\n## Ours\n\n{entries}\n## More\n\n- **ab**: a word.\n");
        findings(&[("docs/glossary.md", &text)])
    }

    #[test]
    fn entries_of_one_sentence_pass() {
        let entries = "- **desk**: one thing, and\n  another, `a. b. c.`.\n\
                       - **Key**, **r-key** (of a record): is it so?\n- **lane**: v1.2 of it.\n";
        assert_eq!(with(entries), Vec::<String>::new());
    }

    #[test]
    fn other_entries_fail() {
        for (entries, why) in [
            (
                "- **a**: one.\n- **A**: two.\n",
                ":6: `a` is already defined in line 5",
            ),
            ("- **b**: one.\n- **a**: two.\n", ":6: `a` after `b`"),
            (
                "- **aa**: one.\n- **ab**: two.\n",
                ":10: `ab` is already defined in line 6",
            ),
            ("- **a**: one. Two.\n", ":5: a definition of 2 sentences"),
            ("- **a**: one\n", ":5: a definition of 0 sentences"),
            ("- **a** one.\n", ":5: a definition of 0 sentences"),
            ("- a: one.\n", ":5: an entry without a word in bold"),
        ] {
            let found = with(entries);
            assert_eq!(found.len(), 1, "{entries}: {found:?}");
            assert!(found[0].contains(why), "{found:?}");
        }
    }
}
