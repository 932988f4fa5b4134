//! Tests what the mirror serves over real sockets: answers are compared with the truth of the
//! test network and verified with the codec.

mod accounts;
mod damaged_records;
mod exports;
mod filters;
mod handles;
mod imports;
mod listings;
mod parameters;
mod proofs;
mod records;
mod served;
