//! Caches the repository numbers of DIDs: most events concern repositories whose row
//! is not cached, and without this cache each would need two reads instead of one.
//!
//! A cell holds the number noted last for any of the DIDs that share it, so a caller
//! compares the DID in the row. Numbers are noted from durable views, and the number
//! of a DID never changes.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use gapless_atp::syntax::Did;
use gapless_core::ledger::RepoId;

/// Cells, of eight bytes each.
const CELLS: usize = 1 << 21;
/// Bits of a cell that hold the number; the others tell DIDs apart.
const NUMBER_BITS: u32 = 40;
const NUMBERS: u64 = 1 << NUMBER_BITS;

/// A fixed number of cells; the hash of a DID says which cell is its own.
pub(crate) struct IdCache(Box<[AtomicU64]>);

impl Default for IdCache {
    fn default() -> IdCache {
        IdCache((0..CELLS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl IdCache {
    /// Returns the number of a DID, or that of another DID with the same cell and bits.
    pub(crate) fn guess(&self, did: &Did) -> Option<RepoId> {
        let (cell, mark) = bucket(did);
        let noted = self.0[cell].load(Ordering::Relaxed);
        let known = noted != 0 && noted >> NUMBER_BITS == mark;
        known.then(|| RepoId((noted & (NUMBERS - 1)) - 1))
    }

    pub(crate) fn note(&self, did: &Did, id: RepoId) {
        let (cell, mark) = bucket(did);
        // Zero is an empty cell.
        if let Some(number) = id.0.checked_add(1).filter(|number| *number < NUMBERS) {
            self.0[cell].store(mark << NUMBER_BITS | number, Ordering::Relaxed);
        }
    }
}

/// The cell of a DID, and the bits that tell it apart from others there.
fn bucket(did: &Did) -> (usize, u64) {
    let mut hasher = DefaultHasher::new();
    hasher.write(did.as_str().as_bytes());
    let hash = hasher.finish();
    let mark = hash >> NUMBER_BITS;
    ((hash % CELLS as u64) as usize, mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(number: u32) -> Did {
        Did::parse(&format!("did:web:r{number}.test")).unwrap()
    }

    #[test]
    fn what_was_noted_last_is_guessed() {
        let ids = IdCache::default();
        assert_eq!(ids.guess(&did(1)), None);
        for id in [0, 7, NUMBERS - 2] {
            ids.note(&did(1), RepoId(id));
            assert_eq!(ids.guess(&did(1)), Some(RepoId(id)));
        }
        ids.note(&did(2), RepoId(NUMBERS - 1));
        assert_eq!(ids.guess(&did(2)), None, "too large to be noted");
        let others = (3..2000).filter(|other| ids.guess(&did(*other)).is_some());
        assert_eq!(others.count(), 0);
    }
}
