//! `cargo xtask ci`: what `.ci/run` runs. Tests first, then the other checks,
//! the quick ones before the slow ones.
//!
//! Stops at the first failure and passes its exit code on. Every step has a budget on
//! two cores with nothing compiled before; see [`crate::steps`].

use crate::check::{FMT, TIDY, WALLS, has_fuzz};
use crate::process::{Failure, cargo, root, run as run_program, target};
use crate::steps::{self, Step};
use crate::walls::workspace_packages;
use crate::{bench, foreign, licences, mutants, realnet, test};
use std::fs;

const STEPS: &[Step] = &[
    Step {
        name: "test",
        budget_s: 720,
        run: || test::run(&[]),
    },
    FMT,
    TIDY,
    WALLS,
    Step {
        name: "licences",
        budget_s: 10,
        run: || licences::run(&[]),
    },
    Step {
        name: "clippy",
        budget_s: 90,
        run: clippy,
    },
    Step {
        name: "release check",
        budget_s: 90,
        run: release_check,
    },
    Step {
        name: "fuzz targets compile",
        budget_s: 60,
        run: fuzz_targets_compile,
    },
    Step {
        name: "foreign consumers",
        budget_s: 40,
        run: || foreign::run(&[]),
    },
    Step {
        name: "real peers",
        budget_s: 90,
        run: || realnet::run(&[]),
    },
    Step {
        name: "benches, quick",
        budget_s: 150,
        run: bench::smoke,
    },
    Step {
        name: "mutants, a sample",
        budget_s: 360,
        run: mutants_sampled,
    },
];

/// How many mutants ci tries; each commit selects different ones.
const MUTANTS_SAMPLED: usize = 3;

const DENY_WARNINGS: [&str; 3] = ["--", "-D", "warnings"];

pub(crate) fn run(_arguments: &[String]) -> Result<(), Failure> {
    steps::run("ci", STEPS)
}

/// Runs clippy twice, because `--all-targets` covers only what a plain `cargo test` runs, and
/// cargo ignores targets that are named beside it. Nothing is compiled twice.
fn clippy() -> Result<(), Failure> {
    let clippy = ["clippy", "--workspace", "--all-features"];
    run_program(
        cargo()
            .args(clippy)
            .arg("--all-targets")
            .args(DENY_WARNINGS),
    )?;
    run_program(
        cargo()
            .args(clippy)
            .args(test::waiting())
            .args(DENY_WARNINGS),
    )
}

/// Checks the program as in a release: with the features of its package alone, and without
/// debug assertions in our crates. Also checks the simulator with its own features: no other step
/// compiles the store without its engine. The dependencies stay those of the clippy step, because with
/// `--release` compiling their C code again would take more than a minute.
fn release_check() -> Result<(), Failure> {
    let mut command = cargo();
    command.args(["clippy", "--package", "gapless"]);
    for package in workspace_packages()? {
        let setting = format!("profile.dev.package.{package}.debug-assertions=false");
        command.args(["--config", &setting]);
    }
    run_program(command.args(DENY_WARNINGS))?;
    run_program(
        cargo()
            .args(["clippy", "--package", "gapless-sim"])
            .args(DENY_WARNINGS),
    )
}

/// Type-checks the fuzz targets, which are outside the workspace and which no other step
/// compiles. Type checking needs no nightly toolchain. With the target folder and the profile
/// of the workspace, dependencies that clippy has checked are not checked again.
fn fuzz_targets_compile() -> Result<(), Failure> {
    if !has_fuzz() {
        println!("skipped: there is no fuzz/Cargo.toml");
        return Ok(());
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml"))
        .map_err(|e| Failure::check(format!("Cargo.toml: {e}")))?;
    let mut command = cargo();
    command
        // A check links nothing, so libFuzzer need not be compiled from its C++.
        .env("CUSTOM_LIBFUZZER_PATH", target().join("libfuzzer.a"))
        .args(["check", "--manifest-path", "fuzz/Cargo.toml", "--bins"])
        .arg("--target-dir")
        .arg(target());
    for setting in dev_profile(&manifest) {
        command.args(["--config", &setting]);
    }
    run_program(&mut command)
}

/// The settings of a manifest's dev profile, each as cargo takes it after `--config`.
fn dev_profile(manifest: &str) -> Vec<String> {
    let mut settings = Vec::new();
    let mut section = None;
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            let name = name.trim_end_matches(']');
            section = Some(name)
                .filter(|name| *name == "profile.dev" || name.starts_with("profile.dev."));
        } else if let Some(section) = section
            && !line.starts_with('#')
            && let Some((key, value)) = line.split_once('=')
        {
            settings.push(format!("{section}.{}={}", key.trim(), value.trim()));
        }
    }
    settings
}

fn mutants_sampled() -> Result<(), Failure> {
    mutants::run(&["--sample".to_string(), MUTANTS_SAMPLED.to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    const fn step(name: &'static str, run: fn() -> Result<(), Failure>) -> Step {
        Step {
            name,
            budget_s: 10,
            run,
        }
    }

    static RAN_AFTER_FAILURE: AtomicBool = AtomicBool::new(false);

    #[test]
    fn stops_at_the_first_failure_and_says_which() {
        let steps = [
            step("good", || Ok(())),
            step("bad", || {
                Err(Failure {
                    code: 101,
                    message: "three tests failed".to_string(),
                })
            }),
            step("later", || {
                RAN_AFTER_FAILURE.store(true, Ordering::SeqCst);
                Ok(())
            }),
        ];
        let (table, result) = steps::run_steps("ci", &steps);
        let failure = result.unwrap_err();
        assert_eq!(failure.code, 101);
        assert_eq!(failure.message, "ci stopped at `bad`: three tests failed");
        assert!(!RAN_AFTER_FAILURE.load(Ordering::SeqCst));
        let has = |start: &str, end: &str| {
            let mut lines = table.lines();
            lines.any(|line| line.starts_with(start) && line.ends_with(end))
        };
        assert!(has("good", "s of    10 s"), "{table}");
        assert!(has("bad", "FAILED"), "{table}");
        assert!(has("later", "not run"), "{table}");
    }

    /// 28 minutes, on two cores with nothing compiled before.
    const ALL_S: u32 = 1680;

    #[test]
    fn the_budgets_together_are_bounded() {
        let all_s = steps::budget_s(STEPS);
        assert!(
            all_s <= ALL_S,
            "{all_s} s; a step gets more only if another gets less"
        );
    }

    #[test]
    fn the_tests_come_first() {
        assert_eq!(STEPS.first().map(|step| step.name), Some("test"));
    }

    #[test]
    fn the_dev_profile_is_read_from_the_manifest() {
        let manifest = "[profile.release]\nlto = \"thin\"\n\n# Why.\n[profile.dev]\nopt-level = 1\n\
                        debug = \"line-tables-only\"\n\n[profile.dev.package.\"*\"]\n# opt-level = 2\n\
                        opt-level = 3\n[profile.development]\nopt-level = 0\n";
        assert_eq!(
            dev_profile(manifest),
            [
                "profile.dev.opt-level=1",
                "profile.dev.debug=\"line-tables-only\"",
                "profile.dev.package.\"*\".opt-level=3",
            ]
        );
    }
}
