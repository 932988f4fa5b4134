//! `cargo xtask test`: every test of the workspace, all features.
//!
//! Arguments go to `cargo test` as they are, so `cargo xtask test mst` runs the
//! tests with `mst` in their name. The output is cargo's own, to its last line.

use crate::process::{Failure, cargo, run as run_program};

pub fn run(arguments: &[String]) -> Result<(), Failure> {
    run_program(
        cargo()
            .args(["test", "--workspace", "--all-features"])
            .args(arguments),
    )
}
