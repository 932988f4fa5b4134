//! `gapless`: the program. Thin: reads the command line, calls the command,
//! turns its outcome into an exit code.
//!
//! 0: fine. 1: a finding, or the command failed. 2: wrong usage. 3: no server
//! answers.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    gapless::cli::run(std::env::args_os())
}
