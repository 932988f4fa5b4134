//! Why the last try for a repository failed, in words for a person. In memory
//! alone, of the repositories that failed last; a restart forgets it, and the next
//! try brings it back.

use std::collections::{HashMap, VecDeque};
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use gapless_atp::syntax::Did;
use gapless_core::ledger::Time;

/// Repositories whose trouble is remembered.
const MOST: usize = 20_000;
/// Letters of one; hosts' words are cut before, a chain of causes is not.
const LETTERS: usize = 500;

/// What went wrong, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    pub at: Time,
    pub error: String,
    /// It went wrong here, and its host has done nothing.
    pub here: bool,
}

#[derive(Default)]
pub struct Troubles {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    of: HashMap<Did, Trouble>,
    /// In the order of their first trouble; each repository once.
    order: VecDeque<Did>,
}

impl Troubles {
    pub fn note(&self, at: Time, did: &Did, error: impl Display, here: bool) {
        let error = error.to_string().chars().take(LETTERS).collect();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let trouble = Trouble { at, error, here };
        if kept.of.insert(did.clone(), trouble).is_none() {
            kept.order.push_back(did.clone());
        }
        if kept.order.len() > MOST
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.of.remove(&oldest);
        }
    }

    /// The last try came to something.
    pub fn over(&self, did: &Did) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.of.remove(did).is_some() {
            kept.order.retain(|other| other != did);
        }
    }

    pub fn of(&self, did: &Did) -> Option<Trouble> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.of.get(did).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(number: usize) -> Did {
        Did::parse(&format!("did:web:host{number}.example.com")).unwrap()
    }

    #[test]
    fn the_last_trouble_is_kept_of_so_many_and_no_more() {
        let troubles = Troubles::default();
        for number in 0..MOST + 10 {
            troubles.note(Time(1), &did(number), "first", true);
            troubles.note(Time(2), &did(number), "status 503", false);
        }
        assert_eq!(troubles.of(&did(9)), None);
        let kept = troubles.of(&did(10)).expect("it is among the newest");
        assert_eq!((kept.at, kept.error.as_str()), (Time(2), "status 503"));
        assert!(!kept.here);
        let kept = troubles.kept.lock().unwrap();
        assert_eq!((kept.of.len(), kept.order.len()), (MOST, MOST));
    }
}
