//! `cargo xtask fuzz [TARGET] [--seconds 60]`: runs the decoders under libFuzzer.
//!
//! The command needs a nightly toolchain and cargo-fuzz; if one is missing, the command names
//! it and exits with 2. Targets are the `[[bin]]` names of `fuzz/Cargo.toml`; without a name,
//! each target runs in turn. After a crash, the command names the file with the input and exits
//! with 1.

use crate::process::{Failure, program, root, run as run_program, shown, works};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

const MANIFEST: &str = "fuzz/Cargo.toml";
const DEFAULT_SECONDS: u64 = 60;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let request = Request::parse(arguments).map_err(Failure::usage)?;
    let manifest = fs::read_to_string(root().join(MANIFEST))
        .map_err(|e| Failure::usage(format!("{MANIFEST}: {e}")))?;
    let targets = request
        .choose(targets_in(&manifest))
        .map_err(Failure::usage)?;
    tools_present()?;
    let mut reports = Vec::new();
    for target in &targets {
        run_program(nightly_fuzz().args(["build", target]))?;
        reports.push(fuzz_one(target, request.seconds)?);
    }
    println!("\n{}", table(&reports));
    let crashes: Vec<String> = reports.iter().filter_map(Report::complaint).collect();
    if crashes.is_empty() {
        Ok(())
    } else {
        Err(Failure::check(crashes.join("\n")))
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Request {
    target: Option<String>,
    seconds: u64,
}

impl Request {
    fn parse(arguments: &[String]) -> Result<Request, String> {
        let mut request = Request {
            target: None,
            seconds: DEFAULT_SECONDS,
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "--seconds" {
                let value = rest.next().ok_or("--seconds needs a number")?;
                request.seconds = match value.parse() {
                    Ok(seconds) if seconds > 0 => seconds,
                    _ => return Err(format!("--seconds needs a number above 0, not `{value}`")),
                };
            } else if argument.starts_with('-') || request.target.is_some() {
                return Err(format!(
                    "unknown argument `{argument}`; usage: cargo xtask fuzz [TARGET] [--seconds 60]"
                ));
            } else {
                request.target = Some(argument.clone());
            }
        }
        Ok(request)
    }

    fn choose(&self, known: Vec<String>) -> Result<Vec<String>, String> {
        if known.is_empty() {
            return Err(format!("{MANIFEST} names no [[bin]]"));
        }
        match &self.target {
            None => Ok(known),
            Some(target) if known.contains(target) => Ok(vec![target.clone()]),
            Some(target) => Err(format!(
                "no fuzz target `{target}`; there are: {}",
                known.join(", ")
            )),
        }
    }
}

/// The `name` of every `[[bin]]`, in the order of the file.
fn targets_in(manifest: &str) -> Vec<String> {
    let mut targets = Vec::new();
    let mut in_bin = false;
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            in_bin = line == "[[bin]]";
        } else if in_bin
            && let Some((key, value)) = line.split_once('=')
            && key.trim() == "name"
        {
            targets.push(value.trim().trim_matches('"').to_string());
        }
    }
    targets
}

fn tools_present() -> Result<(), Failure> {
    if !works(program("rustup").args(["run", "nightly", "rustc", "--version"])) {
        return Err(Failure::usage(
            "fuzzing needs a nightly toolchain, which is missing: `rustup toolchain install nightly`",
        ));
    }
    if !works(nightly_fuzz().arg("--version")) {
        return Err(Failure::usage(
            "fuzzing needs cargo-fuzz, which is missing: `cargo install cargo-fuzz --locked`",
        ));
    }
    Ok(())
}

/// `cargo fuzz` on nightly. The cargo that started xtask is the stable one, so rustup has to
/// find the nightly one.
fn nightly_fuzz() -> Command {
    let mut command = program("rustup");
    command
        .args(["run", "nightly", "cargo", "fuzz"])
        .env_remove("CARGO");
    command
}

#[derive(Debug, Default, PartialEq)]
struct Report {
    target: String,
    executions: Option<u64>,
    seconds: f64,
    failed: bool,
    input: Option<String>,
}

