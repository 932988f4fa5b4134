//! A repository as its host serves it: what is refused, and what is made of the
//! rest. Repositories are made up here, or come from the test network.

mod chunks;
mod repo;
mod since;
mod whole;
mod wire;
