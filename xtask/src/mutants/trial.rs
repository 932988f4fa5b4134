//! Builds and runs layers in the scratch copy, and judges each mutant.
//!
//! A layer must pass without a mutant, because otherwise its failure with one proves nothing. A
//! mutant that does not compile is not caught: it is a fault of the list.

use super::child::{self, Ended};
use super::layer::{Layer, Outcome, Target};
use super::list::Mutant;
use super::manifests::library_tests;
use super::scratch::Scratch;
use crate::process::Failure;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A layer may take this long plus `DEADLINE_FACTOR` times what it took without a mutant. The
/// deadline is long, so that a slow layer is not mistaken for one that hangs.
const LEAST_DEADLINE: Duration = Duration::from_secs(30);
const DEADLINE_FACTOR: f64 = 10.0;
/// The deadline of a layer without a mutant, where no layer should hang.
const UNMUTATED_DEADLINE: Duration = Duration::from_secs(1200);
/// Lines of output that a report shows.
const LINES_SHOWN: usize = 40;

/// The verdict on one mutant.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Caught {
        by: Layer,
        how: Outcome,
    },
    Survived,
    /// The mutant does not compile; has the last lines of the compiler's output.
    Unbuildable(String),
}

impl Verdict {
    /// The name of the verdict in results and in output for programs.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Verdict::Caught { .. } => "caught",
            Verdict::Survived => "survived",
            Verdict::Unbuildable(_) => "unbuildable",
        }
    }
}

/// The seconds of each layer without a mutant.
pub(super) type Seconds = BTreeMap<Layer, f64>;

/// Runs each layer on the unmutated copy. The first layer that does not pass ends the run.
pub(super) fn unmutated(
    scratch: &Scratch,
    layers: &[Layer],
    mut say: impl FnMut(&Layer, f64),
) -> Result<Seconds, Failure> {
    let programs = build(scratch, layers)?.map_err(|output| {
        Failure::check(format!(
            "{output}\nthe layers do not compile, without any mutant"
        ))
    })?;
    let mut seconds = BTreeMap::new();
    for layer in layers {
        let ended = run(scratch, layer, &programs, UNMUTATED_DEADLINE)?;
        match Outcome::of(ended.status, &ended.output) {
            Outcome::Passed => {}
            Outcome::RanNothing => {
                return Err(Failure::check(format!(
                    "`{layer}` runs no test at all, so it can catch nothing"
                )));
            }
            _ => {
                return Err(Failure::check(format!(
                    "{}\n`{layer}` fails without any mutant, so its failure would prove nothing",
                    last_lines(&ended.output)
                )));
            }
        }
        say(layer, ended.seconds);
        seconds.insert(layer.clone(), ended.seconds);
    }
    Ok(seconds)
}

/// Makes the mutant, runs its layers in turn, and undoes the edit.
pub(super) fn judge(
    scratch: &Scratch,
    mutant: &Mutant,
    seconds: &Seconds,
) -> Result<Judged, Failure> {
    judge_within(scratch, mutant, |layer| {
        deadline(seconds.get(layer).copied().unwrap_or_default())
    })
}

pub(super) fn judge_within(
    scratch: &Scratch,
    mutant: &Mutant,
    deadline: impl Fn(&Layer) -> Duration,
) -> Result<Judged, Failure> {
    let start = Instant::now();
    let original = std::fs::read_to_string(scratch.tree.join(&mutant.file))
        .map_err(|e| Failure::check(format!("{}: {e}", mutant.file)))?;
    let mutated = mutant.edit.apply(&original).map_err(|why| {
        Failure::check(mutant.flaw(format!("{}: {why}", mutant.file)).to_string())
    })?;
    scratch.write(&mutant.file, &mutated)?;
    let verdict = try_layers(scratch, mutant, deadline);
    scratch.write(&mutant.file, &original)?;
    Ok(Judged {
        verdict: verdict?,
        seconds: start.elapsed().as_secs_f64(),
    })
}

pub(super) struct Judged {
    pub verdict: Verdict,
    /// The seconds that the mutant took, compilation included.
    pub seconds: f64,
}

