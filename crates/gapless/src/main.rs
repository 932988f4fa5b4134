//! `gapless`: runs the command line and returns its exit code.
//!
//! 0: success. 1: a finding, or a failed command. 2: wrong usage. 3: no Gapless server
//! answers.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    gapless::cli::run(std::env::args_os())
}
