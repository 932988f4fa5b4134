//! The output of a run: a line for each mutant, for people or for programs.

use super::layer::Outcome;
use super::list::Mutant;
use super::trial::{Judged, Verdict};
use std::collections::BTreeMap;

const NAMES_SHOWN: usize = 2;

/// Describes a judged mutant in a line for people.
pub(super) fn line(mutant: &Mutant, judged: &Judged) -> String {
    let (verdict, note) = match &judged.verdict {
        Verdict::Caught { by, how } => ("caught", format!("by {by}: {}", shown(how))),
        Verdict::Survived => ("SURVIVED", mutant.why.clone()),
        Verdict::Unbuildable(_) => ("UNBUILDABLE", mutant.why.clone()),
    };
    format!(
        "{verdict:<11} {:>6.1} s  {:<36} {note}",
        judged.seconds, mutant.name
    )
}

/// Describes a judged mutant as a JSON object on one line.
pub(super) fn json(mutant: &Mutant, judged: &Judged) -> String {
    let mut fields = vec![
        ("mutant", quoted(&mutant.name)),
        ("list", quoted(&mutant.list)),
        ("file", quoted(&mutant.file)),
        ("why", quoted(&mutant.why)),
    ];
    fields.push(("verdict", quoted(judged.verdict.name())));
    match &judged.verdict {
        Verdict::Caught { by, how } => {
            fields.push(("by", quoted(&by.to_string())));
            fields.push(("how", quoted(kind(how))));
            if let Outcome::Failed(tests) = how {
                let tests: Vec<String> = tests.iter().map(|test| quoted(test)).collect();
                fields.push(("tests", format!("[{}]", tests.join(","))));
            }
        }
        Verdict::Survived => {}
        Verdict::Unbuildable(output) => fields.push(("output", quoted(output))),
    }
    fields.push(("seconds", format!("{:.1}", judged.seconds)));
    let fields: Vec<String> = fields
        .iter()
        .map(|(key, value)| format!("{}:{value}", quoted(key)))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// Counts the mutants by verdict, and gives the mean seconds of a mutant for each layer.
pub(super) fn summary(results: &[(Mutant, Judged)]) -> String {
    let mut costs: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for (mutant, judged) in results {
        if let Some(layer) = mutant.layers.first() {
            let (count, seconds) = costs.entry(layer.program()).or_default();
            *count += 1;
            *seconds += judged.seconds;
        }
    }
    let mut lines = vec!["mutants   mean s  first layer".to_string()];
    for (layer, (count, seconds)) in costs {
        let mean = seconds / count as f64;
        lines.push(format!("{count:>7} {mean:>8.1}  {layer}"));
    }
    let count = |wanted: &str| {
        let kinds = results.iter().map(|(_, judged)| judged.verdict.name());
        kinds.filter(|kind| *kind == wanted).count()
    };
    let seconds: f64 = results.iter().map(|(_, judged)| judged.seconds).sum();
    lines.push(format!(
        "{} caught, {} survived, {} unbuildable in {seconds:.1} s",
        count("caught"),
        count("survived"),
        count("unbuildable")
    ));
    for (mutant, judged) in results {
        let name = judged.verdict.name();
        if name != "caught" {
            let seconds = judged.seconds;
            lines.push(format!("{name:<11} {seconds:>6.1} s  {}", mutant.name));
        }
    }
    lines.join("\n")
}

/// Describes every mutant that was not caught; `None` if all were caught.
pub(super) fn complaint(results: &[(Mutant, Judged)]) -> Option<String> {
    let mut lines = Vec::new();
    for (mutant, judged) in results {
        let place = format!("{}:{}: {}", mutant.list, mutant.line, mutant.name);
        match &judged.verdict {
            Verdict::Caught { .. } => {}
            Verdict::Survived => {
                let layers: Vec<String> = mutant.layers.iter().map(|l| l.to_string()).collect();
                lines.push(format!(
                    "{place} survived `{}`: {} ({})",
                    layers.join("`, `"),
                    mutant.why,
                    mutant.file
                ));
            }
            Verdict::Unbuildable(output) => {
                lines.push(format!("{place} does not compile:\n{output}"));
            }
        }
    }
    let count = |wanted: fn(&Verdict) -> bool| {
        results
            .iter()
            .filter(|(_, judged)| wanted(&judged.verdict))
            .count()
    };
    (!lines.is_empty()).then(|| {
        format!(
            "{}\n{} of {} mutants survived, {} do not compile",
            lines.join("\n"),
            count(|verdict| *verdict == Verdict::Survived),
            results.len(),
            count(|verdict| matches!(verdict, Verdict::Unbuildable(_)))
        )
    })
}

fn shown(how: &Outcome) -> String {
    match how {
        Outcome::Failed(tests) if !tests.is_empty() => {
            let last_part = |test: &String| test.rsplit("::").next().map(str::to_string);
            let first: Vec<String> = tests
                .iter()
                .take(NAMES_SHOWN)
                .filter_map(last_part)
                .collect();
            match tests.len().saturating_sub(NAMES_SHOWN) {
                0 => first.join(", "),
                more => format!("{} and {more} more", first.join(", ")),
            }
        }
        Outcome::Crashed(status) => format!("the tests crashed ({status})"),
        Outcome::Hung => "the tests hung and were stopped at the deadline".to_string(),
        _ => "tests failed".to_string(),
    }
}

fn kind(how: &Outcome) -> &'static str {
    match how {
        Outcome::Crashed(_) => "crash",
        Outcome::Hung => "hang",
        _ => "test failure",
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::super::layer::Layer;
    use super::super::list::parse;
    use super::*;

    fn mutant() -> Mutant {
        let text = "mutant a\nwhy no \"limit\"\nfile src/a.rs\ntest -p a --lib\n-a\n+b\n";
        parse("mutants/a.txt", text).unwrap().remove(0)
    }

    fn judged(verdict: Verdict) -> Judged {
        Judged {
            verdict,
            seconds: 1.25,
        }
    }

    fn caught(how: Outcome) -> Judged {
        let by = Layer::parse("-p a --lib").unwrap();
        judged(Verdict::Caught { by, how })
    }

    #[test]
    fn a_line_says_what_caught_it_and_how() {
        let tests = ["a::one", "two", "three", "four"]
            .map(str::to_string)
            .to_vec();
        let text = line(&mutant(), &caught(Outcome::Failed(tests)));
        assert!(text.starts_with("caught         1.2 s  a "), "{text}");
        assert!(
            text.ends_with("by -p a --lib: one, two and 2 more"),
            "{text}"
        );
        assert!(line(&mutant(), &caught(Outcome::Hung)).contains("hung"));
        assert!(line(&mutant(), &judged(Verdict::Survived)).starts_with("SURVIVED"));
    }

    #[test]
    fn a_line_for_programs_is_json() {
        let text = json(
            &mutant(),
            &caught(Outcome::Failed(vec!["a::b".to_string()])),
        );
        assert_eq!(
            text,
            "{\"mutant\":\"a\",\"list\":\"mutants/a.txt\",\"file\":\"src/a.rs\",\
             \"why\":\"no \\\"limit\\\"\",\"verdict\":\"caught\",\"by\":\"-p a --lib\",\
             \"how\":\"test failure\",\"tests\":[\"a::b\"],\"seconds\":1.2}"
        );
        let text = json(
            &mutant(),
            &judged(Verdict::Unbuildable("a\tb\n".to_string())),
        );
        assert!(text.contains("\"output\":\"a\\u0009b\\n\""), "{text}");
    }

    #[test]
    fn the_summary_counts_verdicts_and_seconds() {
        let results = [
            (mutant(), caught(Outcome::Hung)),
            (mutant(), judged(Verdict::Survived)),
            (mutant(), judged(Verdict::Unbuildable(String::new()))),
        ];
        let expected = [
            "mutants   mean s  first layer",
            "      3      1.2  -p a --lib",
            "1 caught, 1 survived, 1 unbuildable in 3.8 s",
            "survived       1.2 s  a",
            "unbuildable    1.2 s  a",
        ];
        assert_eq!(summary(&results).lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_what_was_not_caught_is_complained_of() {
        let good = || (mutant(), caught(Outcome::Hung));
        assert_eq!(complaint(&[good()]), None);
        let survivor = (mutant(), judged(Verdict::Survived));
        let unbuildable = (mutant(), judged(Verdict::Unbuildable("E0425".to_string())));
        let text = complaint(&[good(), survivor, unbuildable]).unwrap();
        assert!(text.contains("mutants/a.txt:1: a survived `-p a --lib`: no \"limit\""));
        assert!(text.contains("a does not compile:\nE0425"));
        assert!(text.ends_with("1 of 3 mutants survived, 1 do not compile"));
    }
}
