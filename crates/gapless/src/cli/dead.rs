//! `gapless dead`: lists and resolves dead letters, the input that could not be used.

use gapless_net::operator::Method;
use serde_json::json;

use super::client::{Client, run_requests};
use super::pages::{self, Page};
use super::{CommandError, CommandOutcome, Server};
use crate::terminal::{or_dash, print_line, sanitize};
use gapless_mirror::api::{DeadAnswer, DeadPage, DeadResolved};

impl Page for DeadPage {
    fn entries(&self) -> usize {
        self.dead.len()
    }

    fn cursor(&self) -> Option<u64> {
        self.cursor
    }
}

/// Lists dead letters. The outcome is a finding if there are any.
pub(crate) fn list_dead_letters(
    server: &Server,
    limit: usize,
) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let mut dead: Vec<DeadAnswer> = Vec::new();
    let cursor = pages::read_pages(&client, "dead", &[], limit, |page: DeadPage| {
        dead.extend(page.dead);
    })?;
    if server.json {
        print_line(&json!({ "dead": dead, "cursor": cursor }).to_string());
    } else {
        print_letters(&dead, cursor.is_some());
    }
    Ok(if dead.is_empty() {
        CommandOutcome::Fine
    } else {
        CommandOutcome::Finding
    })
}

fn print_letters(dead: &[DeadAnswer], more: bool) {
    for letter in dead {
        let seq = letter.seq.map(|seq| seq.to_string());
        print_line(&sanitize(&format!(
            "{}  {}  {}",
            letter.number,
            letter.class,
            or_dash(letter.did.as_deref())
        )));
        print_line(&sanitize(&format!(
            "    from    {}, number {}, {}",
            or_dash(letter.upstream.as_deref()),
            or_dash(seq.as_deref()),
            or_dash(letter.first_seen.as_deref())
        )));
        print_line(&sanitize(&format!("    error   {}", letter.error)));
    }
    print_line(&match (dead.len(), more) {
        (0, _) => "No dead letters.".to_owned(),
        (shown, false) => {
            format!(
                "{shown} dead letters. To resolve one after a look at its error: gapless dead resolve N"
            )
        }
        (shown, true) => format!("{shown} shown; there are more. Show more with --limit."),
    });
}

/// Resolves the dead letter with this number; `None` resolves all current ones.
pub(crate) fn resolve_dead_letters(
    server: &Server,
    number: Option<u64>,
) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let url = match number {
        Some(number) => client.url(&["v1", "dead", &number.to_string(), "resolve"], &[]),
        None => client.url(&["v1", "dead", "resolve"], &[]),
    };
    let reply = run_requests(client.ask(Method::POST, url, None))?;
    let settled: DeadResolved = reply.read()?;
    if server.json {
        print_line(&reply.text);
    } else {
        print_line(&format!("{} dead letters resolved.", settled.resolved));
    }
    Ok(CommandOutcome::Fine)
}
