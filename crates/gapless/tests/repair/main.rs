//! The mirror against the test network: hosts that move, lie, forget and come
//! back, and what is fetched and swept because of it.

mod accounts;
#[path = "../mirror/common.rs"]
mod common;
mod covers;
mod events;
mod fetching;
mod hosts;
mod steps;
mod sweeps;
