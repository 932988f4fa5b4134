//! The revision from which a difference was last requested, for each repository. A repair
//! that asks again from the same revision fetches the whole repository instead.

use gapless_atp::syntax::{Did, Rev};
use quick_cache::sync::Cache;

/// Repositories whose last revision is kept. At capacity another repository's is evicted;
/// then a difference that failed may be requested once more.
const MAX_REPOS: usize = 20_000;

pub(crate) struct SinceRevs(Cache<Did, Rev>);

impl Default for SinceRevs {
    fn default() -> SinceRevs {
        SinceRevs(Cache::new(MAX_REPOS))
    }
}

impl SinceRevs {
    /// The revision from which a difference of a repository was last requested.
    pub(crate) fn of(&self, did: &Did) -> Option<Rev> {
        self.0.get(did)
    }

    pub(crate) fn note(&self, did: &Did, rev: Rev) {
        self.0.insert(did.clone(), rev);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(number: usize) -> Did {
        Did::parse(&format!("did:web:host{number}.example.com")).unwrap()
    }

    #[test]
    fn a_full_cache_forgets_one_repository_at_a_time() {
        let revs = SinceRevs::default();
        let rev = |number: usize| Rev::from_bits(number as u64);
        for number in 0..MAX_REPOS + 10 {
            revs.note(&did(number), rev(number));
            assert_eq!(revs.of(&did(number)), Some(rev(number)));
        }
        assert!(revs.0.len() <= MAX_REPOS);
        let kept = (0..MAX_REPOS + 10).filter(|number| revs.of(&did(*number)).is_some());
        assert!(kept.count() > MAX_REPOS * 9 / 10);
    }
}
