//! A small but real AT network in one process.
//!
//! The network has a directory, PDSs, a relay and a Jetstream server on loopback, with
//! real keys, signatures, trees and sockets. The same seed gives the same network. Faults
//! can be set on demand, and each counts how often it fired. The network knows the truth
//! about every repository at every rev. It is the oracle of the tests, so it shares only
//! the codec with the mirror.
//!
//! [`Testnet::start`] is the entry point. Memory grows with every commit: nothing is
//! forgotten except the events that leave a stream's window.

mod config;
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
mod truth;
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
