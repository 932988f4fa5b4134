//! `cargo xtask foreign`: has independent code check the test network.
//!
//! `tests/foreign/run.sh` installs published AT Protocol consumers from npm and
//! points them at a test network.

use crate::npm::Check;
use crate::process::Failure;

pub(crate) const CHECK: Check = Check {
    script: "tests/foreign/run.sh",
    not_done: "the test network was not checked by foreign consumers",
    command: "foreign",
};

pub(crate) fn run(_arguments: &[String]) -> Result<(), Failure> {
    CHECK.run()
}
