//! `cargo xtask bench [NAME] [--json] [--quick]`: runs the package `gapless-bench`.
//!
//! Arguments and exit code are forwarded; the package defines the benches and their output.
//! Figures come from a release build. `--quick` judges no figure, so it uses the dev build of
//! the programs, which the tests have built already.

use crate::process::{Failure, cargo, run as run_program, target};
use crate::test::build_programs;
use crate::walls::workspace_packages;
use std::process::Command;

pub(crate) const PACKAGE: &str = "gapless-bench";

/// Keeps jemalloc from returning freed memory to the system. A bench prepares its load before
/// the clock starts and frees the load while the clock runs. A mirror allocates as much as it
/// frees, so returning memory is not part of its work and must not be timed.
const ALLOCATOR: (&str, &str) = ("_RJEM_MALLOC_CONF", "dirty_decay_ms:-1,muzzy_decay_ms:-1");

/// Some benches start the other two programs, so all three are built together.
const PROGRAMS: [&str; 3] = [PACKAGE, "gapless", "gapless-testnet"];
const QUICK: &str = "--quick";

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let folder = if arguments.iter().any(|argument| argument == QUICK) {
        build_programs(&PROGRAMS)?;
        "debug"
    } else {
        let packages = PROGRAMS.iter().flat_map(|name| ["--package", name]);
        run_program(cargo().args(["build", "--release"]).args(packages))?;
        "release"
    };
    run_program(
        Command::new(target().join(folder).join(PACKAGE))
            .env(ALLOCATOR.0, ALLOCATOR.1)
            .args(arguments),
    )
}

/// Runs every bench once with little work, which shows that the benches run, not how fast.
pub(crate) fn smoke() -> Result<(), Failure> {
    if !workspace_packages()?.iter().any(|name| name == PACKAGE) {
        println!("skipped: there is no package `{PACKAGE}` in the workspace");
        return Ok(());
    }
    run(&[QUICK.to_string()])
}
