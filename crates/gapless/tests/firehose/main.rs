//! The firehose that a mirror sends: read by consumers that check every frame, and
//! by another mirror. Real sockets, real signatures, and the truth to compare with.

mod chain;
#[path = "../mirror/common.rs"]
#[allow(dead_code)]
mod common;
#[path = "../mirror/drive.rs"]
#[allow(dead_code)]
mod drive;
mod ends;
mod gone;
#[path = "../mirror/logs.rs"]
mod logs;
#[path = "../mirror/oracle.rs"]
mod oracle;
#[path = "../mirror/program.rs"]
#[allow(dead_code)]
mod program;
mod slow;
mod strict;
mod window;
