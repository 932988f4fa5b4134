//! Repairs: settles debts by resolving DIDs, asking hosts for heads, and fetching. In the
//! order of a repair:
//!
//! | module | what it does |
//! |---|---|
//! | [`reload`] | reads debts from the store |
//! | [`worker`] | takes the next debt and settles it: resolve, ask, fetch |
//! | `named_by` | attributes new hosts to their source, and warns of strays |
//! | `ask_head` | asks a host for a head and records the answer |
//! | `filter_check` | settles a fetch for a changed filter if all wanted records are held |
//! | `fetch_repo` | one fetch: download, check, write |
//! | `download` | receives a CAR, and records the answers that bring none |
//! | [`import`] | `Importer`: a repository from a file: check, write |
//! | `since_revs` | the rev from which each difference was last requested |
//! | [`spill`] | keeps a CAR in memory or in a file |
//! | [`held_tree`], `block_source` | tree nodes from the held records, and from the CAR |
//! | [`snapshot`] | checks that a snapshot is whole and signed |
//! | [`compare`] | the operations that turn the held records into those of the snapshot |
//! | `write_snapshot` | writes a snapshot over the held records, chunk by chunk |

pub(crate) mod ask_head;
mod block_source;
pub mod compare;
mod download;
mod fetch_repo;
mod filter_check;
pub mod held_tree;
pub mod import;
mod named_by;
pub mod reload;
pub(crate) mod since_revs;
pub mod snapshot;
pub mod spill;
pub mod worker;
mod write_snapshot;
