//! What is found by itself, against the test network: the whole of it, hosts that
//! nobody names, who has records in a collection; and which hosts do not answer.

mod collections;
mod hosts;
mod network;
mod streams;
mod widened;
