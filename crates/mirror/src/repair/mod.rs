//! Repairs: settles debts by resolving, asking and fetching. In the order of a repair:
//!
//! | module | what it does |
//! |---|---|
//! | [`reload`] | reads from the store which debts exist |
//! | [`worker`] | takes the next debt and settles it: resolve, ask, fetch |
//! | `named_by` | which documents name a host, and which upstream brought a repository |
//! | `ask_head` | asks a host for a head and records the answer |
//! | `filter_check` | checks after a filter change whether the wanted records are held already |
//! | [`fetch_repo`] | one fetch: download, check, write |
//! | [`import`] | a repository from a file: check, write |
//! | [`since_revs`] | from which revision a difference was last requested |
//! | [`spill`] | keeps the bytes of a download in memory or in a file |
//! | [`held_tree`], [`block_source`] | tree nodes from what is held, and from the download |
//! | [`snapshot`] | checks that a download is whole and signed |
//! | [`compare`] | the operations that lead from the held records to the snapshot |
//! | `write_snapshot` | writes a snapshot over what is held, chunk by chunk |

pub(crate) mod ask_head;
pub mod block_source;
pub mod compare;
pub mod fetch_repo;
mod filter_check;
pub mod held_tree;
pub mod import;
mod named_by;
pub mod reload;
pub(crate) mod since_revs;
pub mod snapshot;
pub mod spill;
pub mod worker;
pub(crate) mod write_snapshot;
