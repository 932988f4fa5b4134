//! Checks every text: no paths of a developer's machine, no trailing blanks.

use super::{File, Report};

/// Folders that exist on a developer's machine alone. Each is spelled in two parts, so that the
/// check does not report this file.
const MACHINE_FOLDERS: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
];
const NO_TRAILING_BLANKS: &[&str] = &["rs", "md", "toml"];

pub(super) fn check(file: &File, report: &mut Report) {
    for (index, line) in file.text.lines().enumerate() {
        if let Some(folder) = machine_folder(line) {
            let wrong = format!("a path of one machine ({folder}…)");
            report.fail(file, index + 1, wrong, "write it relative to the project");
        }
        if file.has_extension(NO_TRAILING_BLANKS) && line.ends_with([' ', '\t']) {
            report.fail(
                file,
                index + 1,
                "trailing blanks".to_string(),
                "take them out",
            );
        }
    }
}

/// Finds a folder of [`MACHINE_FOLDERS`] at the start of a path, not inside one.
fn machine_folder(line: &str) -> Option<&'static str> {
    MACHINE_FOLDERS.iter().copied().find(|folder| {
        line.match_indices(folder).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|c| c.is_alphanumeric() || "._-~}".contains(c))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::*;

    #[test]
    fn machine_paths_fail_in_any_text_file() {
        for folder in MACHINE_FOLDERS {
            for line in [
                format!("{folder}x"),
                format!("see `{folder}x`"),
                format!("file://{folder}x"),
            ] {
                assert_eq!(findings(&[("notes.txt", &line)]).len(), 1, "{line}");
            }
            for line in [
                format!("a{folder}x"),
                format!("..{folder}x"),
                format!("~{folder}x"),
            ] {
                assert_eq!(findings(&[("notes.txt", &line)]).len(), 0, "{line}");
            }
        }
    }

    #[test]
    fn trailing_blanks_fail_where_they_are_ours() {
        for path in ["a.md", "a.toml"] {
            assert_eq!(findings(&[(path, "x \n")]).len(), 1, "{path}");
            assert_eq!(findings(&[(path, "x\t\n")]).len(), 1, "{path}");
        }
        assert_eq!(findings(&[("a.rs", "//! A. \n")]).len(), 1);
        assert_eq!(findings(&[("a.patch", " x \n")]).len(), 0);
    }
}
