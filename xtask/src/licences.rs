//! `cargo xtask licences`: checks the licence, the name and the source of every dependency.
//!
//! The command reads only `cargo tree` and `Cargo.lock`, so it works wherever the project
//! builds. `deny.toml`, which cargo-deny reads too, says what is allowed and what is banned.
//! Advisories need the RustSec database; without the database they are skipped, and the output
//! says so.

use crate::process::{Failure, cargo, output_of, root, run as run_program, works};
use crate::spdx;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

const POLICY: &str = "deny.toml";
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(crate) fn run(_arguments: &[String]) -> Result<(), Failure> {
    let policy =
        Policy::parse(&read(POLICY)?).map_err(|why| Failure::check(format!("{POLICY}: {why}")))?;
    let tree = output_of(cargo().args([
        "tree",
        "--workspace",
        "--all-features",
        "--target",
        "all",
        "--edges",
        "normal,build,dev",
        "--prefix",
        "none",
        "--format",
        "{p}|{l}",
    ]))?;
    let packages = parse_tree(&tree);
    let mut faults = check(&policy, &packages);
    faults.extend(foreign_sources(&read("Cargo.lock")?));
    if !faults.is_empty() {
        return Err(Failure::check(faults.join("\n")));
    }
    println!(
        "{} packages: licences, bans and sources are fine",
        packages.len()
    );
    for (name, versions) in duplicates(&packages) {
        println!(
            "note: {name} is there {} times: {}",
            versions.len(),
            versions.join(", ")
        );
    }
    advisories()
}

fn read(path: &str) -> Result<String, Failure> {
    fs::read_to_string(root().join(path)).map_err(|e| Failure::check(format!("{path}: {e}")))
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: String,
}

/// Parses lines such as `cc v1.2.3 (proc-macro)|MIT OR Apache-2.0 (*)`; a blank line separates
/// two roots.
fn parse_tree(tree: &str) -> BTreeSet<Package> {
    let mut packages = BTreeSet::new();
    for line in tree.lines() {
        let Some((package, licence)) = line.split_once('|') else {
            continue;
        };
        let mut words = package.split_whitespace();
        let (Some(name), Some(version)) = (words.next(), words.next()) else {
            continue;
        };
        packages.insert(Package {
            name: name.to_string(),
            version: version.trim_start_matches('v').to_string(),
            licence: licence.trim_end_matches("(*)").trim().to_string(),
        });
    }
    packages
}

fn check(policy: &Policy, packages: &BTreeSet<Package>) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        let Package {
            name,
            version,
            licence,
        } = package;
        match spdx::satisfied(licence, &|id| policy.allowed.contains(id)) {
            Ok(true) => {}
            Ok(false) => faults.push(format!(
                "{name} {version}: licence `{licence}` is not allowed; drop the crate, or allow the licence in {POLICY}"
            )),
            Err(why) => faults.push(format!(
                "{name} {version}: licence `{licence}` cannot be read: {why}"
            )),
        }
        for ban in &policy.bans {
            if ban.covers(name, version) {
                faults.push(format!("{name} {version}: banned: {}", ban.reason));
            }
        }
    }
    faults
}

fn foreign_sources(lock: &str) -> Vec<String> {
    lock.lines()
        .filter_map(|line| line.strip_prefix("source = \""))
        .map(|source| source.trim_end_matches('"'))
        .filter(|source| *source != CRATES_IO)
        .map(|source| format!("Cargo.lock: `{source}` is not crates.io; use a published version"))
        .collect()
}

fn duplicates(packages: &BTreeSet<Package>) -> BTreeMap<&str, Vec<&str>> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions
            .entry(&package.name)
            .or_default()
            .push(&package.version);
    }
    versions.retain(|_, versions| versions.len() > 1);
    versions
}

#[derive(Debug, Default)]
struct Policy {
    allowed: BTreeSet<String>,
    bans: Vec<Ban>,
}

