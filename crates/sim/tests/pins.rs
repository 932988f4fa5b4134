//! Tests that the pinned seeds lead to the traces in `traces.txt`, from one build to the next.

use gapless_sim::pin::{self, COMMAND, HEADER, Pin};

const TRACES: &str = include_str!("../traces.txt");

fn pins() -> Vec<Pin> {
    let rest = TRACES
        .strip_prefix(HEADER)
        .expect("traces.txt begins with its header");
    let pins = rest.lines().map(|line| (line, Pin::parse(line)));
    pins.map(|(line, pin)| pin.unwrap_or_else(|| panic!("not a pin: {line}")))
        .collect()
}

#[test]
fn every_pinned_seed_leads_to_the_same_trace_and_the_same_store() {
    let pins = pins();
    let seeds: Vec<u64> = pins.iter().map(|pin| pin.seed).collect();
    assert_eq!(seeds, pin::seeds(), "other seeds are pinned: {COMMAND}");
    let mut moved = Vec::new();
    for pin in pins {
        let now = Pin::of(pin.seed).unwrap_or_else(|failure| panic!("{}", failure.text));
        let what = match (now.trace == pin.trace, now.store == pin.store) {
            (true, true) => continue,
            (false, true) => "its trace",
            (true, false) => "the store at its end",
            (false, false) => "its trace and the store at its end",
        };
        moved.push(format!("seed {}: {what}", pin.seed));
    }
    assert!(
        moved.is_empty(),
        "{} pinned seeds moved:\n{}\nIf that is meant, write the pins anew, and name the seeds and the reason in the commit:\n{COMMAND}",
        moved.len(),
        moved.join("\n"),
    );
}
