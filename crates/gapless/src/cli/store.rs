//! `gapless store check` and `gapless store repair`: check and repair a data folder that
//! no running mirror uses.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use gapless_core::ledger::Time;
use gapless_store::check::{self, CheckReport, Progress};
use gapless_store::engine::DiskSettings;
use gapless_store::format;
use gapless_store::repair::{self, RepairMode, RepairReport};
use gapless_store::{Settings, Store};
use serde_json::json;

use super::progress::ProgressBar;
use super::{CommandOutcome, DataFolder};
use crate::terminal::print_line;

/// Findings printed for people. `--json` has all that the report keeps.
const FINDINGS_SHOWN: usize = 20;

pub(crate) fn check(folder: &DataFolder) -> Result<CommandOutcome, String> {
    require_store(&folder.data)?;
    let settings = Settings {
        // A check writes nothing, so no free space is needed.
        min_free_disk_bytes: 0,
        ..Settings::default()
    };
    let store = Store::open(&folder.data, &settings).map_err(|error| error.to_string())?;
    let mut bar = ProgressBar::new();
    let mut tell = |now: Progress| bar.update(now.stage, now.done, now.of);
    let contents = store.view();
    let report = match store.frames() {
        Some(frames) => check::check_with_frames(&contents, frames, &mut tell),
        None => check::check(&contents, &mut tell),
    };
    bar.clear();
    let report = report.map_err(|error| error.to_string())?;
    drop(contents);
    store.close().map_err(|error| error.to_string())?;
    if folder.json {
        print_line(&check_json(&report).to_string());
    } else {
        print_check(&folder.data, &report);
    }
    if report.is_clean() {
        Ok(CommandOutcome::Fine)
    } else {
        Ok(CommandOutcome::Finding)
    }
}

fn check_json(report: &CheckReport) -> serde_json::Value {
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|finding| json!({ "code": finding.code(), "text": finding.to_string() }))
        .collect();
    json!({
        "clean": report.is_clean(),
        "repos": report.repos,
        "proven": report.proven,
        "not_recomputable": report.not_recomputable,
        "records": report.records,
        "log": { "rows": report.log_rows, "numbers": report.log_numbers },
        "frames": report.frames,
        "found": report.found,
        "findings": findings,
    })
}

fn print_check(folder: &Path, report: &CheckReport) {
    print_line(&format!(
        "{}: {} repositories, {} of them proven by their root, {} records, {} log numbers in {} rows, {} frames",
        folder.display(),
        report.repos,
        report.proven,
        report.records,
        report.log_numbers,
        report.log_rows,
        report.frames
    ));
    if report.not_recomputable > 0 {
        print_line(&format!(
            "{} cannot be recomputed: not all keys are held (--keep-keys wanted)",
            report.not_recomputable
        ));
    }
    if report.is_clean() {
        print_line("The store is sound.");
        return;
    }
    for finding in report.findings.iter().take(FINDINGS_SHOWN) {
        print_line(&format!("- {finding}"));
    }
    let more = report.found.saturating_sub(FINDINGS_SHOWN as u64);
    if more > 0 {
        print_line(&format!(
            "- and {more} more (--json lists the first thousand)"
        ));
    }
    print_line(&format!(
        "{} findings. `gapless store repair --data {}` makes the store sound again; `--dry-run` says what it would do.",
        report.found,
        folder.display()
    ));
}

