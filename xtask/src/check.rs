//! `cargo xtask check`: what to run before every commit.
//!
//! The command runs formatting, tidy and the walls, which need no build of the project.

use crate::process::{Failure, cargo, root, run as run_program};
use crate::steps::{self, Step};
use crate::{tidy, walls};

pub(crate) const FMT: Step = Step {
    name: "fmt",
    budget_s: 15,
    run: format_check,
};
pub(crate) const TIDY: Step = Step {
    name: "tidy",
    budget_s: 10,
    run: || tidy::run(&[]),
};
pub(crate) const WALLS: Step = Step {
    name: "walls",
    budget_s: 15,
    run: || walls::run(&[]),
};
const STEPS: &[Step] = &[FMT, TIDY, WALLS];

pub(crate) fn run(_arguments: &[String]) -> Result<(), Failure> {
    steps::run("check", STEPS)
}

fn format_check() -> Result<(), Failure> {
    run_program(cargo().args(["fmt", "--all", "--check"]))?;
    if has_fuzz() {
        run_program(cargo().args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))?;
    }
    Ok(())
}

/// Whether there are fuzz targets, which are outside the workspace.
pub(crate) fn has_fuzz() -> bool {
    root().join("fuzz/Cargo.toml").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_quick_enough_to_run_before_every_commit() {
        assert!(steps::budget_s(STEPS) < 60);
    }
}
