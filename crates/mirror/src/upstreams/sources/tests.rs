//! Tests the statistics of upstreams: which was first, which was late or missed a commit, and
//! which is not judged.

use std::cell::Cell;

use gapless_core::ledger::{Epoch, FollowReason, Lived, Tick};

use super::*;

const HOST: HostId = HostId(7);
const ONE: UpstreamId = UpstreamId(1);
const TWO: UpstreamId = UpstreamId(2);

fn row(kind: UpstreamKind, host: Option<HostId>) -> Upstream {
    Upstream {
        url: String::new(),
        kind,
        host,
        epoch: Epoch(0),
        first_cursor_since_reset: None,
        numbering: 0,
        reset_at: Tick(0),
        unread_at: None,
        followed: FollowReason::Configured,
    }
}

struct Both {
    sources: Sources,
    one: Arc<SourceTally>,
    two: Arc<SourceTally>,
    did: Did,
    tracked: Cell<bool>,
    began: Instant,
}

fn both(kind: UpstreamKind, host: Option<HostId>) -> Both {
    with_second(row(kind, host))
}

fn with_second(second: Upstream) -> Both {
    let sources = Sources::new(Arc::new(Clock::resume(Tick(0), Lived::default())));
    let one = sources.add(ONE, &row(UpstreamKind::Relay, None));
    assert!(!sources.has_several());
    let two = sources.add(TWO, &second);
    one.connected();
    two.connected();
    Both {
        sources,
        one,
        two,
        did: Did::parse("did:plc:z72i7hdynmk6r22z27h6tvur").expect("a DID"),
        tracked: Cell::new(false),
        began: Instant::now(),
    }
}

impl Both {
    fn brings(&self, tally: &SourceTally, rev: u64, proof: Proof, after_ms: u64) {
        self.sources.brought(
            tally,
            &CommitArrival {
                did: &self.did,
                rev: Rev::from_bits(rev),
                host: Some(HOST),
                cover: Some(TWO),
                tracked: self.tracked.get(),
                proof,
                at: self.began + Duration::from_millis(after_ms),
            },
        );
    }

    fn later(&self) {
        self.sources.expire_due_at(Instant::now() + MISSED_AFTER);
    }

    fn figures(&self) -> (SourceFigures, SourceFigures) {
        let of = |id| self.sources.figures(id).expect("it is followed");
        (of(ONE), of(TWO))
    }
}

#[test]
fn the_first_the_late_and_the_one_that_misses_are_told_apart() {
    let both = both(UpstreamKind::Relay, None);
    assert!(both.sources.has_several());
    both.brings(&both.one, 1, Proof::Signed, 0);
    both.brings(&both.two, 1, Proof::Replay, 40);
    both.brings(&both.two, 1, Proof::Replay, 90);
    both.brings(&both.one, 2, Proof::Signed, 100);
    let (one, two) = both.figures();
    assert_eq!((one.first, one.late, one.missed), (2, 0, 0));
    assert_eq!((two.first, two.late, two.missed), (0, 1, 0));
    assert_eq!(two.late_max, Some(Duration::from_millis(40)));
    assert_eq!(two.late_mean, two.late_max);
    assert_eq!(two.late_p99, two.late_max, "no more than the latest");
    both.later();
    let (one, two) = both.figures();
    assert_eq!((one.missed, two.missed), (0, 1));
    assert!(two.missed_first.is_some());
    // It speaks for the repository: its host is swept, unless that was just done.
    assert!(
        both.sources
            .wants_sweep(HOST, Tick(0), DOUBT_SWEEP_INTERVAL)
    );
    assert!(
        !both
            .sources
            .wants_sweep(HOST, Tick(0), DOUBT_SWEEP_INTERVAL / 2)
    );
    assert!(
        !both
            .sources
            .wants_sweep(HOST, Tick(u64::MAX), DOUBT_SWEEP_INTERVAL)
    );
    assert!(
        !both
            .sources
            .wants_sweep(HOST, Tick(0), DOUBT_SWEEP_INTERVAL)
    );
}

