//! What others say about the time: the revs of verified commits, one vote for each host.
//!
//! A rev is the time at which a repository's host wrote the commit. A rev that arrives late
//! makes the wall clock look ahead, which only delays a deletion. The votes are no clock: they
//! can withhold belief in the wall clock, and never correct it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use gapless_core::ledger::time::micros;
use gapless_core::ledger::{HostId, Time};

/// A vote counts for this long.
const VOTE_AGE: Duration = Duration::from_secs(600);
/// Votes that differ from the median by more than this do not agree, and a wall clock that differs from
/// the median by more is not believed.
const AGREEMENT: Duration = Duration::from_secs(300);
/// Fewer hosts are no evidence.
const HOSTS: usize = 3;
/// The most hosts whose votes are kept; further hosts have none until a vote is too old.
const MAX_VOTES: usize = 1_000;

/// What the votes say about the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockVerdict {
    /// Too few hosts have voted lately, or most of them differ from one another.
    NoEvidence,
    Agrees,
    Differs,
}

/// The latest votes.
#[derive(Debug, Default)]
pub(crate) struct Votes(HashMap<HostId, Vote>);

#[derive(Clone, Copy, Debug)]
struct Vote {
    at: Instant,
    /// Microseconds by which the host's time was ahead of the wall clock.
    ahead: i64,
}

impl Votes {
    /// Notes the rev of a commit that a host wrote, in microseconds. Of the votes of a host in
    /// [`VOTE_AGE`], the one that came with the least delay counts.
    pub(crate) fn note(&mut self, at: Instant, wall: Time, host: HostId, rev_micros: u64) {
        let ahead = (rev_micros as i64).saturating_sub(wall.0 as i64);
        let new = Vote { at, ahead };
        let old = self.0.get(&host).copied().filter(|old| !old.is_old(at));
        if old.is_some_and(|old| old.ahead >= ahead) {
            return;
        }
        if self.0.len() >= MAX_VOTES && !self.0.contains_key(&host) {
            self.0.retain(|_, vote| !vote.is_old(at));
            if self.0.len() >= MAX_VOTES {
                return;
            }
        }
        self.0.insert(host, new);
    }

    /// Forgets all votes, because they were measured against a wall clock that was set.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn verdict(&self, at: Instant) -> ClockVerdict {
        let votes = self.0.values().filter(|vote| !vote.is_old(at));
        let mut ahead: Vec<i64> = votes.map(|vote| vote.ahead).collect();
        ahead.sort_unstable();
        let Some(median) = ahead.get(ahead.len() / 2).copied() else {
            return ClockVerdict::NoEvidence;
        };
        let tolerated = micros(AGREEMENT);
        let agreeing = ahead
            .iter()
            .filter(|one| one.abs_diff(median) <= tolerated)
            .count();
        if agreeing < HOSTS || agreeing * 2 <= ahead.len() {
            ClockVerdict::NoEvidence
        } else if median.unsigned_abs() <= tolerated {
            ClockVerdict::Agrees
        } else {
            ClockVerdict::Differs
        }
    }
}

impl Vote {
    fn is_old(&self, at: Instant) -> bool {
        at.saturating_duration_since(self.at) > VOTE_AGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;
    const WALL: Time = Time(1_000_000 * 3600 * 24 * 365 * 50);

    /// The verdict after each host has voted once, with this many minutes ahead of the wall clock.
    fn verdict(ahead: &[i64]) -> ClockVerdict {
        let (at, mut votes) = (Instant::now(), Votes::default());
        for (host, minutes) in ahead.iter().enumerate() {
            let rev = WALL.0.saturating_add_signed(minutes * MINUTE);
            votes.note(at, WALL, HostId(host as u32), rev);
        }
        votes.verdict(at)
    }

    #[test]
    fn three_hosts_that_agree_are_evidence() {
        assert_eq!(verdict(&[0, 0]), ClockVerdict::NoEvidence);
        assert_eq!(verdict(&[0, -1, -4]), ClockVerdict::Agrees);
        assert_eq!(verdict(&[-60, -61, -64]), ClockVerdict::Differs);
        assert_eq!(verdict(&[60, 61, 64]), ClockVerdict::Differs);
    }

    #[test]
    fn hosts_that_differ_are_no_evidence() {
        assert_eq!(verdict(&[-60, -60, -66]), ClockVerdict::NoEvidence);
        assert_eq!(verdict(&[-60, -60, -60, 0, 0, 0]), ClockVerdict::NoEvidence);
    }

    #[test]
    fn a_single_host_that_is_wrong_or_late_silences_no_others() {
        assert_eq!(verdict(&[0, 0, 0, 600]), ClockVerdict::Agrees);
        assert_eq!(verdict(&[0, -60, -60, -60]), ClockVerdict::Differs);
    }

    #[test]
    fn a_host_has_one_vote_and_an_old_one_does_not_count() {
        let (at, mut votes) = (Instant::now(), Votes::default());
        for minutes in [0, 1, 2] {
            votes.note(at, WALL, HostId(1), WALL.0 + minutes * MINUTE as u64);
        }
        assert_eq!(votes.verdict(at), ClockVerdict::NoEvidence, "one host");
        for host in [2, 3] {
            votes.note(at, WALL, HostId(host), WALL.0);
        }
        assert_eq!(votes.verdict(at), ClockVerdict::Agrees);
        let later = at + VOTE_AGE + Duration::from_secs(1);
        assert_eq!(votes.verdict(later), ClockVerdict::NoEvidence);
    }

    #[test]
    fn a_commit_that_arrives_late_does_not_replace_one_that_came_at_once() {
        let (at, mut votes) = (Instant::now(), Votes::default());
        for host in [1, 2, 3] {
            votes.note(at, WALL, HostId(host), WALL.0);
            votes.note(at, WALL, HostId(host), WALL.0 - 3600 * 1_000_000);
        }
        assert_eq!(votes.verdict(at), ClockVerdict::Agrees);
    }

    #[test]
    fn the_number_of_votes_is_bounded() {
        let (at, mut votes) = (Instant::now(), Votes::default());
        for host in 0..2 * MAX_VOTES {
            votes.note(at, WALL, HostId(host as u32), WALL.0);
        }
        assert_eq!(votes.0.len(), MAX_VOTES);
    }
}
