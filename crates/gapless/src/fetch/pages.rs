//! Does a listing come to an end? A host decides what its pages say, so it could
//! lead on for ever and keep a place that others wait for.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Pages in a row without a repository that was not listed before.
const PAGES_WITHOUT_NEWS: u32 = 16;
/// Pages of one listing: more repositories than any host has.
const PAGES: usize = 50_000;

/// The pages of one listing so far.
#[derive(Default)]
pub struct Pages {
    cursors: HashSet<u64>,
    idle: u32,
}

impl Pages {
    /// After a page with so many repositories that were new, and a cursor.
    pub fn go_on(&mut self, new: usize, cursor: &str) -> Result<(), &'static str> {
        let mut hasher = DefaultHasher::new();
        cursor.hash(&mut hasher);
        if !self.cursors.insert(hasher.finish()) {
            return Err("the listing leads in a circle");
        }
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

    #[test]
    fn circles_and_empty_pages_end() {
        let mut pages = Pages::default();
        assert!(pages.go_on(5, "a").is_ok() && pages.go_on(0, "b").is_ok());
        assert!(pages.go_on(5, "a").is_err(), "a circle");
        let mut pages = Pages::default();
        let ends = (0..100).position(|page| pages.go_on(0, &page.to_string()).is_err());
        assert_eq!(ends, Some(PAGES_WITHOUT_NEWS as usize - 1));
    }

    #[test]
    fn a_long_listing_is_read_and_an_endless_one_is_not() {
        let mut pages = Pages::default();
        let ends = (0..).position(|page: u32| pages.go_on(1000, &page.to_string()).is_err());
        assert_eq!(ends, Some(PAGES - 1));
    }
}
