//! `gapless verify`: roots recomputed by the running mirror, one or all.

use reqwest::Method;
use serde_json::json;

use super::client::{Client, talk};
use super::progress::Bar;
use super::table::{or_dash, plain, say};
use super::{Failure, Outcome, Server, a_did};
use crate::api::{VerifyAnswer, VerifyLine, VerifyReport};

pub fn one(server: &Server, did: &str) -> Result<Outcome, Failure> {
    a_did(did)?;
    let client = Client::new(server)?;
    let url = client.url(&["v1", "repos", did, "verify"], &[]);
    let reply = talk(client.ask(Method::POST, url, None))?;
    let answer: VerifyAnswer = reply.read()?;
    match server.json {
        true => say(&reply.text),
        false => say(&plain(&words(&answer))),
    }
    match answer.verified {
        true => Ok(Outcome::Fine),
        false => Ok(Outcome::Finding),
    }
}

fn words(answer: &VerifyAnswer) -> String {
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

pub fn all(server: &Server) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let mut bar = Bar::new();
    let mut report: Option<VerifyReport> = None;
    let talked = talk(client.lines(client.url(&["v1", "verify"], &[]), |line| {
        match serde_json::from_slice(line) {
            Ok(VerifyLine::Progress(now)) => bar.tell("verifying", now.done, now.of),
            Ok(VerifyLine::Report(found)) => report = Some(found),
            Ok(VerifyLine::Failed(error)) => return Err(Failure::Failed(error.message)),
            Err(error) => return Err(client.not_understood(&error)),
        }
        Ok(())
    }));
    bar.end();
    talked?;
    let Some(report) = report else {
        let words = "the mirror broke off before its report; its log may tell why";
        return Err(Failure::Failed(words.to_owned()));
    };
    match server.json {
        true => say(&json!(report).to_string()),
        false => print(&report),
    }
    match report.mismatches == 0 && report.not_recomputable == 0 && !report.stopped {
        true => Ok(Outcome::Fine),
        false => Ok(Outcome::Finding),
    }
}

fn print(report: &VerifyReport) {
    say(&format!(
        "{} repositories: {} proven, {} with nothing to prove yet, {} that do not match",
        report.repos, report.proven, report.skipped, report.mismatches
    ));
    if report.not_recomputable > 0 {
        say(&format!(
            "{} cannot be recomputed: only the keys of wanted collections are held (--keep-keys wanted)",
            report.not_recomputable
        ));
    }
    for answer in &report.found {
        say(&plain(&words(answer)));
    }
    if report.stopped {
        say("It was stopped before the end.");
    }
}
