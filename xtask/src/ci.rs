//! `cargo xtask ci`: what `.ci/run` runs. Tests first, then the other checks,
//! the quick ones before the slow ones.
//!
//! Stops at the first failure and passes its exit code on. Prints the seconds
//! of each step as it ends, and a table of all steps at the end either way.

use crate::process::{Failure, cargo, root, run as run_program};
use crate::{bench, foreign, licences, mutants, realnet, test, tidy, walls};
use std::time::Instant;

type Step = (&'static str, fn() -> Result<(), Failure>);

const STEPS: &[Step] = &[
    ("test", || test::run(&[])),
    ("fmt", format_check),
    ("tidy", || tidy::run(&[])),
    ("walls", || walls::run(&[])),
    ("licences", || licences::run(&[])),
    ("clippy", clippy),
    ("fuzz targets compile", fuzz_targets_compile),
    ("foreign consumers", || foreign::run(&[])),
    ("real peers", || realnet::run(&[])),
    ("benches, quick", bench::smoke),
    ("mutants, a sample", mutants_sampled),
];

/// So many of them with each commit, others each time.
const MUTANTS_SAMPLED: usize = 4;

pub fn run(_arguments: &[String]) -> Result<(), Failure> {
    let (table, result) = run_steps(STEPS);
    println!("\n{table}");
    result
}

fn run_steps(steps: &[Step]) -> (String, Result<(), Failure>) {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let mut total_s = 0.0;
    let mut failure = None;
    for (name, step) in steps {
        if failure.is_some() {
            rows.push((name, "not run".to_string()));
            continue;
        }
        println!("\n== {name}");
        let start = Instant::now();
        let result = step();
        let seconds = start.elapsed().as_secs_f64();
        total_s += seconds;
        match result {
            Ok(()) => {
                println!("== {name}: ok, {seconds:.1} s");
                rows.push((name, format!("{seconds:.1} s")));
            }
            Err(why) => {
                println!("== {name}: FAILED after {seconds:.1} s");
                rows.push((name, format!("{seconds:.1} s  FAILED")));
                failure = Some(Failure {
                    code: why.code,
                    message: format!("ci stopped at `{name}`: {}", why.message),
                });
            }
        }
    }
    rows.push(("all", format!("{total_s:.1} s")));
    let lines: Vec<String> = rows
        .iter()
        .map(|(name, seconds)| format!("{name:<22} {seconds}"))
        .collect();
    (lines.join("\n"), failure.map_or(Ok(()), Err))
}

fn format_check() -> Result<(), Failure> {
    run_program(cargo().args(["fmt", "--all", "--check"]))?;
    if has_fuzz() {
        run_program(cargo().args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))?;
    }
    Ok(())
}

/// "All" targets are those that a plain `cargo test` runs: the others are named.
fn clippy() -> Result<(), Failure> {
    let clippy = ["clippy", "--workspace", "--all-features"];
    let strict = ["--", "-D", "warnings"];
    run_program(cargo().args(clippy).arg("--all-targets").args(strict))?;
    run_program(cargo().args(clippy).args(test::waiting()).args(strict))
}

/// The fuzz targets stand outside the workspace, so nothing else here would
/// notice that they no longer compile. Type checking needs no nightly.
fn fuzz_targets_compile() -> Result<(), Failure> {
    if !has_fuzz() {
        println!("skipped: there is no fuzz/Cargo.toml");
        return Ok(());
    }
    run_program(cargo().args(["check", "--manifest-path", "fuzz/Cargo.toml", "--bins"]))
}

fn mutants_sampled() -> Result<(), Failure> {
    mutants::run(&["--sample".to_string(), MUTANTS_SAMPLED.to_string()])
}

fn has_fuzz() -> bool {
    root().join("fuzz/Cargo.toml").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    static RAN_AFTER_FAILURE: AtomicBool = AtomicBool::new(false);

    #[test]
    fn stops_at_the_first_failure_and_says_which() {
        let steps: &[Step] = &[
            ("good", || Ok(())),
            ("bad", || {
                Err(Failure {
                    code: 101,
                    message: "three tests failed".to_string(),
                })
            }),
            ("later", || {
                RAN_AFTER_FAILURE.store(true, Ordering::SeqCst);
                Ok(())
            }),
        ];
        let (table, result) = run_steps(steps);
        let failure = result.unwrap_err();
        assert_eq!(failure.code, 101);
        assert!(failure.message.contains("`bad`: three tests failed"));
        assert!(!RAN_AFTER_FAILURE.load(Ordering::SeqCst));
        assert!(
            table
                .lines()
                .any(|l| l.starts_with("bad") && l.ends_with("FAILED"))
        );
        assert!(
            table
                .lines()
                .any(|l| l.starts_with("later") && l.ends_with("not run"))
        );
    }

    #[test]
    fn all_steps_good_is_good() {
        let (table, result) = run_steps(&[("one", || Ok(())), ("two", || Ok(()))]);
        assert!(result.is_ok());
        assert_eq!(table.lines().count(), 3);
    }

    #[test]
    fn the_tests_come_first() {
        assert_eq!(STEPS.first().map(|(name, _)| *name), Some("test"));
    }
}
