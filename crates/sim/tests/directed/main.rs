//! Plays interleavings that are easy to get wrong, one by one, on the simulator's world and
//! mirror. Every step is checked against the truth, as in chaos; each test also checks what its
//! rule is for.

mod accounts;
mod fetching;
mod hosts;
mod log;
mod moves;
mod operators;
mod order;
mod readers;
mod streams;
mod sweeps;
