//! What is found by itself, against the test network: the whole of it, hosts that
//! nobody names, who has records in a collection; and which hosts do not answer.

mod collections;
#[path = "../mirror/common.rs"]
#[allow(dead_code)]
mod common;
#[path = "../mirror/drive.rs"]
#[allow(dead_code)]
mod drive;
mod hosts;
#[path = "../mirror/logs.rs"]
mod logs;
mod network;
#[path = "../mirror/oracle.rs"]
mod oracle;
mod streams;
mod widened;
