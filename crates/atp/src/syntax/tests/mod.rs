//! Tests what each syntax type accepts, what it refuses, and the reason in the error.
//!
//! The values of the protocol's public interoperability suite are among the cases. Where a type
//! of this crate is stricter than the general syntax, the case says so.

mod accounts;
mod addresses;
mod properties;
mod tids;
