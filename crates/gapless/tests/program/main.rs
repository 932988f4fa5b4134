//! The whole program against the test network: real sockets, real signatures, a real store,
//! and the truth to compare with. One folder per subject; what all of them share is in
//! `gapless-harness`.

mod discovery;
mod firehose;
mod mirror;
mod repair;
mod script;
mod serve;

/// The program, for tests that run it in a process of its own.
const EXE: &str = env!("CARGO_BIN_EXE_gapless");
