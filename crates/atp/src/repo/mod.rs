//! Repositories as files: the signed commit, and the CAR that contains it.

mod commit;
mod export;
mod import;
mod signed;

pub use commit::{Commit, CommitError, SIGNATURE_BYTES};
pub use export::{Export, ExportError, write_record_proof};
pub use import::{ImportError, RepoCar};
pub use signed::{Part, SignedTree, SignedTreeError};
