//! A repository as a file: the signed commit, and the CAR around it.

mod commit;
mod export;
mod import;

pub use commit::{Commit, CommitError, SIGNATURE_BYTES};
pub use export::{Export, ExportError, write_record_proof};
pub use import::{ImportError, RepoCar};
