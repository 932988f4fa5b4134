//! The rules of the ledger, one by one: each test takes one decision, or a few,
//! and would fail if the rule it names were gone. Whole schedules are in the
//! simulator.

mod account;
mod attacks;
mod claim;
mod complete;
mod cover;
mod debt;
mod deletion;
mod diff;
mod event;
mod fetch;
mod identity;
mod rollback;
mod scenario;
mod stream;
mod sweep;
