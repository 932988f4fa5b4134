//! Runs the simulator over many seeds: `--seeds N` from `--from S`; `--verbose` prints the
//! whole trace of a failure; `--faults` prints how often each fault fired, and what happened to
//! the log and its readers. Ends with an error at the first failing seed, or with `--keep-going`
//! after all of them. `--pins` prints `traces.txt` instead.

use std::collections::BTreeMap;
use std::process::ExitCode;

use gapless_sim::chaos::Run;
use gapless_sim::pin::{self, Pin};
use gapless_sim::readers::kinds::LogRowKind;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, otherwise: u64| {
        let place = arguments.iter().position(|argument| argument == name);
        let value = place.and_then(|place| arguments.get(place + 1));
        value
            .and_then(|value| value.parse().ok())
            .unwrap_or(otherwise)
    };
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    if flag("--pins") {
        return print_pins();
    }
    let (from, seeds) = (number("--from", 0), number("--seeds", 1_000));
    let (mut events, mut complete, mut compared) = (0, 0, 0);
    let (mut fetched, mut differences, mut right) = (0, 0, 0);
    let (mut fired, mut log_events, mut read) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut broken: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for seed in from..from + seeds {
        let mut run = Run::new(seed);
        run.trace.verbose = flag("--verbose");
        let result = run.all();
        let outcome = run.outcome();
        events += outcome.events;
        complete += outcome.complete;
        compared += outcome.compared;
        fetched += outcome.fetched;
        differences += outcome.differences;
        right += outcome.differences_right;
        for (fault, times) in outcome.fired {
            *fired.entry(fault).or_insert(0) += times;
        }
        for (event, times) in outcome.log_events.iter() {
            *log_events.entry(event).or_insert(0) += times;
        }
        for kind in LogRowKind::ALL {
            *read.entry(kind).or_insert(0) += outcome.kinds.times(kind);
        }
        if let Err(what) = result {
            if !flag("--keep-going") {
                println!("{}", run.failure(&what).text);
                return ExitCode::FAILURE;
            }
            broken.entry(what.invariant).or_default().push(seed);
        }
    }
    println!(
        "{seeds} seeds, {events} events, {complete} times complete, {compared} compared, {fetched} fetches, {right} of {differences} differences right"
    );
    if flag("--faults") {
        for (fault, times) in fired {
            println!("{times:>9} {fault:?}: {}", fault.what());
        }
        for (event, times) in log_events {
            println!("{times:>9} {event:?}: {}", event.what());
        }
        for (kind, times) in read {
            println!("{times:>9} rows of the kind {kind:?} read");
        }
    }
    for (invariant, seeds) in &broken {
        let some: Vec<u64> = seeds.iter().take(8).copied().collect();
        println!("{invariant}: {} seeds, {some:?}", seeds.len());
    }
    if broken.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints the pin of every pinned seed.
fn print_pins() -> ExitCode {
    print!("{}", pin::HEADER);
    for seed in pin::seeds() {
        match Pin::of(seed) {
            Ok(pin) => println!("{}", pin.line()),
            Err(failure) => {
                eprintln!("{}", failure.text);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
