//! `cargo xtask test`: every test of the workspace, all features.
//!
//! Arguments go to `cargo test` as they are, so `cargo xtask test mst` runs the
//! tests with `mst` in their name. The output is cargo's own, to its last line.

use crate::process::{Failure, cargo, run as run_program};

/// Tests of the running program mostly wait for sockets and clocks: more of them
/// at a time than there are cores. Its manifest leaves them out of the first run;
/// the packages are the same, so that nothing is compiled twice.
const WAITING: &[&str] = &[
    "mirror",
    "repair",
    "discovery",
    "firehose",
    "serve",
    "script",
];
const WAITING_AT_A_TIME: &str = "8";

pub fn run(arguments: &[String]) -> Result<(), Failure> {
    let test = ["test", "--workspace", "--all-features"];
    run_program(cargo().args(test).args(arguments))?;
    run_program(
        cargo()
            .env("RUST_TEST_THREADS", WAITING_AT_A_TIME)
            .args(test)
            .args(waiting())
            .args(arguments),
    )
}

/// Names them to cargo.
pub fn waiting() -> impl Iterator<Item = &'static str> {
    WAITING.iter().flat_map(|name| ["--test", name])
}
