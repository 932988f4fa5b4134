//! Checks that need npm: each is a script that installs published packages and runs them.
//!
//! Without npm, such a check is skipped, and the output says so, because a fresh machine with
//! Rust alone must pass.

use crate::process::{Failure, program, root, run as run_program};
use std::ffi::OsStr;
use std::path::Path;

/// One check: its script, and what the output says is not checked when it is skipped.
pub(crate) struct Check {
    pub script: &'static str,
    pub not_done: &'static str,
    pub command: &'static str,
}

impl Check {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        match self.plan(&root(), &path) {
            Plan::Skip(why) => {
                println!("skipped: {why}");
                Ok(())
            }
            Plan::Missing => Err(Failure::check(format!(
                "{} is missing: `cargo xtask {}` lives there",
                self.script, self.command
            ))),
            Plan::Run => run_program(&mut program(&format!("./{}", self.script))),
        }
    }

    fn plan(&self, root: &Path, search_path: &OsStr) -> Plan {
        if !root.join(self.script).is_file() {
            return Plan::Missing;
        }
        let found = std::env::split_paths(search_path).any(|folder| folder.join("npm").is_file());
        if !found {
            return Plan::Skip(format!(
                "npm not found; {} (install Node.js with npm, then `cargo xtask {}`)",
                self.not_done, self.command
            ));
        }
        Plan::Run
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Plan {
    Run,
    Skip(String),
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn runs_with_npm_skips_without_and_fails_without_its_script() {
        let check = Check {
            script: "tests/some/run.sh",
            not_done: "nothing was tried",
            command: "some",
        };
        let folder = std::env::temp_dir().join(format!("xtask-npm-{}", std::process::id()));
        let script = folder.join(check.script);
        fs::create_dir_all(script.parent().unwrap()).unwrap();
        assert_eq!(check.plan(&folder, OsStr::new("")), Plan::Missing);

        fs::write(&script, "#!/bin/sh\n").unwrap();
        let Plan::Skip(why) = check.plan(&folder, OsStr::new("")) else {
            panic!("must be skipped without npm");
        };
        assert!(why.starts_with("npm not found; nothing was tried"));

        fs::write(folder.join("npm"), "").unwrap();
        assert_eq!(check.plan(&folder, folder.as_os_str()), Plan::Run);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_scripts_are_there() {
        for check in [crate::foreign::CHECK, crate::realnet::CHECK] {
            assert!(root().join(check.script).is_file(), "{}", check.script);
        }
    }
}
