//! Ends a listing that does not end by itself. A host decides what its pages say, so it could
//! send pages for ever, and hold a slot that other hosts wait for.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use gapless_atp::syntax::Did;

/// Pages in a row without a repository that was not listed before.
const MAX_PAGES_WITHOUT_NEWS: u32 = 16;
/// Pages of one listing: more repositories than any host has.
const MAX_PAGES: usize = 50_000;

/// Names on one page of which nothing is held. A host can make up such names without end;
/// only the limit on pages and the patience with the host bound them.
#[derive(Default)]
pub(crate) struct UnheldNames(HashSet<u64>);

impl UnheldNames {
    pub(crate) fn add(&mut self, did: &Did) {
        self.0.insert(hash(did.as_str()));
    }
}

/// The pages of one listing so far.
#[derive(Default)]
pub(crate) struct PageGuard {
    cursors: HashSet<u64>,
    idle: u32,
    /// The unheld names of the page before.
    unheld: UnheldNames,
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl PageGuard {
    /// Checks a page with `new_held` held repositories that no earlier page had. The error
    /// says why the listing is given up.
    pub(crate) fn check(
        &mut self,
        new_held: usize,
        unheld: UnheldNames,
        cursor: &str,
    ) -> Result<(), &'static str> {
        if !self.cursors.insert(hash(cursor)) {
            return Err("the listing leads in a circle");
        }
        let new = new_held + unheld.0.difference(&self.unheld.0).count();
        self.unheld = unheld;
        self.idle = if new == 0 { self.idle + 1 } else { 0 };
        if self.idle >= MAX_PAGES_WITHOUT_NEWS {
            return Err("page after page lists nothing new");
        }
        if self.cursors.len() >= MAX_PAGES {
            Err("the listing has more pages than any host needs")
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> UnheldNames {
        UnheldNames::default()
    }

    fn others(numbers: std::ops::Range<u32>) -> UnheldNames {
        let mut others = none();
        for number in numbers {
            let did = format!("did:web:host{number}.example.com");
            others.add(&Did::parse(&did).expect("a DID"));
        }
        others
    }

    #[test]
    fn circles_and_empty_pages_end() {
        let mut pages = PageGuard::default();
        assert!(pages.check(5, none(), "a").is_ok() && pages.check(0, none(), "b").is_ok());
        assert!(pages.check(5, none(), "a").is_err(), "a circle");
        let mut pages = PageGuard::default();
        let ends = (0..100).position(|page| pages.check(0, none(), &page.to_string()).is_err());
        assert_eq!(ends, Some(MAX_PAGES_WITHOUT_NEWS as usize - 1));
    }

    #[test]
    fn a_page_that_comes_again_is_no_news_and_names_of_others_are() {
        let mut pages = PageGuard::default();
        let again = |page: u32| pages.check(0, others(0..1000), &page.to_string());
        let ends = (0..100).map(again).position(|gone| gone.is_err());
        assert_eq!(ends, Some(MAX_PAGES_WITHOUT_NEWS as usize));
        let mut pages = PageGuard::default();
        for page in 0..100 {
            let names = others(page * 10..page * 10 + 10);
            pages
                .check(0, names, &page.to_string())
                .expect("it leads on");
        }
    }

    #[test]
    fn a_long_listing_is_read_and_an_endless_one_is_not() {
        let mut pages = PageGuard::default();
        let ends =
            (0..).position(|page: u32| pages.check(1000, none(), &page.to_string()).is_err());
        assert_eq!(ends, Some(MAX_PAGES - 1));
    }
}