fn try_layers(
    scratch: &Scratch,
    mutant: &Mutant,
    deadline: impl Fn(&Layer) -> Duration,
) -> Result<Verdict, Failure> {
    for layer in &mutant.layers {
        let programs = match build(scratch, std::slice::from_ref(layer))? {
            Ok(programs) => programs,
            Err(output) => return Ok(Verdict::Unbuildable(output)),
        };
        let ended = run(scratch, layer, &programs, deadline(layer))?;
        let outcome = Outcome::of(ended.status, &ended.output);
        if !matches!(outcome, Outcome::Passed | Outcome::RanNothing) {
            return Ok(Verdict::Caught {
                by: layer.clone(),
                how: outcome,
            });
        }
    }
    Ok(Verdict::Survived)
}

fn deadline(usual_s: f64) -> Duration {
    LEAST_DEADLINE + Duration::from_secs_f64(usual_s * DEADLINE_FACTOR)
}

type Programs = BTreeMap<Layer, PathBuf>;

/// Builds the test program of each layer. If the build fails, returns the compiler's output.
fn build(scratch: &Scratch, layers: &[Layer]) -> Result<Result<Programs, String>, Failure> {
    for layer in layers {
        let known = scratch.package(&layer.package);
        known.map_err(|why| Failure::check(format!("`{layer}`: {why}")))?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = child::watched(&cargo);
    command
        .current_dir(&scratch.tree)
        .env("CARGO_TARGET_DIR", &scratch.target)
        .env("CARGO_BUILD_BUILD_DIR", &scratch.build)
        // A mutant changes few lines, so an incremental build compiles only their functions.
        .env("CARGO_INCREMENTAL", "1")
        .args(["test", "--workspace", "--all-features", "--no-run"])
        .arg("--message-format=json-render-diagnostics");
    for layer in layers {
        command.args(["--test", &target_name(layer)]);
    }
    let Ended { output, .. } = match child::run(&mut command, None)? {
        ended if ended.succeeded() => ended,
        ended => return Ok(Err(last_lines(&ended.output))),
    };
    let mut programs = BTreeMap::new();
    for layer in layers {
        let fault = |why: String| Failure::check(format!("`{layer}`: {why}"));
        let folder = scratch.package(&layer.package).map_err(fault)?;
        let program = program_of(&output, folder, &target_name(layer))
            .ok_or_else(|| fault("the package has no such target".to_string()))?;
        programs.insert(layer.clone(), program);
    }
    Ok(Ok(programs))
}

fn target_name(layer: &Layer) -> String {
    match &layer.target {
        Target::Library => library_tests(&layer.package),
        Target::Named(name) => name.clone(),
    }
}

/// Finds a test program among cargo's messages. Two packages may have test targets with the same
/// name, so the package's folder has to match too.
fn program_of(messages: &str, folder: &Path, target: &str) -> Option<PathBuf> {
    let manifest = format!("\"manifest_path\":\"{}/Cargo.toml\"", folder.display());
    let name = format!("\"name\":\"{target}\"");
    let wanted = [&manifest, &name, "\"kind\":[\"test\"]", "\"executable\":\""];
    let message = messages
        .lines()
        .find(|line| wanted.iter().all(|part| line.contains(part)))?;
    let (_, rest) = message.split_once("\"executable\":\"")?;
    rest.split('"').next().map(PathBuf::from)
}

/// Runs a layer as cargo would, in the folder of its package.
fn run(
    scratch: &Scratch,
    layer: &Layer,
    programs: &Programs,
    deadline: Duration,
) -> Result<Ended, Failure> {
    let fault = |why: String| Failure::check(format!("`{layer}`: {why}"));
    let folder = scratch.package(&layer.package).map_err(fault)?;
    // A program that cannot start must not look like one that failed.
    let program = programs
        .get(layer)
        .filter(|program| program.is_file())
        .ok_or_else(|| fault("its test program is not there".to_string()))?;
    let mut command: Command = child::watched(program.as_os_str());
    command
        .current_dir(folder)
        .env("CARGO_MANIFEST_DIR", folder)
        // Property tests use the same values each time. A failure is not minimised, and is not
        // stored for the next mutant.
        .env("PROPTEST_RNG_SEED", "1")
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true")
        .args(&layer.filters);
    child::run(&mut command, Some(deadline))
}

/// The last lines of the output, without cargo's messages to programs.
fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output
        .lines()
        .filter(|line| !line.starts_with("{\"reason\":"))
        .collect();
    let start = lines.len().saturating_sub(LINES_SHOWN);
    lines.get(start..).unwrap_or_default().join("\n")
}
