//! Runs a thousand seeds and a million events at random, and checks after each event what
//! docs/promises/simulator.md lists. Seeds that failed once run first. `GAPLESS_SIM_SEEDS` sets
//! more seeds.

use std::collections::BTreeMap;

use gapless_sim::chaos::{Outcome, Run};
use gapless_sim::mirror::log_event::LogEvent;
use gapless_sim::pin;
use gapless_sim::readers::kinds::LogRowKind;
use gapless_sim::world::Fault;

#[allow(clippy::disallowed_methods)] // A test's configuration is its environment.
fn wanted() -> u64 {
    let asked = std::env::var("GAPLESS_SIM_SEEDS").ok();
    asked.and_then(|seeds| seeds.parse().ok()).unwrap_or(1_000)
}

fn run(seed: u64) -> Outcome {
    match Run::go(seed) {
        Ok(outcome) => outcome,
        Err(failure) => panic!("{}", failure.text),
    }
}

#[test]
fn seeds_that_failed_once_do_not_fail_again() {
    let seeds = pin::failed_once();
    assert!(!seeds.is_empty());
    for seed in seeds {
        run(seed);
    }
}

#[test]
fn whatever_happens_nothing_is_called_complete_that_is_not() {
    let (mut events, mut complete, mut compared) = (0, 0, 0);
    let (mut differences, mut right, mut claimed) = (0, 0, 0);
    let mut adopted = 0;
    let mut fired: BTreeMap<Fault, u64> = BTreeMap::new();
    let mut log_events: BTreeMap<LogEvent, u64> = BTreeMap::new();
    let mut read: BTreeMap<LogRowKind, u64> = BTreeMap::new();
    let seeds = wanted();
    for seed in 0..seeds {
        let outcome = run(seed);
        events += outcome.events;
        complete += outcome.complete;
        compared += outcome.compared;
        differences += outcome.differences;
        right += outcome.differences_right;
        claimed += outcome.claimed;
        adopted += outcome.adopted;
        for (event, times) in outcome.log_events.iter() {
            *log_events.entry(event).or_default() += times;
        }
        for kind in LogRowKind::ALL {
            *read.entry(kind).or_default() += outcome.kinds.times(kind);
        }
        for (fault, times) in outcome.fired {
            *fired.entry(fault).or_default() += times;
        }
    }
    assert!(events >= 1_000 * seeds, "only {events} events");
    // A mirror that never says "complete" is never wrong.
    assert!(complete > events / 4, "complete only {complete} times");
    assert!(compared > events / 20, "compared only {compared} times");
    // Nor does a difference that was not requested prove anything.
    assert!(
        right > seeds && right < differences,
        "{right} of {differences} differences led to the signed root"
    );
    assert!(
        claimed > seeds / 4,
        "only {claimed} claims were asked about"
    );
    for fault in Fault::ALL {
        let times = fired.get(fault).copied().unwrap_or(0);
        assert!(times > 0, "{fault:?} never fired: {}", fault.what());
    }
    assert!(adopted > 0, "no rollback was ever adopted");
    for event in LogEvent::ALL {
        let times = log_events.get(event).copied().unwrap_or(0);
        assert!(times > 0, "{event:?} never happened: {}", event.what());
    }
    for kind in LogRowKind::ALL {
        assert!(read[&kind] > 0, "no reader read a row of the kind {kind:?}");
    }
    let compared = log_events[&LogEvent::Equal];
    assert!(compared > 20 * seeds, "readers compared {compared} times");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 0..12 {
        assert_eq!(run(seed).hash, run(seed).hash, "seed {seed}");
    }
    assert_ne!(run(1).hash, run(2).hash);
}
