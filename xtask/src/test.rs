//! `cargo xtask test`: runs every test of the workspace with all features.
//!
//! Arguments are passed to `cargo test`, so `cargo xtask test mst` runs the tests with `mst` in
//! their names. Without arguments, all test programs are compiled before the first one runs, and
//! the seconds of both are printed at the end.

use crate::process::{Failure, cargo, run as run_program};
use std::time::Instant;

/// Test programs that mostly wait for sockets and clocks: more of their tests run at a time
/// than there are cores. The manifest leaves them out of the first run; the packages are the
/// same, so that nothing is compiled twice.
const WAITING: &[&str] = &["program"];
const WAITING_THREADS: &str = "8";

const TEST: [&str; 3] = ["test", "--workspace", "--all-features"];

/// A test target of the test network. Named beside `--bin`, the target makes cargo choose the
/// features that the tests have, dev-dependencies included, so that the tests use the same
/// program and nothing is compiled for the program alone.
const ANY_TEST: &str = "honest";

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if !arguments.is_empty() {
        return run_tests(arguments);
    }
    let start = Instant::now();
    run_program(cargo().args(TEST).arg("--no-run"))?;
    run_program(cargo().args(TEST).arg("--no-run").args(waiting()))?;
    let compiled_s = start.elapsed().as_secs_f64();
    let result = run_tests(&[]);
    let ran_s = start.elapsed().as_secs_f64() - compiled_s;
    println!("test programs: compiled in {compiled_s:.1} s, ran for {ran_s:.1} s");
    result
}

fn run_tests(arguments: &[String]) -> Result<(), Failure> {
    run_program(cargo().args(TEST).args(arguments))?;
    run_program(
        cargo()
            .env("RUST_TEST_THREADS", WAITING_THREADS)
            .args(TEST)
            .args(waiting())
            .args(arguments),
    )
}

/// The arguments that select the test programs of [`WAITING`].
pub(crate) fn waiting() -> impl Iterator<Item = &'static str> {
    WAITING.iter().flat_map(|name| ["--test", name])
}

/// Builds programs with the dev profile, as the tests build them.
pub(crate) fn build_programs(names: &[&str]) -> Result<(), Failure> {
    let mut command = cargo();
    command.args(["build", "--workspace", "--all-features"]);
    for name in names {
        command.args(["--bin", name]);
    }
    run_program(command.args(["--test", ANY_TEST]))
}
