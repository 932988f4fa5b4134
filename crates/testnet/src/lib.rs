//! A small, real AT network in one process.
//!
//! A directory, PDSs, a relay and a Jetstream server on loopback, with real
//! keys, signatures, trees and sockets, the same from the same seed; faults on
//! demand, each counting its firings; and the truth about every repository at
//! every rev. It is the oracle of the tests, so it shares the codec with the
//! mirror and nothing else.
//!
//! [`Testnet::start`] is the way in. Memory grows with every commit: nothing is
//! ever forgotten but what falls out of a stream's window.

pub mod config;
mod control;
pub mod faults;
mod http;
mod jetstream;
pub mod load;
mod net;
mod pds;
mod plc;
mod relay;
mod rng;
mod stream;
mod testnet;
pub mod truth;
mod world;

pub use config::Config;
pub use faults::{Fault, Faults, Place, Spec};
pub use net::Urls;
pub use testnet::{Handle, SetFault, StartError, Testnet};
pub use truth::{Head, Records, Truth};
pub use world::{
    ActionError, Change, CommitTruth, NewAccount, NewCommit, Status, Write, WriteError,
    encode_record,
};
