//! The mirror against the test network: hosts that move, lie, forget and come
//! back, and what is fetched and swept because of it.

mod accounts;
#[path = "../mirror/common.rs"]
mod common;
mod covers;
mod events;
mod fetching;
mod hostile;
mod hosts;
mod kept;
mod large;
#[path = "../mirror/logs.rs"]
mod logs;
#[path = "../mirror/oracle.rs"]
mod oracle;
#[path = "../mirror/program.rs"]
#[allow(dead_code)]
mod program;
mod slow;
mod spoilt;
mod steps;
mod sweeps;
mod unanswered;
mod unlisted;
#[path = "../mirror/way.rs"]
#[allow(dead_code)]
mod way;
