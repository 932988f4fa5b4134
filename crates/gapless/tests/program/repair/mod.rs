//! Tests repair against the test network: hosts that move, lie, forget and come back, and the
//! fetches and sweeps that follow.

mod accounts;
mod covers;
mod damaged_records;
mod events;
mod fetching;
mod hostile;
mod hosts;
mod large;
mod restarts;
mod slow;
mod sweeps;
mod unanswered;
mod unlisted;
