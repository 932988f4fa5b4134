//! `cargo xtask bench [NAME] [--json] [--quick]`: runs the package `gapless-bench`.
//!
//! Arguments and exit code are forwarded; which benches exist and what they
//! print is the package's own affair. Figures come from a release build; `--quick`
//! judges no figure, so it takes the programs of the tests, which are built already.

use crate::process::{Failure, cargo, run as run_program, target};
use crate::test::build_programs;
use crate::walls::workspace_packages;
use std::process::Command;

pub(crate) const PACKAGE: &str = "gapless-bench";

/// Loads are made up before the clock runs and let go of while it does. A mirror takes
/// as much memory as it lets go of; handing it back to the system is no part of its
/// work, and is not timed.
const ALLOCATOR: (&str, &str) = ("_RJEM_MALLOC_CONF", "dirty_decay_ms:-1,muzzy_decay_ms:-1");

/// Some benches start the other two, so all are built together.
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

/// Every bench once with little work: shows that they run, not how fast.
pub(crate) fn smoke() -> Result<(), Failure> {
    if !workspace_packages()?.iter().any(|name| name == PACKAGE) {
        println!("skipped: there is no package `{PACKAGE}` in the workspace");
        return Ok(());
    }
    run(&[QUICK.to_string()])
}
