//! How long a host may keep a sweep waiting. The host decides how fast it answers, and its
//! sweep takes a slot that other hosts wait for. So a host has some time to begin with, and
//! more with every answer, and a host that answers nothing is given up early. The time that
//! Gapless itself takes is not counted.

use std::time::Duration;

/// The time that a host has to begin with.
const INITIAL_PATIENCE: Duration = Duration::from_secs(600);
/// The time that every page adds: a thousand repositories.
const PER_PAGE: Duration = Duration::from_secs(5);
/// The time that every question adds. Questions run concurrently, so one may take longer.
const PER_QUESTION: Duration = Duration::from_secs(1);
/// Requests of other tasks that a request may have to wait for at the rate limit.
const WAITS_PER_REQUEST: u32 = 5;
/// Questions in a row without an answer after which a host is given up.
const MAX_SILENT: u32 = 5;
/// Questions in a row without an answer after which a host is given up that has just sent a
/// listing. Such a host is up, but some of its repositories may be broken.
const MAX_SILENT_AFTER_LISTING: u32 = 20;

/// The patience with one host, in one sweep.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    waited: Duration,
    allowed: Duration,
    /// How long a request may wait at the rate limit to one host.
    rate_limit_wait: Duration,
    listed: bool,
    /// Questions in a row without an answer.
    silent: u32,
}

impl Patience {
    /// Creates the full patience, under a limit of requests to one host.
    pub(crate) fn new(requests_per_second: f64) -> Patience {
        let between_requests = Duration::try_from_secs_f64(1.0 / requests_per_second);
        Patience {
            waited: Duration::ZERO,
            allowed: INITIAL_PATIENCE,
            rate_limit_wait: between_requests.unwrap_or_default() * WAITS_PER_REQUEST,
            listed: false,
            silent: 0,
        }
    }

    /// Returns how long the next answer may take.
    pub(crate) fn left(&self) -> Duration {
        self.allowed.saturating_sub(self.waited)
    }

    /// Records a page that took `took`.
    pub(crate) fn page_received(&mut self, took: Duration) -> Result<(), String> {
        self.listed = true;
        self.answer(PER_PAGE, took)
    }

    /// Records a question that took `took`.
    pub(crate) fn question_ended(&mut self, took: Duration, answered: bool) -> Result<(), String> {
        self.silent = if answered { 0 } else { self.silent + 1 };
        let max_silent = if self.listed {
            MAX_SILENT_AFTER_LISTING
        } else {
            MAX_SILENT
        };
        if self.silent >= max_silent {
            return Err(format!("{max_silent} questions in a row without an answer"));
        }
        self.answer(PER_QUESTION, took)
    }

    fn answer(&mut self, adds: Duration, took: Duration) -> Result<(), String> {
        self.allowed += adds + self.rate_limit_wait;
        self.waited += took;
        if self.waited <= self.allowed {
            Ok(())
        } else {
            Err(self.exhausted())
        }
    }

    /// Describes exhausted patience.
    pub(crate) fn exhausted(&self) -> String {
        format!(
            "the host answers too slowly: its answers took {} s, and the limit for as many answers is {} s",
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
            large.page_received(2 * SECOND).expect("it goes on");
        }
        for _ in 0..100_000 {
            large.question_ended(SECOND / 10, true).expect("it goes on");
        }
        let mut slow = patience();
        slow.page_received(500 * SECOND)
            .expect("it may take its time once");
        assert!(slow.left() < 110 * SECOND && slow.left() > 90 * SECOND);
    }

    #[test]
    fn a_host_that_drips_is_given_up() {
        let mut drips = patience();
        let pages = (0..).position(|_| drips.page_received(60 * SECOND).is_err());
        assert!(pages.is_some_and(|pages| pages < 20), "{pages:?}");
        let mut drips = patience();
        let asked = (0..).position(|_| drips.question_ended(4 * SECOND, true).is_err());
        assert!(asked.is_some_and(|asked| asked < 300), "{asked:?}");
    }

    #[test]
    fn requests_that_the_operator_spaces_out_are_waited_for() {
        let mut spaced = Patience::new(0.05);
        for _ in 0..1_000 {
            spaced.page_received(40 * SECOND).expect("two turns");
        }
    }

    #[test]
    fn a_host_that_answers_nothing_is_given_up_early_and_one_that_listed_later() {
        let give_up = |patience: &mut Patience| {
            let mut asked = 0..;
            asked.position(|_| patience.question_ended(SECOND, false).is_err())
        };
        assert_eq!(give_up(&mut patience()), Some(MAX_SILENT as usize - 1));
        let mut listed = patience();
        listed.page_received(SECOND).expect("a page");
        assert_eq!(
            give_up(&mut listed),
            Some(MAX_SILENT_AFTER_LISTING as usize - 1)
        );
        let mut now_and_then = patience();
        for number in 0..100 {
            let answered = number % 4 == 0;
            let going = now_and_then.question_ended(SECOND, answered);
            going.expect("some are answered");
        }
    }
}
