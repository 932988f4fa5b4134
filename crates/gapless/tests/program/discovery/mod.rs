//! Tests discovery against the test network: the whole network, hosts that no configuration
//! names, repositories with records in a collection, and hosts that do not answer.

mod collections;
mod hosts;
mod network;
mod streams;
mod widened;
