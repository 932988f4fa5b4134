//! `cargo xtask demo`: runs `gapless demo`, built as for use. Arguments go on to it.

use crate::process::{Failure, cargo, run as run_program};

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let demo = ["run", "--release", "--package", "gapless", "--", "demo"];
    run_program(cargo().args(demo).args(arguments))
}
