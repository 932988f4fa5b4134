//! The manifests of the scratch copy, which differ from the project's manifests in two ways.
//!
//! - The version ends with [`MARK`]. The copy is built in the project's own build folder, where
//!   all dependencies are compiled already, and cargo tells two checkouts of a workspace apart
//!   only by the version. Without the mark, cargo would silently take mutants for the project's
//!   code. A member that does not take its version from the workspace is therefore refused.
//! - Each library is also a test target, [`library_tests`]. If a run selected packages, the
//!   features of the dependencies would change with the selection, and cargo would compile the
//!   dependencies again. A test target can be selected by name in the whole workspace; the unit
//!   tests of a library can be selected only by its package.
//!
//! This module parses only the TOML that the project's manifests use; anything else is an error.

/// The end of every version in the copy.
pub(super) const MARK: &str = "+mutants";

/// The name of the test target that holds the unit tests of a package's library.
pub(super) fn library_tests(package: &str) -> String {
    format!("{package}-lib")
}

/// The folders of the workspace's members.
pub(super) fn members(root: &str) -> Result<Vec<String>, String> {
    let start = line_of(root, "workspace", "members").ok_or("[workspace] has no `members`")?;
    let rest = root.get(start..).unwrap_or_default();
    let list = rest
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(list, _)| list)
        .ok_or("`members` is no list")?;
    let folders: Vec<String> = list
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_string)
        .collect();
    match folders.iter().find(|folder| folder.contains('*')) {
        Some(pattern) => Err(format!(
            "the member `{pattern}` is a pattern; write each out"
        )),
        None => Ok(folders),
    }
}

/// The workspace's manifest, with [`MARK`] at the end of its version.
pub(super) fn marked(root: &str) -> Result<String, String> {
    let section = "workspace.package";
    let start =
        line_of(root, section, "version").ok_or_else(|| format!("[{section}] has no `version`"))?;
    let (before, line) = root.split_at(start);
    let (version, after) = line.split_once('\n').unwrap_or((line, ""));
    let version = version
        .trim_end()
        .strip_suffix('"')
        .ok_or_else(|| format!("`{version}` does not end in a quote"))?;
    Ok(format!("{before}{version}{MARK}\"\n{after}"))
}

/// A member's name and its manifest for the copy.
pub(super) fn member(manifest: &str, has_library: bool) -> Result<(String, String), String> {
    let name = line_of(manifest, "package", "name")
        .and_then(|start| manifest.get(start..)?.split('"').nth(1))
        .ok_or("[package] has no `name`")?
        .to_string();
    if line_of(manifest, "package", "version.workspace").is_none() {
        return Err(
            "must say `version.workspace = true`: by its version cargo tells mutants from our code"
                .to_string(),
        );
    }
    let mut text = manifest.to_string();
    if has_library {
        let target = library_tests(&name);
        text.push_str(&format!(
            "\n[[test]]\nname = \"{target}\"\npath = \"src/lib.rs\"\n"
        ));
    }
    Ok((name, text))
}

/// The position at which the line of a key starts.
fn line_of(manifest: &str, section: &str, key: &str) -> Option<usize> {
    let mut inside = false;
    let mut start = 0;
    for line in manifest.split_inclusive('\n') {
        let text = line.trim();
        if text.starts_with('[') {
            inside = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) == Some(section);
        } else if inside && text.split('=').next().is_some_and(|k| k.trim() == key) {
            return Some(start);
        }
        start += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace]\nresolver = \"3\"\nmembers = [\n    \"crates/a\",\n    \"b\",\n]\n\
        exclude = [\"fuzz\"]\n\n[workspace.package]\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
        [workspace.dependencies]\nversion = \"9\"\n";
    const MEMBER: &str =
        "[package]\nname = \"a\"\nversion.workspace = true\n\n[[bin]]\nname = \"c\"\n";

    #[test]
    fn members_are_found_on_one_line_or_many() {
        assert_eq!(members(ROOT).unwrap(), ["crates/a", "b"]);
        let line = "[workspace]\nmembers = [\"a\", \"b\"]\n";
        assert_eq!(members(line).unwrap(), ["a", "b"]);
        assert!(members("[package]\nmembers = [\"a\"]\n").is_err());
        assert!(members("[workspace]\nmembers = [\"crates/*\"]\n").is_err());
    }

    #[test]
    fn the_version_is_marked_and_nothing_else() {
        let expected = ROOT.replace("\"0.1.0\"", "\"0.1.0+mutants\"");
        assert_eq!(marked(ROOT).unwrap(), expected);
        assert!(marked("[workspace]\nversion = \"1\"\n").is_err());
    }

    #[test]
    fn a_library_becomes_a_test_target_too() {
        let (name, text) = member(MEMBER, true).unwrap();
        assert_eq!(name, "a");
        assert_eq!(
            text,
            format!("{MEMBER}\n[[test]]\nname = \"a-lib\"\npath = \"src/lib.rs\"\n")
        );
        assert_eq!(member(MEMBER, false).unwrap().1, MEMBER);
    }

    #[test]
    fn a_member_with_a_version_of_its_own_is_refused() {
        let own = MEMBER.replace("version.workspace = true", "version = \"0.1.0\"");
        assert!(member(&own, true).unwrap_err().contains("must say"));
    }

    #[test]
    fn our_own_manifests_are_understood() {
        let root = crate::process::root();
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        assert!(marked(&manifest).unwrap().contains(MARK));
        let folders = members(&manifest).unwrap();
        assert!(folders.iter().any(|folder| folder == "xtask"));
        for folder in folders {
            let text = std::fs::read_to_string(root.join(&folder).join("Cargo.toml")).unwrap();
            member(&text, true).unwrap_or_else(|why| panic!("{folder}: {why}"));
        }
    }
}
