//! `cargo xtask mutants`: checks that tests notice when a rule is removed from the code.
//!
//! The command makes each mutant of `mutants/*.txt` in a copy of the project and runs the layers
//! that the mutant names; one of them must fail. The run fails (exit 1) if a mutant survives or
//! does not compile, if a list does not fit the code, or if a layer fails without a mutant. The
//! working tree is never written. Each verdict is appended to a file, from which `--resume`
//! continues.

mod child;
mod choice;
mod edit;
mod layer;
mod list;
mod manifests;
mod report;
mod results;
mod scratch;
#[cfg(test)]
mod tests;
mod trial;

pub(crate) use choice::ARGUMENTS;
pub(crate) use layer::{Layer, Target};
pub(crate) use list::{Flaw, doubles, is_list, parse};

use crate::process::{Failure, cargo, output_of, program, project_listing, root};
use choice::{Request, changed, grouped, sample};
use list::Mutant;
use results::Results;
use scratch::{Folders, Scratch};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use trial::{Judged, judge, unmutated};

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let request = Request::parse(arguments).map_err(Failure::usage)?;
    let paths: Vec<String> = project_listing()?
        .split_terminator('\0')
        .map(str::to_string)
        .collect();
    let mut mutants = request
        .choose(grouped(load(&root(), &paths)?))
        .map_err(Failure::usage)?;
    if let Some(revision) = &request.since {
        let listing = changes_since(&root(), revision)?;
        mutants = changed(mutants, &listing.split_terminator('\0').collect());
    }
    if let Some(part) = request.part {
        mutants = part.select(mutants);
    }
    if let Some(count) = request.sample {
        let commit = output_of(program("git").args(["rev-parse", "HEAD"]))?;
        mutants = sample(mutants, count, &commit).map_err(Failure::usage)?;
    }
    let folders = folders()?;
    let results = Results::of(&folders);
    if request.resume {
        let selected = mutants.len();
        mutants = results.not_caught(mutants)?;
        let skipped = selected - mutants.len();
        eprintln!("{skipped} of {selected} mutants are skipped: already caught");
    }
    if request.list {
        for mutant in &mutants {
            println!("{:<36} {:<44} {}", mutant.name, mutant.file, mutant.why);
        }
        return Ok(());
    }
    if mutants.is_empty() {
        eprintln!("no mutant is selected");
        return Ok(());
    }
    let judged = run_all(&folders, &paths, mutants, |mutant, judged| {
        if request.json {
            println!("{}", report::json(mutant, judged));
        } else {
            println!("{}", report::line(mutant, judged));
        }
        results.append(mutant, judged)
    })?;
    eprintln!("{}", report::summary(&judged));
    match report::complaint(&judged) {
        Some(complaint) => Err(Failure::check(complaint)),
        None => Ok(()),
    }
}

/// The paths of `project` that differ from a revision, a zero byte after each. Changes
/// that are not committed and files that git does not track yet count.
fn changes_since(project: &Path, revision: &str) -> Result<String, Failure> {
    let git = || {
        let mut git = program("git");
        git.current_dir(project);
        git
    };
    let commit = output_of(
        git()
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options"])
            .arg(format!("{revision}^{{commit}}")),
    )
    .map_err(|_| Failure::usage(format!("--since: there is no commit `{revision}`")))?;
    // A renamed file counts as changed.
    let diff = ["diff", "--name-only", "--no-renames", "--relative", "-z"];
    let mut paths = output_of(git().args(diff).arg(commit.trim()))?;
    paths += &output_of(git().args(["ls-files", "-z", "--others", "--exclude-standard"]))?;
    Ok(paths)
}

/// Loads every mutant of every list. Fails unless every edit fits the present code.
fn load(project: &Path, paths: &[String]) -> Result<Vec<Mutant>, Failure> {
    let read = |path: &str| {
        fs::read_to_string(project.join(path)).map_err(|e| Failure::check(format!("{path}: {e}")))
    };
    let mut mutants = Vec::new();
    for path in paths.iter().filter(|path| is_list(path)) {
        let list = parse(path, &read(path)?).map_err(|flaw| Failure::check(flaw.to_string()))?;
        mutants.extend(list);
    }
    let mut flaws = doubles(&mutants);
    for mutant in &mutants {
        let text = if paths.contains(&mutant.file) {
            Some(read(&mutant.file)?)
        } else {
            None
        };
        flaws.extend(mutant.misfit(text.as_deref()));
    }
    let lines: Vec<String> = flaws.iter().map(Flaw::to_string).collect();
    if lines.is_empty() {
        Ok(mutants)
    } else {
        Err(Failure::check(lines.join("\n")))
    }
}

fn run_all(
    folders: &Folders,
    paths: &[String],
    mutants: Vec<Mutant>,
    say: impl Fn(&Mutant, &Judged) -> Result<(), Failure>,
) -> Result<Vec<(Mutant, Judged)>, Failure> {
    let start = Instant::now();
    let scratch = Scratch::of(folders, paths)?;
    let layers: BTreeSet<Layer> = mutants.iter().flat_map(|m| m.layers.clone()).collect();
    let layers: Vec<Layer> = layers.into_iter().collect();
    if layers.is_empty() {
        return Ok(Vec::new());
    }
    eprintln!("{} layers, first without a mutant", layers.len());
    let seconds = unmutated(&scratch, &layers, |layer, seconds| {
        eprintln!("passed      {seconds:>6.1} s  {layer}");
    })?;
    eprintln!(
        "{} mutants, after {:.1} s",
        mutants.len(),
        start.elapsed().as_secs_f64()
    );
    let mut results = Vec::new();
    for mutant in mutants {
        let judged = judge(&scratch, &mutant, &seconds)?;
        say(&mutant, &judged)?;
        results.push((mutant, judged));
    }
    Ok(results)
}

/// The folders of cargo, which an environment variable or cargo's configuration may change.
fn folders() -> Result<Folders, Failure> {
    let metadata = output_of(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let folder = |key: &str| {
        let (_, rest) = metadata.split_once(&format!("\"{key}\":\""))?;
        rest.split('"').next().map(PathBuf::from)
    };
    let target = folder("target_directory")
        .ok_or_else(|| Failure::check("cargo metadata names no target folder"))?;
    Ok(Folders {
        project: root(),
        build: folder("build_directory").unwrap_or_else(|| target.clone()),
        target,
    })
}
