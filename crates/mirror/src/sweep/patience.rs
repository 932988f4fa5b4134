//! How long a host may keep a sweep waiting. It decides how fast it answers, and
//! whoever is swept has a place that others wait for: so it has some time to begin
//! with, and more with every answer, and what says nothing at all is given up early.
//! What we take ourselves, and the wait for our own events, is not counted.

use std::time::Duration;

/// What a host may take to begin with.
const FIRST: Duration = Duration::from_secs(600);
/// What every page adds: a thousand repositories.
const PER_PAGE: Duration = Duration::from_secs(5);
/// What every question adds. So many are put at a time that one may take longer.
const PER_QUESTION: Duration = Duration::from_secs(1);
/// Turns at a host that others may take before us: downloads, and what is owed.
const TURNS: u32 = 5;
/// Questions in a row without an answer after which nobody seems to be there.
const SILENT: u32 = 5;
/// The same of a host that has just listed. It is there, and some of its
/// repositories may be broken by themselves.
const SILENT_AFTER_LISTING: u32 = 20;

/// The patience that is left with a host, in one sweep.
#[derive(Debug, Clone)]
pub struct Patience {
    waited: Duration,
    allowed: Duration,
    /// How long we wait for a turn at a host, if we wait for ourselves alone.
    turn: Duration,
    listed: bool,
    /// Questions in a row without an answer.
    silent: u32,
}

impl Patience {
    /// With so many requests to a host in a second.
    pub fn new(requests_per_second: f64) -> Patience {
        let turn = Duration::try_from_secs_f64(1.0 / requests_per_second);
        Patience {
            waited: Duration::ZERO,
            allowed: FIRST,
            turn: turn.unwrap_or_default() * TURNS,
            listed: false,
            silent: 0,
        }
    }

    /// How long the next answer may take.
    pub fn left(&self) -> Duration {
        self.allowed.saturating_sub(self.waited)
    }

    /// A page has come, after so long.
    pub fn page(&mut self, took: Duration) -> Result<(), String> {
        self.listed = true;
        self.answer(PER_PAGE, took)
    }

    /// A question has ended, after so long.
    pub fn question(&mut self, took: Duration, answered: bool) -> Result<(), String> {
        self.silent = if answered { 0 } else { self.silent + 1 };
        let most = match self.listed {
            true => SILENT_AFTER_LISTING,
            false => SILENT,
        };
        if self.silent >= most {
            return Err(format!("{most} questions in a row without an answer"));
        }
        self.answer(PER_QUESTION, took)
    }

    fn answer(&mut self, adds: Duration, took: Duration) -> Result<(), String> {
        self.allowed += adds + self.turn;
        self.waited += took;
        match self.waited <= self.allowed {
            true => Ok(()),
            false => Err(self.over()),
        }
    }

    /// That there is none left, in words.
    pub fn over(&self) -> String {
        format!(
            "it answers too slowly: {} s were waited for its answers, and a sweep may take {} s for so many",
            self.waited.as_secs(),
            self.allowed.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn patience() -> Patience {
        Patience::new(10_000.0)
    }

    #[test]
    fn a_host_that_answers_is_waited_for_however_much_it_has() {
        let mut large = patience();
        for _ in 0..10_000 {
            large.page(2 * SECOND).expect("it goes on");
        }
        for _ in 0..100_000 {
            large.question(SECOND / 10, true).expect("it goes on");
        }
        let mut slow = patience();
        slow.page(500 * SECOND).expect("it may take its time once");
        assert!(slow.left() < 110 * SECOND && slow.left() > 90 * SECOND);
    }

    #[test]
    fn a_host_that_drips_is_given_up() {
        let mut drips = patience();
        let pages = (0..).position(|_| drips.page(60 * SECOND).is_err());
        assert!(pages.is_some_and(|pages| pages < 20), "{pages:?}");
        let mut drips = patience();
        let asked = (0..).position(|_| drips.question(4 * SECOND, true).is_err());
        assert!(asked.is_some_and(|asked| asked < 300), "{asked:?}");
    }

    #[test]
    fn requests_that_the_operator_spaces_out_are_waited_for() {
        let mut spaced = Patience::new(0.05);
        for _ in 0..1_000 {
            spaced.page(40 * SECOND).expect("two turns");
        }
    }

    #[test]
    fn a_host_that_answers_nothing_is_given_up_early_and_one_that_listed_later() {
        let give_up = |patience: &mut Patience| {
            let mut asked = 0..;
            asked.position(|_| patience.question(SECOND, false).is_err())
        };
        assert_eq!(give_up(&mut patience()), Some(SILENT as usize - 1));
        let mut listed = patience();
        listed.page(SECOND).expect("a page");
        assert_eq!(
            give_up(&mut listed),
            Some(SILENT_AFTER_LISTING as usize - 1)
        );
        let mut now_and_then = patience();
        for number in 0..100 {
            let answered = number % 4 == 0;
            let going = now_and_then.question(SECOND, answered);
            going.expect("some are answered");
        }
    }
}
