//! `gapless verify`: lets the running mirror recompute one root or all of them.

use gapless_net::operator::Method;
use serde_json::json;

use super::client::{Client, run_requests};
use super::progress::ProgressBar;
use super::{CommandError, CommandOutcome, Server, check_did};
use crate::terminal::{or_dash, print_line, sanitize};
use gapless_mirror::api::{VerifyAnswer, VerifyLine, VerifyReport};

pub(crate) fn verify_one(server: &Server, did: &str) -> Result<CommandOutcome, CommandError> {
    check_did(did)?;
    let client = Client::new(server)?;
    let url = client.url(&["v1", "repos", did, "verify"], &[]);
    let reply = run_requests(client.ask(Method::POST, url, None))?;
    let answer: VerifyAnswer = reply.read()?;
    if server.json {
        print_line(&reply.text);
    } else {
        print_line(&sanitize(&describe_answer(&answer)));
    }
    if answer.verified {
        Ok(CommandOutcome::Fine)
    } else {
        Ok(CommandOutcome::Finding)
    }
}

fn describe_answer(answer: &VerifyAnswer) -> String {
    let did = &answer.did;
    let expected = or_dash(answer.expected.as_deref());
    let computed = or_dash(answer.computed.as_deref());
    let rev = or_dash(answer.rev.as_deref());
    if answer.verified {
        let records = answer.records;
        return format!("{did}: {records} records hash to the root signed at {rev}, {expected}");
    }
    let problem = answer.problem.as_deref();
    format!(
        "{did}: NOT verified: {}. Signed at {rev}: {expected}; stored: {computed}",
        problem.unwrap_or("the stored keys hash to another root")
    )
}

pub(crate) fn verify_all(server: &Server) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let mut bar = ProgressBar::new();
    let mut report: Option<VerifyReport> = None;
    let talked = run_requests(client.lines(client.url(&["v1", "verify"], &[]), |line| {
        match serde_json::from_slice(line) {
            Ok(VerifyLine::Progress(now)) => bar.update("verifying", now.done, now.of),
            Ok(VerifyLine::Report(found)) => report = Some(found),
            Ok(VerifyLine::Failed(error)) => return Err(CommandError::Failed(error.message)),
            Err(error) => return Err(client.not_understood(&error)),
        }
        Ok(())
    }));
    bar.clear();
    talked?;
    let Some(report) = report else {
        let words = "the mirror ended the answer before the report of the verification; check the mirror's log, then verify again";
        return Err(CommandError::Failed(words.to_owned()));
    };
    if server.json {
        print_line(&json!(report).to_string());
    } else {
        print_report(&report);
    }
    if report.mismatches == 0 && report.not_recomputable == 0 && !report.stopped {
        Ok(CommandOutcome::Fine)
    } else {
        Ok(CommandOutcome::Finding)
    }
}

fn print_report(report: &VerifyReport) {
    print_line(&format!(
        "{} repositories: {} proven, {} with nothing to prove yet, {} that do not match",
        report.repos, report.proven, report.skipped, report.mismatches
    ));
    if report.not_recomputable > 0 {
        print_line(&format!(
            "{} cannot be recomputed: only the keys of wanted collections are held (--keep-keys wanted)",
            report.not_recomputable
        ));
    }
    for answer in &report.found {
        print_line(&sanitize(&describe_answer(answer)));
    }
    if report.stopped {
        print_line("The verification was stopped before its end.");
    }
}
