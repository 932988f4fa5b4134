//! Tests the whole program against the test network: real sockets, real signatures, a real
//! store, and the truth of the network for comparison. Each folder has one subject; what all
//! folders share is in `gapless-harness`.

mod discovery;
mod firehose;
mod mirror;
mod repair;
mod script;
mod serve;

/// The program, for tests that run it in a process of its own.
const EXE: &str = env!("CARGO_BIN_EXE_gapless");
