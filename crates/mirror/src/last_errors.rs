//! The last error of each repository whose last attempt failed, as text for an operator.
//! The texts are in memory alone, for at most [`MAX_REPOS`] repositories. A restart
//! forgets them, and the next attempt brings them back.

use std::fmt::Display;

use gapless_atp::syntax::Did;
use gapless_core::ledger::Time;
use quick_cache::sync::Cache;

/// Repositories whose last error is kept.
const MAX_REPOS: usize = 20_000;
/// Characters of one error that are kept: a chain of causes can be long.
const MAX_CHARS: usize = 500;

/// What went wrong, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastError {
    pub at: Time,
    pub error: String,
    /// Whether the error is local, so that the host of the repository did not cause it.
    pub here: bool,
}

/// The last error of each repository whose last attempt failed.
pub struct LastErrors {
    by_did: Cache<Did, LastError>,
}

impl Default for LastErrors {
    fn default() -> LastErrors {
        LastErrors {
            by_did: Cache::new(MAX_REPOS),
        }
    }
}

impl LastErrors {
    /// Keeps the error of a failed attempt. At capacity another repository's error is
    /// evicted.
    pub fn note(&self, at: Time, did: &Did, error: impl Display, here: bool) {
        let error = error.to_string().chars().take(MAX_CHARS).collect();
        self.by_did
            .insert(did.clone(), LastError { at, error, here });
    }

    /// Forgets the error of a repository, because its last attempt succeeded.
    pub fn clear(&self, did: &Did) {
        self.by_did.remove(did);
    }

    pub fn of(&self, did: &Did) -> Option<LastError> {
        self.by_did.get(did)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(number: usize) -> Did {
        Did::parse(&format!("did:web:host{number}.example.com")).unwrap()
    }

    #[test]
    fn the_last_error_is_kept_of_so_many_repositories_and_no_more() {
        let errors = LastErrors::default();
        for number in 0..MAX_REPOS + 10 {
            errors.note(Time(1), &did(number), "first", true);
            errors.note(Time(2), &did(number), "status 503", false);
            let kept = errors.of(&did(number)).expect("it was just noted");
            assert_eq!((kept.at, kept.error.as_str()), (Time(2), "status 503"));
            assert!(!kept.here);
        }
        assert!(errors.by_did.len() <= MAX_REPOS);
        let last = did(MAX_REPOS + 9);
        errors.clear(&last);
        assert_eq!(errors.of(&last), None);
    }
}
