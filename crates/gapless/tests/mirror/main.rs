//! The mirror against the test network: streams, events and crashes. Real
//! sockets, real signatures, a real store; and the truth to compare with.

mod basic;
mod common;
mod contents;
mod crashes;
mod drive;
mod events;
mod process;
mod streams;
mod unreadable;
