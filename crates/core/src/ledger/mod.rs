//! The ledger: what Gapless holds, what it lacks, and how it knows.
//!
//! The ledger keeps two facts apart. **Whole**: the held keys hash to the data root of
//! one signed commit, the head. This holds by construction, because a change is applied
//! only if it leads from one signed root to the next. **Current**: the head is the newest
//! commit that the owner has published, as far as the source that covers the repository
//! could tell. Epochs, sweeps and debts concern this fact alone. *Complete* means whole
//! and current; it is computed on demand and never stored.
//!
//! The modules, in the order in which an event meets them:
//!
//! | module | decides |
//! |---|---|
//! | [`stream`] | whether a connection missed anything (epochs, continuity) |
//! | [`cover`] | which upstream speaks for a repository |
//! | [`identity`] | which host a repository lives on |
//! | [`event`] | whether an event is applied, parked, refused, or owes work |
//! | [`claim`] | what a report from a source without proofs means |
//! | [`parked`] | which parked frame goes next |
//! | [`account`] | whether a repository is hidden, shown, or purged |
//! | [`deletion`] | whether to believe a relay that reports a deletion |
//! | [`debt`] | what is owed, and when it is tried next |
//! | [`fetch`] | what a head named by a host, or a snapshot, means |
//! | [`diff`] | whether to request the whole repository or a difference |
//! | [`rollback`] | whether to adopt the state of a host that is behind |
//! | [`sweep`] | what a listing means |
//! | [`damage`] | what happens when held data is not what was signed |
//! | [`complete`] | whether a repository is complete, why not, and as of when |

pub mod account;
pub mod claim;
pub mod complete;
pub mod cover;
pub mod damage;
pub mod debt;
pub mod deletion;
pub mod diff;
pub mod event;
pub mod fetch;
pub mod identity;
pub mod notice;
pub mod parked;
pub mod rollback;
pub mod settings;
pub mod state;
pub mod stream;
pub mod sweep;
pub mod time;

pub use notice::Notice;
pub use settings::Settings;

pub use state::*;
pub use time::*;
