//! `gapless dead`: what came and could not be used, listed and settled.

use reqwest::Method;
use serde_json::json;

use super::client::{Client, talk};
use super::pages::{self, Page};
use super::table::{or_dash, plain, say};
use super::{Failure, Outcome, Server};
use crate::api::{DeadAnswer, DeadPage, DeadResolved};

impl Page for DeadPage {
    fn entries(&self) -> usize {
        self.dead.len()
    }

    fn cursor(&self) -> Option<u64> {
        self.cursor
    }
}

/// Ends with 1 when there are any.
pub fn list(server: &Server, limit: usize) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let mut dead: Vec<DeadAnswer> = Vec::new();
    let cursor = pages::read(&client, "dead", &[], limit, |page: DeadPage| {
        dead.extend(page.dead);
    })?;
    match server.json {
        true => say(&json!({ "dead": dead, "cursor": cursor }).to_string()),
        false => print(&dead, cursor.is_some()),
    }
    Ok(match dead.is_empty() {
        true => Outcome::Fine,
        false => Outcome::Finding,
    })
}

fn print(dead: &[DeadAnswer], more: bool) {
    for letter in dead {
        let seq = letter.seq.map(|seq| seq.to_string());
        say(&plain(&format!(
            "{}  {}  {}",
            letter.number,
            letter.class,
            or_dash(letter.did.as_deref())
        )));
        say(&plain(&format!(
            "    from    {}, number {}, {}",
            or_dash(letter.upstream.as_deref()),
            or_dash(seq.as_deref()),
            or_dash(letter.first_seen.as_deref())
        )));
        say(&plain(&format!("    error   {}", letter.error)));
    }
    say(&match (dead.len(), more) {
        (0, _) => "No dead letters.".to_owned(),
        (shown, false) => {
            format!("{shown} dead letters. Once you have looked: gapless dead resolve N")
        }
        (shown, true) => format!("{shown} shown, and there are more: --limit."),
    });
}

/// None: all that there are now.
pub fn resolve(server: &Server, number: Option<u64>) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let url = match number {
        Some(number) => client.url(&["v1", "dead", &number.to_string(), "resolve"], &[]),
        None => client.url(&["v1", "dead", "resolve"], &[]),
    };
    let reply = talk(client.ask(Method::POST, url, None))?;
    let settled: DeadResolved = reply.read()?;
    match server.json {
        true => say(&reply.text),
        false => say(&format!("{} settled.", settled.resolved)),
    }
    Ok(Outcome::Fine)
}
