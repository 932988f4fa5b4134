//! What each kind of name accepts and refuses, and why it says it refused.
//!
//! The values of the protocol's public interoperability suite are among these;
//! where a type here is stricter than the general syntax, the case says so.

mod accounts;
mod addresses;
mod properties;
mod tids;
