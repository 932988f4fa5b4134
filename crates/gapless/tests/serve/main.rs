//! What the mirror serves to others, over real sockets, held against the truth of the
//! test network and checked with the codec as any reader would check it.

mod accounts;
#[path = "../mirror/common.rs"]
#[allow(dead_code)]
mod common;
#[path = "../mirror/drive.rs"]
#[allow(dead_code)]
mod drive;
mod exports;
mod filters;
mod handles;
mod imports;
mod listings;
#[path = "../mirror/logs.rs"]
#[allow(dead_code)]
mod logs;
#[path = "../mirror/oracle.rs"]
#[allow(dead_code)]
mod oracle;
mod parameters;
#[path = "../mirror/program.rs"]
#[allow(dead_code)]
mod program;
mod proofs;
mod records;
mod served;
mod spoilt;
