//! The ledger: what is held, what is missing, and how we know.
//!
//! Two facts are kept apart. **Whole**: the keys that are held hash to the data
//! root of one signed commit, the head; true by construction, because nothing is
//! applied that does not lead from one signed root to the next. **Current**: the
//! head is the newest commit that the owner has published, as far as the source
//! we rely on could tell. Epochs, sweeps and debts are about this alone.
//! *Complete* is both at once, and is computed, never stored.
//!
//! In the order in which an event meets them:
//!
//! | module | decides |
//! |---|---|
//! | [`stream`] | did this connection miss anything? (epochs, continuity) |
//! | [`cover`] | which upstream speaks for a repository? |
//! | [`identity`] | which host does it live on? |
//! | [`event`] | apply, park, refuse, or owe? |
//! | [`claim`] | what does the word of an unproven source mean? |
//! | [`parked`] | which waiting frame goes next? |
//! | [`account`] | hidden, shown, or purged? |
//! | [`deletion`] | was it deleted, when only a relay says so? |
//! | [`debt`] | what is owed, and when is it tried next? |
//! | [`fetch`] | what does a named head or a snapshot mean? |
//! | [`diff`] | ask for the whole, or for what is new? |
//! | [`rollback`] | the host is behind us: hold, or adopt its state? |
//! | [`sweep`] | what does a listing mean? |
//! | [`damage`] | what if held data is not what was signed? |
//! | [`complete`] | is it complete, why not, and as of when? |

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
