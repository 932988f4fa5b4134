//! AT Protocol bytes to values: strict, bounded, fast.
//!
//! Everything here takes bytes that strangers sent and gives back values that
//! were checked, or an error that says what was wrong. Nothing here panics on
//! any input, allocates more than a named limit allows ([`limits`]), opens a
//! socket, reads a clock or touches a disk.
//!
//! In the order in which a live commit meets them: [`frame`] (one WebSocket
//! message), [`car`] (its blocks), [`repo`] (the signed commit), [`crypto`]
//! (the signature), [`mst`] (the tree and its inversion), and [`verify`], which
//! runs all of them and names the verdict. [`cid`], [`cbor`] and [`syntax`] are
//! the words they are written in; [`identity`] reads DID documents.

pub mod cid;
pub mod limits;
pub mod syntax;
pub mod crypto;
pub mod cbor;
pub mod identity;
