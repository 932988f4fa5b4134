//! The commands that change the running mirror: `resync`, `upstream` and `track`.

use gapless_core::ledger::UpstreamKind;
use gapless_net::operator::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::client::{Client, Reply, run_requests};
use super::{CommandError, CommandOutcome, Server, ask, check_did};
use crate::config::{self, parse_url};
use crate::terminal::{print_line, sanitize};
use gapless_mirror::api::{RepoAnswer, TrackedChange, UpstreamAnswer, UpstreamRemoved};

/// DIDs per request, which keeps the body below the server's limit.
const DIDS_PER_REQUEST: usize = 400;

fn send_order(
    client: &Client,
    method: Method,
    url: Url,
    body: Option<Value>,
) -> Result<Reply, CommandError> {
    run_requests(client.ask(method, url, body))
}

/// Prints the server's JSON or, for people, `words`.
fn print_reply(
    server: &Server,
    reply: &Reply,
    words: &str,
) -> Result<CommandOutcome, CommandError> {
    if server.json {
        print_line(&reply.text);
    } else {
        print_line(&sanitize(words));
    }
    Ok(CommandOutcome::Fine)
}

pub(crate) fn resync(
    server: &Server,
    did: &str,
    accept_rollback: bool,
) -> Result<CommandOutcome, CommandError> {
    check_did(did)?;
    let client = Client::new(server)?;
    let url = client.url(&["v1", "repos", did, "resync"], &[]);
    let body = json!({ "accept_rollback": accept_rollback });
    let reply = send_order(&client, Method::POST, url, Some(body))?;
    let repo: RepoAnswer = reply.read()?;
    if server.json {
        print_line(&reply.text);
    } else {
        print_line(&format!("Gapless fetches {did} again. The present state:"));
        ask::print_repo(&repo);
    }
    Ok(CommandOutcome::Fine)
}

pub(crate) fn add_upstream(
    server: &Server,
    kind: &str,
    url: &str,
    host: Option<&str>,
) -> Result<CommandOutcome, CommandError> {
    if UpstreamKind::parse(kind).is_none() || parse_url(url).is_none() {
        return Err(CommandError::Usage(format!(
            "{kind} {url} is not an upstream; expected pds URL, relay URL or jetstream URL, where URL is {}",
            config::URL
        )));
    }
    let client = Client::new(server)?;
    let body = json!({ "kind": kind, "url": url, "host": host });
    let to = client.url(&["v1", "upstreams"], &[]);
    let reply = send_order(&client, Method::POST, to, Some(body))?;
    reply.read::<UpstreamAnswer>()?;
    print_reply(server, &reply, &format!("Gapless follows {url}."))
}

pub(crate) fn remove_upstream(server: &Server, url: &str) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let to = client.url(&["v1", "upstreams"], &[("url", url.to_owned())]);
    let reply = send_order(&client, Method::DELETE, to, None)?;
    let gone: UpstreamRemoved = reply.read()?;
    let mut words = format!("Gapless no longer follows {url}. The mirrored data stays.");
    if let Some(note) = &gone.note {
        words.push_str(&format!("\nHowever, {note}."));
    }
    print_reply(server, &reply, &words)
}

#[derive(Deserialize)]
struct ConfirmedLoss {
    confirmed: String,
}

pub(crate) fn confirm_loss(server: &Server, url: &str) -> Result<CommandOutcome, CommandError> {
    let client = Client::new(server)?;
    let to = client.url(&["v1", "upstreams", "confirm-loss"], &[]);
    let reply = send_order(&client, Method::POST, to, Some(json!({ "url": url })))?;
    let ConfirmedLoss { confirmed } = reply.read()?;
    let words = format!(
        "The repositories that vanished from {confirmed} count as gone; the next sweep of the host hides them."
    );
    print_reply(server, &reply, &words)
}

pub(crate) fn track(server: &Server, dids: &[String]) -> Result<CommandOutcome, CommandError> {
    change_tracked(server, Method::POST, dids, describe_added)
}

pub(crate) fn untrack(server: &Server, dids: &[String]) -> Result<CommandOutcome, CommandError> {
    change_tracked(server, Method::DELETE, dids, describe_removed)
}

fn describe_added(sum: TrackedChange) -> String {
    match sum.unchanged {
        0 => format!("{} repositories added to the tracked ones.", sum.changed),
        before => format!(
            "{} repositories added to the tracked ones; {before} were already tracked.",
            sum.changed
        ),
    }
}

fn describe_removed(sum: TrackedChange) -> String {
    let TrackedChange { changed, unchanged } = sum;
    match (changed, unchanged) {
        (0, 1) => "The repository was not tracked; nothing has changed.".to_owned(),
        (0, _) => "None of the repositories was tracked; nothing has changed.".to_owned(),
        (_, 0) => format!("{changed} repositories are no longer tracked. The mirrored data stays."),
        (_, _) => format!(
            "{changed} repositories are no longer tracked; {unchanged} had not been tracked. \
             The mirrored data stays."
        ),
    }
}

fn change_tracked(
    server: &Server,
    method: Method,
    dids: &[String],
    words: fn(TrackedChange) -> String,
) -> Result<CommandOutcome, CommandError> {
    dids.iter().try_for_each(|did| check_did(did))?;
    let client = Client::new(server)?;
    let mut sum = TrackedChange::default();
    for part in dids.chunks(DIDS_PER_REQUEST) {
        let url = client.url(&["v1", "tracked"], &[]);
        let body = Some(json!({ "dids": part }));
        let change: TrackedChange = send_order(&client, method.clone(), url, body)?.read()?;
        sum.changed += change.changed;
        sum.unchanged += change.unchanged;
    }
    print_line(&if server.json {
        json!(sum).to_string()
    } else {
        words(sum)
    });
    Ok(CommandOutcome::Fine)
}
