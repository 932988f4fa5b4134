//! Does a listing come to an end? A host decides what its pages say, so it could
//! lead on for ever and keep a place that others wait for.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use gapless_atp::syntax::Did;

/// Pages in a row without a repository that was not listed before.
const PAGES_WITHOUT_NEWS: u32 = 16;
/// Pages of one listing: more repositories than any host has.
const PAGES: usize = 50_000;

/// Names on one page of which nothing is held. Anybody can make up more of them:
/// how many of these a listing may have, only its pages and the patience with the
/// host bound.
#[derive(Default)]
pub struct Others(HashSet<u64>);

impl Others {
    pub fn add(&mut self, did: &Did) {
        self.0.insert(hash(did.as_str()));
    }
}

/// The pages of one listing so far.
#[derive(Default)]
pub struct Pages {
    cursors: HashSet<u64>,
    idle: u32,
    /// On the page before.
    others: Others,
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

impl Pages {
    /// After a page with so many repositories of ours that were not listed before,
    /// others, and a cursor.
    pub fn go_on(&mut self, ours: usize, others: Others, cursor: &str) -> Result<(), &'static str> {
        if !self.cursors.insert(hash(cursor)) {
            return Err("the listing leads in a circle");
        }
        let new = ours + others.0.difference(&self.others.0).count();
        self.others = others;
        self.idle = if new == 0 { self.idle + 1 } else { 0 };
        if self.idle >= PAGES_WITHOUT_NEWS {
            return Err("page after page lists nothing new");
        }
        match self.cursors.len() >= PAGES {
            true => Err("the listing has more pages than any host needs"),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Others {
        Others::default()
    }

    fn others(numbers: std::ops::Range<u32>) -> Others {
        let mut others = none();
        for number in numbers {
            let did = format!("did:web:host{number}.example.com");
            others.add(&Did::parse(&did).expect("a DID"));
        }
        others
    }

    #[test]
    fn circles_and_empty_pages_end() {
        let mut pages = Pages::default();
        assert!(pages.go_on(5, none(), "a").is_ok() && pages.go_on(0, none(), "b").is_ok());
        assert!(pages.go_on(5, none(), "a").is_err(), "a circle");
        let mut pages = Pages::default();
        let ends = (0..100).position(|page| pages.go_on(0, none(), &page.to_string()).is_err());
        assert_eq!(ends, Some(PAGES_WITHOUT_NEWS as usize - 1));
    }

    #[test]
    fn a_page_that_comes_again_is_no_news_and_names_of_others_are() {
        let mut pages = Pages::default();
        let again = |page: u32| pages.go_on(0, others(0..1000), &page.to_string());
        let ends = (0..100).map(again).position(|gone| gone.is_err());
        assert_eq!(ends, Some(PAGES_WITHOUT_NEWS as usize));
        let mut pages = Pages::default();
        for page in 0..100 {
            let names = others(page * 10..page * 10 + 10);
            pages
                .go_on(0, names, &page.to_string())
                .expect("it leads on");
        }
    }

    #[test]
    fn a_long_listing_is_read_and_an_endless_one_is_not() {
        let mut pages = Pages::default();
        let ends =
            (0..).position(|page: u32| pages.go_on(1000, none(), &page.to_string()).is_err());
        assert_eq!(ends, Some(PAGES - 1));
    }
}
