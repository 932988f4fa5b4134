//! Tests snapshots: repositories as a host serves them, from memory or from the test network.
//! The tests show which are refused, and which changes the others lead to.

mod chunks;
mod repo;
mod since;
mod whole;
mod wire;
