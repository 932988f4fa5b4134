//! The harness that tests of the whole program share: a [`World`] with a test network, a mirror
//! of it and the truth; faults; waiting; the program as a process; and a log capture that fails
//! a test at an unexpected warning or error.
//!
//! For development only. Every failure panics, because the callers are tests. The harness
//! compares every answer about a repository with the truth before a test sees the answer.
//!
//! ```no_run
//! # use gapless_harness::{World, network};
//! # async fn a_lost_commit_is_found() {
//! let mut world = World::settled(network(2, 1)).await;
//! let did = world.did(0);
//! world.lose_commit(&did);
//! world.post(&did);
//! world.until_complete(&did).await;
//! world.stop().await;
//! # }
//! ```

mod ask;
pub mod audit;
pub mod fake_jetstream;
mod faults;
pub mod http;
mod log_capture;
mod program;
pub mod proxy;
mod wait;
mod world;

pub use gapless::demo::oracle;
pub use gapless::demo::traffic::{new_path, record};

pub use faults::{PDS, new_post, next_number};
pub use program::Program;
pub use wait::condition;
pub use world::{LOG, PATIENCE, Settled, World, listed, network, own_accounts, swept, unswept};
