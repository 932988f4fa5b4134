//! Decodes and checks the bytes of the AT Protocol: strict, bounded, fast.
//!
//! The functions of this crate take bytes from untrusted sources and return checked
//! values, or an error that says what was wrong. None of them panics on any input,
//! allocates more than a named limit allows ([`limits`]), opens a socket, reads a clock
//! or touches a disk.
//!
//! The modules, in the order in which a live commit meets them: [`frame`] (one WebSocket
//! message), [`car`] (its blocks), [`repo`] (the signed commit), [`crypto`] (the
//! signature), [`mst`] (the tree and its inversion), and [`verify`], which runs all of
//! them and names the verdict. [`cid`], [`cbor`] and [`syntax`] are the formats that the
//! others are written in; [`identity`] reads DID documents, and [`pick`] reads only the
//! wanted fields of untrusted JSON.

// Hash order is not an order; crates/atp/clippy.toml forbids the other ways to it.
#![deny(clippy::iter_over_hash_type)]

pub mod frame;

pub mod car;

pub mod repo;

pub mod crypto;

pub mod mst;

pub mod verify;

pub mod cbor;
pub mod cid;
mod hash;
pub mod identity;
pub mod limits;
pub mod pick;
pub mod syntax;
