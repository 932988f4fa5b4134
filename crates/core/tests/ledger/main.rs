//! Tests the rules of the ledger one by one. Each test takes one decision, or a few, and fails
//! if the rule that it names is removed. Whole schedules are tested in the simulator.

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
