//! What the mirror serves to others, over real sockets, held against the truth of the
//! test network and checked with the codec as any reader would check it.

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
