//! The commands that give orders: fetch again, follow, follow no more.

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::client::{Client, Reply, talk};
use super::table::{plain, say};
use super::{Failure, Outcome, Server, a_did, ask};
use crate::api::{RepoAnswer, TrackedChange, UpstreamAnswer, UpstreamRemoved, kind_of};
use crate::config::{self, parse_url};

/// DIDs in one request, so that it stays below the limit of a body.
const DIDS_AT_ONCE: usize = 400;

fn order(client: &Client, method: Method, url: Url, body: Option<Value>) -> Result<Reply, Failure> {
    talk(client.ask(method, url, body))
}

/// The server's words, or ours.
fn done(server: &Server, reply: &Reply, words: &str) -> Result<Outcome, Failure> {
    match server.json {
        true => say(&reply.text),
        false => say(&plain(words)),
    }
    Ok(Outcome::Fine)
}

pub fn resync(server: &Server, did: &str, accept_rollback: bool) -> Result<Outcome, Failure> {
    a_did(did)?;
    let client = Client::new(server)?;
    let url = client.url(&["v1", "repos", did, "resync"], &[]);
    let body = json!({ "accept_rollback": accept_rollback });
    let reply = order(&client, Method::POST, url, Some(body))?;
    let repo: RepoAnswer = reply.read()?;
    if server.json {
        say(&reply.text);
    } else {
        say("It will be fetched again. At this moment:");
        ask::print_repo(&repo);
    }
    Ok(Outcome::Fine)
}

pub fn add_upstream(
    server: &Server,
    kind: &str,
    url: &str,
    host: Option<&str>,
) -> Result<Outcome, Failure> {
    if kind_of(kind).is_none() || parse_url(url).is_none() {
        return Err(Failure::Usage(format!(
            "{kind} {url} is no upstream; expected pds URL, relay URL or jetstream URL, the URL {}",
            config::URL
        )));
    }
    let client = Client::new(server)?;
    let body = json!({ "kind": kind, "url": url, "host": host });
    let to = client.url(&["v1", "upstreams"], &[]);
    let reply = order(&client, Method::POST, to, Some(body))?;
    reply.read::<UpstreamAnswer>()?;
    done(server, &reply, &format!("{url} is followed."))
}

pub fn remove_upstream(server: &Server, url: &str) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let to = client.url(&["v1", "upstreams"], &[("url", url.to_owned())]);
    let reply = order(&client, Method::DELETE, to, None)?;
    let gone: UpstreamRemoved = reply.read()?;
    let mut words = format!("{url} is not followed any more. What is held stays.");
    if let Some(note) = &gone.note {
        words.push_str(&format!("\nBut {note}."));
    }
    done(server, &reply, &words)
}

#[derive(Deserialize)]
struct Confirmed {
    confirmed: String,
}

pub fn confirm_loss(server: &Server, url: &str) -> Result<Outcome, Failure> {
    let client = Client::new(server)?;
    let to = client.url(&["v1", "upstreams", "confirm-loss"], &[]);
    let reply = order(&client, Method::POST, to, Some(json!({ "url": url })))?;
    let Confirmed { confirmed } = reply.read()?;
    let words = format!("What vanished from {confirmed} counts as gone; the next sweep hides it.");
    done(server, &reply, &words)
}

pub fn track(server: &Server, dids: &[String]) -> Result<Outcome, Failure> {
    change(server, Method::POST, dids, added)
}

pub fn untrack(server: &Server, dids: &[String]) -> Result<Outcome, Failure> {
    change(server, Method::DELETE, dids, removed)
}

fn added(sum: TrackedChange) -> String {
    match sum.unchanged {
        0 => format!("{} followed by name.", sum.changed),
        before => format!("{} followed by name; {before} were before.", sum.changed),
    }
}

fn removed(sum: TrackedChange) -> String {
    let TrackedChange { changed, unchanged } = sum;
    match (changed, unchanged) {
        (0, 1) => "It was not tracked: nothing has changed.".to_owned(),
        (0, _) => "None of them was tracked: nothing has changed.".to_owned(),
        (_, 0) => format!("{changed} not followed by name any more. What is held stays."),
        (_, _) => format!(
            "{changed} not followed by name any more; {unchanged} had not been tracked. \
             What is held stays."
        ),
    }
}

fn change(
    server: &Server,
    method: Method,
    dids: &[String],
    words: fn(TrackedChange) -> String,
) -> Result<Outcome, Failure> {
    dids.iter().try_for_each(|did| a_did(did))?;
    let client = Client::new(server)?;
    let mut sum = TrackedChange::default();
    for part in dids.chunks(DIDS_AT_ONCE) {
        let url = client.url(&["v1", "tracked"], &[]);
        let body = Some(json!({ "dids": part }));
        let change: TrackedChange = order(&client, method.clone(), url, body)?.read()?;
        sum.changed += change.changed;
        sum.unchanged += change.unchanged;
    }
    say(&match server.json {
        true => json!(sum).to_string(),
        false => words(sum),
    });
    Ok(Outcome::Fine)
}
