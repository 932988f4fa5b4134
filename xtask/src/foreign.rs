//! `cargo xtask foreign`: the test network judged by code that is not ours.
//!
//! `tests/foreign/run.sh` installs published AT Protocol consumers from npm and
//! points them at a test network. Where npm is absent the check is skipped, and
//! says so: it is no part of what a fresh machine with Rust alone must pass.

use crate::process::{Failure, program, root, run as run_program};
use std::ffi::OsStr;
use std::path::Path;

const SCRIPT: &str = "tests/foreign/run.sh";

pub fn run(_arguments: &[String]) -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match plan(&root(), &path) {
        Plan::Skip(why) => {
            println!("skipped: {why}");
            Ok(())
        }
        Plan::Missing => Err(Failure::check(format!(
            "{SCRIPT} is missing: the foreign consumers' checks live there"
        ))),
        Plan::Run => run_program(&mut program(&format!("./{SCRIPT}"))),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Run,
    Skip(String),
    Missing,
}

fn plan(root: &Path, search_path: &OsStr) -> Plan {
    if !root.join(SCRIPT).is_file() {
        return Plan::Missing;
    }
    let found = std::env::split_paths(search_path).any(|folder| folder.join("npm").is_file());
    if !found {
        return Plan::Skip(
            "npm not found; the test network was not checked by foreign consumers \
             (install Node.js with npm, then `cargo xtask foreign`)"
                .to_string(),
        );
    }
    Plan::Run
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn runs_with_npm_skips_without_and_fails_without_its_script() {
        let folder = std::env::temp_dir().join(format!("xtask-foreign-{}", std::process::id()));
        let script = folder.join(SCRIPT);
        fs::create_dir_all(script.parent().unwrap()).unwrap();
        assert_eq!(plan(&folder, OsStr::new("")), Plan::Missing);

        fs::write(&script, "#!/bin/sh\n").unwrap();
        let Plan::Skip(why) = plan(&folder, OsStr::new("")) else {
            panic!("must be skipped without npm");
        };
        assert!(why.starts_with("npm not found;"));

        fs::write(folder.join("npm"), "").unwrap();
        assert_eq!(plan(&folder, folder.as_os_str()), Plan::Run);
        fs::remove_dir_all(&folder).unwrap();
    }
}