#[test]
fn an_unsigned_claim_counts_against_no_source() {
    let both = both(UpstreamKind::Relay, None);
    both.brings(&both.one, 1, Proof::Signed, 0);
    both.brings(&both.two, 1, Proof::Replay, 0);
    both.brings(&both.one, 2, Proof::Claimed, 0);
    both.brings(&both.one, 3, Proof::Replay, 0);
    both.later();
    assert_eq!(both.figures().0.first, 1, "a claim is not a commit yet");
    assert_eq!(both.figures().1.missed, 0);
    // A claim that another source proves counts as first.
    both.brings(&both.one, 4, Proof::Claimed, 0);
    both.brings(&both.two, 4, Proof::Signed, 30);
    let (one, two) = both.figures();
    assert_eq!((one.first, two.late), (2, 2));
    assert_eq!(two.late_max, Some(Duration::from_millis(30)));
}

#[test]
fn who_was_away_or_never_brings_that_host_has_missed_nothing() {
    let both = both(UpstreamKind::Relay, None);
    both.brings(&both.one, 1, Proof::Signed, 0);
    both.later();
    assert_eq!(both.figures().1.missed, 0, "nothing of that host so far");
    both.brings(&both.two, 2, Proof::Signed, 0);
    both.two.lost();
    both.brings(&both.one, 3, Proof::Signed, 0);
    both.two.connected();
    both.later();
    assert_eq!(both.figures().1.missed, 0, "it was away");
    both.brings(&both.one, 4, Proof::Signed, 0);
    both.later();
    assert_eq!(both.figures().1.missed, 1);
}

#[test]
fn a_source_that_reads_tracked_repositories_alone_misses_no_others() {
    for (kind, followed) in [
        (UpstreamKind::Relay, FollowReason::Narrowed),
        (UpstreamKind::Pds, FollowReason::Narrowed),
        (UpstreamKind::Pds, FollowReason::ForTracked),
    ] {
        let host = Some(HOST).filter(|_| kind == UpstreamKind::Pds);
        let mut second = row(kind, host);
        second.followed = followed;
        let both = with_second(second);
        both.brings(&both.one, 1, Proof::Signed, 0);
        both.brings(&both.two, 1, Proof::Replay, 0);
        both.brings(&both.one, 2, Proof::Signed, 0);
        both.later();
        assert_eq!(both.figures().1.missed, 0, "{kind:?} {followed:?}");
        both.tracked.set(true);
        both.brings(&both.one, 3, Proof::Signed, 0);
        both.later();
        assert_eq!(both.figures().1.missed, 1, "{kind:?} {followed:?}");
    }
}

#[test]
fn a_host_is_asked_for_its_own_and_a_jetstream_for_nothing() {
    let own = both(UpstreamKind::Pds, Some(HOST));
    own.brings(&own.one, 1, Proof::Signed, 0);
    own.later();
    assert_eq!(own.figures().1.missed, 1);
    let other = both(UpstreamKind::Pds, Some(HostId(8)));
    other.brings(&other.one, 1, Proof::Signed, 0);
    other.later();
    assert_eq!(other.figures().1.missed, 0);
    let jetstream = both(UpstreamKind::Jetstream, None);
    jetstream.brings(&jetstream.two, 1, Proof::Claimed, 0);
    jetstream.brings(&jetstream.one, 1, Proof::Signed, 5);
    jetstream.brings(&jetstream.one, 2, Proof::Signed, 5);
    jetstream.later();
    let (one, two) = jetstream.figures();
    assert_eq!((two.first, two.missed), (1, 0));
    assert_eq!((one.first, one.late), (1, 1));
}

#[test]
fn the_memory_is_bounded_and_what_is_pushed_out_is_not_judged() {
    let both = both(UpstreamKind::Relay, None);
    both.brings(&both.two, 0, Proof::Signed, 0);
    let many = MAX_RECENT_COMMITS as u64 * 2;
    for rev in 1..=many {
        both.brings(&both.one, rev, Proof::Signed, 0);
    }
    both.later();
    let missed = both.figures().1.missed;
    assert!(missed <= MAX_RECENT_COMMITS as u64, "{missed}");
    assert!(missed > MAX_RECENT_COMMITS as u64 / 2, "{missed}");
    assert_eq!(missed + both.sources.unjudged(), many + 1);
}

#[test]
fn two_hosts_alone_have_nothing_in_common() {
    let sources = Sources::new(Arc::new(Clock::resume(Tick(0), Lived::default())));
    sources.add(ONE, &row(UpstreamKind::Pds, Some(HOST)));
    sources.add(TWO, &row(UpstreamKind::Pds, Some(HostId(8))));
    assert!(!sources.has_several());
    sources.add(UpstreamId(3), &row(UpstreamKind::Relay, None));
    assert!(sources.has_several());
    sources.remove(UpstreamId(3));
    assert!(!sources.has_several());
}
