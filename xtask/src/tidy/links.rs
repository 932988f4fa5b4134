//! Checks that relative links of Markdown files lead to a file, a folder or a heading of the
//! project.
//!
//! The check reads `[text](target)` and `[label]: target` outside of code. Links with a scheme
//! are not followed, because tidy works offline.

use super::{File, Report};

pub(super) fn check(files: &[File], report: &mut Report) {
    for file in files.iter().filter(|file| file.has_extension(&["md"])) {
        for (line, target) in links(&file.text) {
            if let Some(wrong) = broken(files, file, &target) {
                report.fail(file, line, wrong, "correct the link or what it names");
            }
        }
    }
}

fn broken(files: &[File], from: &File, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let full = match path {
        "" => from.path.clone(),
        _ => match resolve(&from.path, path) {
            Some(full) => full,
            None => return Some(format!("link `{target}` leaves the project")),
        },
    };
    let folder = if full.is_empty() {
        String::new()
    } else {
        format!("{full}/")
    };
    let Some(found) = files.iter().find(|file| file.path == full) else {
        return if files.iter().any(|file| file.path.starts_with(&folder)) {
            None
        } else {
            Some(format!("link `{target}` leads nowhere"))
        };
    };
    let known = anchor.is_empty()
        || !found.has_extension(&["md"])
        || prose_lines(&found.text)
            .any(|(_, line)| heading_anchor(line).as_deref() == Some(anchor));
    (!known).then(|| format!("link `{target}` names a heading that is not there"))
}

/// Resolves `path`, which is relative to the folder of `from`, and removes `.` and `..`.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.trim_end_matches('/').split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchor of a heading: lower case, dashes for blanks, no punctuation.
fn heading_anchor(line: &str) -> Option<String> {
    let title = line.trim_start_matches('#');
    let depth = line.len() - title.len();
    if depth == 0 || depth > 6 || !title.starts_with(' ') {
        return None;
    }
    let kept = title.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
}

/// Lines outside of fenced code, with their numbers.
fn prose_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return None;
        }
        (!in_code).then_some((index + 1, line))
    })
}

fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose_lines(text) {
        if let Some((label, target)) = line.split_once("]: ")
            && label.starts_with('[')
            && !label.starts_with("[^")
        {
            found.extend(first_word(target).map(|word| (number, word)));
        }
        let line = without_code(line);
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            let end = rest.find(')').unwrap_or(rest.len());
            found.extend(first_word(&rest[..end]).map(|word| (number, word)));
        }
    }
    found
}

/// The target of a link, without angle brackets and without a title that may follow it.
fn first_word(target: &str) -> Option<String> {
    let word = target.split_whitespace().next()?;
    Some(
        word.trim_start_matches('<')
            .trim_end_matches('>')
            .to_string(),
    )
}

/// The line without the `code` between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::super::findings;

    fn in_readme(text: &str) -> Vec<String> {
        findings(&[
            ("docs/README.md", text),
            (
                "docs/other.md",
                "# One\n\n## Two words, `code` & more\n```\n# not a heading\n```\n",
            ),
            ("LICENSE", "text"),
        ])
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        for text in [
            "[a](other.md)",
            "[a](./other.md) and [b](../LICENSE)",
            "[a](../docs/)",
            "[a](..)",
            "[a](other.md#one \"title\")",
            "[a](other.md#two-words-code--more)",
            "# Here\n[a](#here)",
            "[a](https://example.com/nothing)",
            "[a]: other.md",
            "`[a](nowhere.md)`",
            "```\n[a](nowhere.md)\n```",
        ] {
            assert_eq!(in_readme(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_fail() {
        for text in [
            "[a](nowhere.md)",
            "good [a](other.md), bad [b](LICENSE)",
            "[a](../../outside.md)",
            "[a](other.md#three)",
            "[a](other.md#not-a-heading)",
            "[a](#nowhere)",
            "[a]: nowhere.md",
            "[a](othe)",
        ] {
            let found = in_readme(text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(
                found[0].starts_with("docs/README.md:1: link `"),
                "{found:?}"
            );
        }
    }
}
