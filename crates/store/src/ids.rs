//! Which number a DID has, remembered: most events concern repositories whose row
//! is not at hand, and without this each would cost two reads instead of one.
//!
//! A place of the table holds the last one that was noted there, and may be wrong
//! about whose it is: whoever uses it compares the DID in the row. What is noted was
//! read from a durable view, and a DID never gets another number.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use gapless_atp::syntax::Did;
use gapless_core::ledger::RepoId;

/// Places, of eight bytes each.
const PLACES: usize = 1 << 21;
/// Bits of a place that tell the number; the others tell DIDs apart.
const NUMBER_BITS: u32 = 40;
const NUMBERS: u64 = 1 << NUMBER_BITS;

pub(crate) struct Ids(Box<[AtomicU64]>);

impl Default for Ids {
    fn default() -> Ids {
        Ids((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Ids {
    /// The number that a DID has, or another one's.
    pub fn guess(&self, did: &Did) -> Option<RepoId> {
        let (place, mark) = place(did);
        let noted = self.0[place].load(Ordering::Relaxed);
        let known = noted != 0 && noted >> NUMBER_BITS == mark;
        known.then(|| RepoId((noted & (NUMBERS - 1)) - 1))
    }

    pub fn note(&self, did: &Did, id: RepoId) {
        let (place, mark) = place(did);
        // Zero is an empty place.
        if let Some(number) = id.0.checked_add(1).filter(|number| *number < NUMBERS) {
            self.0[place].store(mark << NUMBER_BITS | number, Ordering::Relaxed);
        }
    }
}

fn place(did: &Did) -> (usize, u64) {
    let mut hasher = DefaultHasher::new();
    hasher.write(did.as_str().as_bytes());
    let hash = hasher.finish();
    let mark = hash >> NUMBER_BITS;
    ((hash % PLACES as u64) as usize, mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(number: u32) -> Did {
        Did::parse(&format!("did:web:r{number}.test")).unwrap()
    }

    #[test]
    fn what_was_noted_last_is_guessed() {
        let ids = Ids::default();
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
