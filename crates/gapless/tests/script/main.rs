//! The fault script: every fault that mirrors are known to fall to, against the real
//! program, by the hosts' own streams and by a relay's. All the while it is asked what
//! it holds, and every answer is compared with the truth at the rev that it states.

mod checker;
#[path = "../mirror/common.rs"]
#[allow(dead_code)]
mod common;
mod demo;
#[path = "../mirror/drive.rs"]
#[allow(dead_code)]
mod drive;
mod layouts;
#[path = "../mirror/logs.rs"]
mod logs;
#[path = "../mirror/oracle.rs"]
mod oracle;
#[path = "../mirror/process.rs"]
#[allow(dead_code)]
mod process;
#[path = "../mirror/program.rs"]
#[allow(dead_code)]
mod program;
mod script;
mod served;
mod steps;