impl Report {
    fn complaint(&self) -> Option<String> {
        if !self.failed {
            return None;
        }
        let target = &self.target;
        Some(match &self.input {
            Some(input) => format!(
                "{target} failed; the input lies in {input}; `cargo +nightly fuzz run {target} {input}` runs it again"
            ),
            None => format!("{target} failed without leaving an input; its output is above"),
        })
    }

    /// Updates the progress from one line of libFuzzer's output.
    fn read_line(&mut self, line: &str) {
        if let Some(count) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = count.trim().parse().ok();
        } else if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.input = Some(path.trim().to_string());
        }
    }
}

fn fuzz_one(target: &str, seconds: u64) -> Result<Report, Failure> {
    let mut command = nightly_fuzz();
    command
        .args(["run", target, "--"])
        .arg(format!("-max_total_time={seconds}"))
        .arg("-print_final_stats=1")
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    eprintln!("$ {}", shown(&command));
    let start = Instant::now();
    let mut child = command
        .spawn()
        .map_err(|e| Failure::usage(format!("cargo fuzz could not be started: {e}")))?;
    let mut report = Report {
        target: target.to_string(),
        ..Report::default()
    };
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line);
            eprintln!("{line}");
            report.read_line(&line);
        }
    }
    let status = child
        .wait()
        .map_err(|e| Failure::check(format!("cargo fuzz was lost: {e}")))?;
    report.failed = !status.success();
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

fn table(reports: &[Report]) -> String {
    let mut text = format!(
        "{:<20} {:>12} {:>8}  result",
        "target", "executions", "seconds"
    );
    for report in reports {
        let executions = report.executions.map_or("?".to_string(), |n| n.to_string());
        let result = if report.failed { "FAILED" } else { "ok" };
        text.push_str(&format!(
            "\n{:<20} {executions:>12} {:>8.0}  {result}",
            report.target, report.seconds
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Request, String> {
        let owned: Vec<String> = arguments.iter().map(|a| a.to_string()).collect();
        Request::parse(&owned)
    }

    const MANIFEST_TEXT: &str = "[package]\nname = \"fuzz\"\n[[bin]]\nname = \"car\"\npath = \"car.rs\"\n\n\
        [[bin]]\npath = \"mst.rs\"\nname = \"mst\"\n[dependencies]\nname = \"1\"\n";

    #[test]
    fn targets_are_the_bins_in_order() {
        assert_eq!(targets_in(MANIFEST_TEXT), ["car", "mst"]);
    }

    #[test]
    fn arguments_in_any_order() {
        let expected = Request {
            target: Some("car".to_string()),
            seconds: 5,
        };
        assert_eq!(parse(&["car", "--seconds", "5"]).as_ref(), Ok(&expected));
        assert_eq!(parse(&["--seconds", "5", "car"]).as_ref(), Ok(&expected));
        assert_eq!(parse(&[]).unwrap().seconds, 60);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for arguments in [
            &["--seconds"][..],
            &["--seconds", "0"],
            &["--seconds", "soon"],
            &["--fast"],
            &["car", "mst"],
        ] {
            assert!(parse(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn an_unknown_target_lists_the_known_ones() {
        let why = parse(&["tree"])
            .unwrap()
            .choose(targets_in(MANIFEST_TEXT))
            .unwrap_err();
        assert!(why.contains("car, mst"), "{why}");
        assert_eq!(
            parse(&[])
                .unwrap()
                .choose(targets_in(MANIFEST_TEXT))
                .unwrap()
                .len(),
            2
        );
    }

    #[test]
    fn a_crash_says_where_the_input_lies() {
        let mut report = Report {
            target: "car".to_string(),
            failed: true,
            ..Report::default()
        };
        report.read_line("artifact_prefix='a/'; Test unit written to fuzz/artifacts/car/crash-1");
        report.read_line("stat::number_of_executed_units: 4711");
        assert_eq!(report.executions, Some(4711));
        assert!(
            report
                .complaint()
                .unwrap()
                .contains("lies in fuzz/artifacts/car/crash-1")
        );
        assert!(table(&[report]).ends_with("FAILED"));
    }
}