pub(crate) fn repair(folder: &DataFolder, dry_run: bool) -> Result<CommandOutcome, String> {
    require_store(&folder.data)?;
    let mode = if dry_run {
        RepairMode::DryRun
    } else {
        RepairMode::Repair
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_err(|_| "the clock of this machine is before 1970; set it first".to_owned())?;
    let now = Time(u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
    let mut bar = ProgressBar::new();
    let mut tell = |now: Progress| bar.update(now.stage, now.done, now.of);
    let settings = DiskSettings::default();
    let repaired = repair::repair(&folder.data, &settings, mode, now, &mut tell);
    bar.clear();
    let repaired = repaired.map_err(|error| error.to_string())?;
    if folder.json {
        print_line(&repair_json(&repaired, dry_run).to_string());
    } else {
        print_repair(&folder.data, &repaired, dry_run);
    }
    // A dry run that found something is a finding; a repair has dealt with it.
    if dry_run && !repaired.found_nothing() {
        Ok(CommandOutcome::Finding)
    } else {
        Ok(CommandOutcome::Fine)
    }
}

fn repair_json(repaired: &RepairReport, dry_run: bool) -> serde_json::Value {
    let journals: Vec<_> = repaired
        .journals
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let lost: Vec<_> = repaired
        .lost_numbers
        .iter()
        .map(|(first, last)| json!({ "first": first, "last": last }))
        .collect();
    json!({
        "dry_run": dry_run,
        "nothing_to_do": repaired.found_nothing(),
        "lost": repaired.lost,
        "looked": repaired.looked,
        "journals": journals,
        "repos": repaired.repos,
        "damaged_repos": repaired.damaged_repos,
        "damaged_dids": repaired.damaged_dids,
        "lost_numbers": lost,
        "resets": repaired.resets,
        "mended_rows": repaired.mended_rows,
        "removed_rows": repaired.removed_rows,
        "damaged_frames": repaired.damaged_frames,
        "stray_frames": repaired.stray_frames,
    })
}

fn print_repair(folder: &Path, repaired: &RepairReport, dry_run: bool) {
    if repaired.found_nothing() {
        print_line(&format!(
            "{}: sound; there is nothing to repair.",
            folder.display()
        ));
        return;
    }
    if let Some(lost) = &repaired.lost {
        print_line(&format!("{}: {lost}", folder.display()));
    }
    if dry_run && !repaired.looked {
        print_line(
            "The tables were not checked, because the journals must be repaired first. Run the command without --dry-run; copies of damaged files are kept.",
        );
        return;
    }
    for journal in &repaired.journals {
        print_line(&format!(
            "- damage removed from {}; a copy of the damaged file is kept",
            journal.display()
        ));
    }
    for (first, last) in &repaired.lost_numbers {
        print_line(&format!(
            "- log numbers {first} to {last} are lost, and marked as lost"
        ));
    }
    let (mended, removed) = (repaired.mended_rows, repaired.removed_rows);
    if mended + removed > 0 {
        print_line(&format!("- {mended} rows mended, {removed} removed"));
    }
    let (damaged, strays) = (repaired.damaged_frames, repaired.stray_frames);
    if damaged + strays > 0 {
        print_line(&format!(
            "- {damaged} damaged ranges and {strays} frames without a log row are removed; a consumer of the firehose gets the present state of each affected repository instead"
        ));
    }
    if repaired.damaged_repos > 0 {
        print_line(&format!(
            "- {} of {} repositories no longer hash to their root and must be fetched again:",
            repaired.damaged_repos, repaired.repos
        ));
        for did in repaired.damaged_dids.iter().take(FINDINGS_SHOWN) {
            print_line(&format!("    {did}"));
        }
    }
    if repaired.resets > 0 {
        print_line(&format!(
            "- {} upstreams are reset: no repository is complete before Gapless has compared it with its host",
            repaired.resets
        ));
    }
    if dry_run {
        print_line("Nothing was changed. Run the command without --dry-run to make this repair.");
    } else {
        print_line(
            "Done. Start Gapless, which compares the repositories with their hosts and fetches what is missing.",
        );
    }
}

/// Fails if the folder has no store. Check and repair never create one.
fn require_store(folder: &Path) -> Result<(), String> {
    if folder.is_dir() {
        match format::read(folder) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    } else {
        Err(format!(
            "there is no folder {}; --data must name the data folder of a mirror",
            folder.display()
        ))
    }
}
