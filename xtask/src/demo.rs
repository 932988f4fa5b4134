//! `cargo xtask demo`: builds and runs `gapless demo` in release mode, with these arguments.

use crate::process::{Failure, cargo, run as run_program};

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let demo = ["run", "--release", "--package", "gapless", "--", "demo"];
    run_program(cargo().args(demo).args(arguments))
}
