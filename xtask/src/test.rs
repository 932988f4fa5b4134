//! `cargo xtask test`: every test of the workspace, all features.
//!
//! Arguments go to `cargo test` as they are, so `cargo xtask test mst` runs the
//! tests with `mst` in their name. The output is cargo's own, to its last line.

use crate::process::{Failure, cargo, run as run_program};

/// Tests of the running program mostly wait for sockets and clocks: more of them
/// at a time than there are cores.
const PROGRAM: &str = "gapless";
const PROGRAM_TESTS_AT_A_TIME: &str = "8";

pub fn run(arguments: &[String]) -> Result<(), Failure> {
    run_program(
        cargo()
            .args([
                "test",
                "--workspace",
                "--exclude",
                PROGRAM,
                "--all-features",
            ])
            .args(arguments),
    )?;
    run_program(
        cargo()
            .env("RUST_TEST_THREADS", PROGRAM_TESTS_AT_A_TIME)
            .args(["test", "-p", PROGRAM, "--all-features"])
            .args(arguments),
    )
}
