//! `cargo xtask realnet`: tests Gapless against real peers.
//!
//! `tests/realnet/run.sh` installs the reference servers of the AT Protocol and published
//! libraries, mirrors the servers, and has the libraries check the mirror.

use crate::npm::Check;
use crate::process::Failure;

pub(crate) const CHECK: Check = Check {
    script: "tests/realnet/run.sh",
    not_done: "Gapless was not tried against the reference servers",
    command: "realnet",
};

pub(crate) fn run(_arguments: &[String]) -> Result<(), Failure> {
    CHECK.run()
}
