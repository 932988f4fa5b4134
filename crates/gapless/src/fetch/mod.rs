//! What was missed is fetched here: debts, snapshots, sweeps.

pub mod snapshot;