#[derive(Debug)]
struct Ban {
    name: String,
    versions: Versions,
    reason: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Versions {
    All,
    Below(Vec<u64>),
    From(Vec<u64>),
}

impl Ban {
    fn covers(&self, name: &str, version: &str) -> bool {
        let numbers = version_numbers(version);
        self.name == name
            && match &self.versions {
                Versions::All => true,
                Versions::Below(bound) => numbers < *bound,
                Versions::From(bound) => numbers >= *bound,
            }
    }
}

impl Policy {
    /// Reads the two lists of `deny.toml`, one entry per line. A line in a list that cannot be
    /// parsed is an error and is never skipped.
    fn parse(text: &str) -> Result<Policy, String> {
        let mut policy = Policy::default();
        let mut section = "";
        let mut list = "";
        for (index, raw) in text.lines().enumerate() {
            let line = raw.trim();
            let at = |why: &str| format!("line {}: {why}: {line}", index + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line == "]" {
                list = "";
            } else if !list.is_empty() {
                let entry = line.strip_suffix(',').unwrap_or(line);
                match (section, list) {
                    ("[licenses]", "allow") => {
                        let id = quoted(entry).ok_or_else(|| at("expected \"ID\","))?;
                        policy.allowed.insert(id.to_string());
                    }
                    ("[bans]", "deny") => policy.bans.push(ban(entry).map_err(|why| at(&why))?),
                    _ => {}
                }
            } else if line.starts_with('[') {
                section = line;
            } else if let Some(name) = line.strip_suffix("= [") {
                list = name.trim();
            }
        }
        if policy.allowed.is_empty() || policy.bans.is_empty() {
            return Err(
                "needs `allow = [` under [licenses] and `deny = [` under [bans], one entry a line"
                    .to_string(),
            );
        }
        Ok(policy)
    }
}

/// Parses an entry such as `{ crate = "name:<0.7", reason = "…" }`.
fn ban(entry: &str) -> Result<Ban, String> {
    let expected = || "expected { crate = \"NAME\", reason = \"WHY\" },".to_string();
    let inner = entry
        .strip_prefix("{ crate = ")
        .and_then(|rest| rest.strip_suffix(" }"))
        .ok_or_else(expected)?;
    let (spec, reason) = inner.split_once(", reason = ").ok_or_else(expected)?;
    let spec = quoted(spec).ok_or_else(expected)?;
    let reason = quoted(reason).ok_or_else(expected)?;
    let (name, versions) = match spec.split_once(':') {
        None => (spec, Versions::All),
        Some((name, range)) => (name, version_range(range)?),
    };
    Ok(Ban {
        name: name.to_string(),
        versions,
        reason: reason.to_string(),
    })
}

fn version_range(range: &str) -> Result<Versions, String> {
    if let Some(bound) = range.strip_prefix(">=") {
        return Ok(Versions::From(version_numbers(bound)));
    }
    match range.strip_prefix('<') {
        Some(bound) if !bound.starts_with('=') => Ok(Versions::Below(version_numbers(bound))),
        _ => Err(format!("a version range is `<X` or `>=X`, not `{range}`")),
    }
}

fn version_numbers(version: &str) -> Vec<u64> {
    let release = version.split(['-', '+']).next().unwrap_or(version);
    release
        .split('.')
        .map(|part| part.parse().unwrap_or(0))
        .collect()
}

fn quoted(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.is_empty() && !inner.contains('"')).then_some(inner)
}

/// Runs cargo-deny or cargo-audit on a RustSec database that is already on this machine. No
/// package registry offers the database, which is a git repository.
fn advisories() -> Result<(), Failure> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
        .unwrap_or_default();
    let holds_folder = |name: &str| {
        fs::read_dir(home.join(name))
            .is_ok_and(|entries| entries.flatten().any(|entry| entry.path().is_dir()))
    };
    if holds_folder("advisory-dbs") && works(cargo().args(["deny", "--version"])) {
        return run_program(cargo().args(["deny", "--offline", "check", "advisories"]));
    }
    if holds_folder("advisory-db") && works(cargo().args(["audit", "--version"])) {
        return run_program(cargo().args(["audit", "--no-fetch"]));
    }
    println!(
        "advisories and yanked versions: skipped; they need cargo-deny (`cargo install cargo-deny --locked`) \
         or cargo-audit, and a copy of the RustSec database (`cargo deny fetch`, from GitHub)"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "[licenses]\nallow = [\n    \"MIT\",\n]\n[bans]\ndeny = [\n    \
        { crate = \"sled\", reason = \"stale\" },\n    \
        { crate = \"dagcbor:<0.7\", reason = \"lax\" },\n    \
        { crate = \"bincode:>=3\", reason = \"empty\" },\n]\n";

    fn faults(tree: &str) -> Vec<String> {
        check(&Policy::parse(SMALL).unwrap(), &parse_tree(tree))
    }

    #[test]
    fn a_licence_that_is_not_allowed_names_the_crate() {
        let found = faults("good v1.0.0|MIT\n\nviral v2.0.1|GPL-3.0-only (*)\nnone v1.0.0|\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("none 1.0.0:"), "{found:?}");
        assert!(
            found[1].starts_with("viral 2.0.1: licence `GPL-3.0-only`"),
            "{found:?}"
        );
    }

    #[test]
    fn banned_crates_are_found_by_name_and_version() {
        assert!(faults("sled v0.34.7|MIT")[0].contains("banned: stale"));
        assert_eq!(faults("dagcbor v0.6.4|MIT").len(), 1);
        assert_eq!(faults("dagcbor v0.7.0|MIT").len(), 0);
        assert_eq!(faults("bincode v3.0.0|MIT").len(), 1);
        assert_eq!(faults("bincode v2.0.1|MIT").len(), 0);
        assert_eq!(faults("sledge v1.0.0|MIT").len(), 0);
    }

    #[test]
    fn a_git_dependency_is_refused() {
        let lock = format!("source = \"{CRATES_IO}\"\nsource = \"git+https://example.com/x#1\"\n");
        let found = foreign_sources(&lock);
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("git+https://example.com/x"));
    }

    #[test]
    fn two_versions_of_one_crate_are_noted() {
        let packages = parse_tree("a v1.0.0|MIT\na v2.0.0|MIT\nb v1.0.0|MIT\nb v1.0.0|MIT (*)\n");
        let found = duplicates(&packages);
        assert_eq!(found.len(), 1);
        assert_eq!(found["a"], ["1.0.0", "2.0.0"]);
    }

    #[test]
    fn a_policy_line_that_cannot_be_read_is_an_error() {
        for (from, to) in [
            ("\"MIT\",", "MIT,"),
            ("{ crate = \"sled\", reason = \"stale\" }", "\"sled\""),
            (":<0.7", ":^0.6"),
            ("allow = [", "permit = ["),
        ] {
            let broken = SMALL.replace(from, to);
            assert_ne!(broken, SMALL);
            assert!(Policy::parse(&broken).is_err(), "{from} -> {to}");
        }
    }

    #[test]
    fn the_projects_own_policy_is_understood() {
        let policy = Policy::parse(include_str!("../../deny.toml")).unwrap();
        assert!(policy.allowed.contains("MIT"));
        assert!(
            !policy
                .allowed
                .iter()
                .any(|id| id.starts_with("GPL") || id.starts_with("AGPL"))
        );
        assert!(
            policy
                .bans
                .iter()
                .any(|ban| ban.covers("serde_ipld_dagcbor", "0.6.4"))
        );
        assert!(
            !policy
                .bans
                .iter()
                .any(|ban| ban.covers("serde_ipld_dagcbor", "0.7.0"))
        );
    }
}
