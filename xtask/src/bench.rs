//! `cargo xtask bench [NAME] [--json]`: runs the package `gapless-bench`.
//!
//! Arguments and exit code are forwarded; which benches exist and what they
//! print is the package's own affair.

use crate::process::{Failure, cargo, run as run_program, target};
use crate::walls::workspace_packages;
use std::process::Command;

pub const PACKAGE: &str = "gapless-bench";

/// Loads are made up before the clock runs and let go of while it does. A mirror takes
/// as much memory as it lets go of; handing it back to the system is no part of its
/// work, and is not timed.
const ALLOCATOR: (&str, &str) = ("_RJEM_MALLOC_CONF", "dirty_decay_ms:-1,muzzy_decay_ms:-1");

pub fn run(arguments: &[String]) -> Result<(), Failure> {
    // Built together, so that nothing is compiled twice; some benches start the
    // other two.
    run_program(cargo().args(["build", "--release", "-p", PACKAGE]).args([
        "-p",
        "gapless",
        "-p",
        "gapless-testnet",
    ]))?;
    run_program(
        Command::new(target().join("release").join(PACKAGE))
            .env(ALLOCATOR.0, ALLOCATOR.1)
            .args(arguments),
    )
}

/// Every bench once with little work: shows that they run, not how fast.
pub fn smoke() -> Result<(), Failure> {
    if !workspace_packages()?.iter().any(|name| name == PACKAGE) {
        println!("skipped: there is no package `{PACKAGE}` in the workspace");
        return Ok(());
    }
    run(&["--quick".to_string()])
}
